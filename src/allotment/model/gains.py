"""What gangs gain by a move: how fast they were, are expected to be, and are.

A rate is steps an hour, as the job tells of its steps. It is compared only with other rates of
the same job.
"""

import msgspec

from allotment.model.quantity import Instant, Millis

MOST_RATE = 2**53
"""No rate is larger: programs that read JSON keep it whole, and snapshots can be written."""
LEAST_KEPT, OF_RATE = 19, 20
"""A job is worse off if it keeps less than so many parts of its rate: no reading is exact."""


class Gain(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a gang that leaves for a place of its own is expected to gain."""

    tasks: int
    """How many it is expected to have there."""
    rate: int = 0
    """Its rate where it was; 0 where that was not measured."""
    expected: int = 0
    """Its rate where it goes; 0 where that is not known."""
    cost_ms: Millis = Millis(0)
    """How long it is expected to do nothing, or to do again what was not saved."""


class Measured(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a move was found to have gained."""

    rate: int
    """Its rate since."""
    before: int
    kept: bool
    """Whether it is no slower."""
    at: Instant


class Pace(msgspec.Struct, frozen=True, omit_defaults=True):
    """How fast an attempt was measured to be with so many tasks, and when."""

    tasks: int
    rate: int
    at: Instant
    ends_at: Instant = Instant(0)
    """When it will have done all its steps; 0 where it does not tell how many there are."""


class Gauge(msgspec.Struct, frozen=True):
    """How fast a placed gang was measured to be, now and before."""

    most: int = 0
    """To how many tasks it may grow; 0 in a queue whose gangs do not."""
    pace: Pace | None = None
    """Its pace in this attempt."""
    rates: tuple[tuple[int, int], ...] = ()
    """The newest rate of the job with each number of tasks."""
    moved_at: Instant = Instant(0)
    """When it left for a place of its own last."""
    stays: bool = False
    """Whether it stays where it is: moves did it no good, or did not come off."""

    def rate_with(self, tasks: int) -> int:
        """Return what the rate would be with so many tasks: in proportion, or as was measured.

        Between and beyond two numbers of tasks it lies on the line through the nearest two.
        """
        known = dict(self.rates)
        if tasks in known or not known:
            return known.get(tasks, 0)
        near = sorted(known, key=lambda count: (abs(count - tasks), count))[:2]
        one, other = near[0], near[-1]
        if one == other:
            return min(MOST_RATE, known[one] * tasks // one)
        slope = known[other] - known[one]
        return min(MOST_RATE, max(0, known[one] + slope * (tasks - one) // (other - one)))


def is_worse(rate: int, before: int) -> bool:
    """Whether a rate is so far below another that it cannot be by chance."""
    return rate * OF_RATE < before * LEAST_KEPT
