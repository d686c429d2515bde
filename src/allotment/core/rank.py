"""A job's place in the order of its queue, and how it moves with the clock."""

import msgspec

from allotment.model.ids import JobId
from allotment.model.quantity import Instant

Key = tuple[tuple[int, ...], JobId]
"""A place in job order: a rank's key, and of equals the older job first."""


class Rank(msgspec.Struct, frozen=True, gc=False):
    """A job's place in the order of its queue: the smaller key goes first.

    The last part of the key grows by `slope` with every millisecond of the clock, so that
    the order of running jobs is known at any moment without asking again; see `moving`.
    Waiting jobs stand still: their slope is 0. `until` is when the rank must be asked anew
    though nothing happened to the job; None when it holds until something does.
    """

    key: tuple[int, ...]
    slope: int = 0
    until: Instant | None = None


def moving(
    lead: tuple[int, ...], value: int, slope: int, now: Instant, until: Instant | None = None
) -> Rank:
    """Make a rank whose last part is `value` now and grows by `slope` a millisecond."""
    return Rank((*lead, value - slope * now), slope, until)
