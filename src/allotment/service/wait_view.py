"""What `allot why` tells of the past: for what a job waited, from when, and how long."""

from collections.abc import Mapping

import msgspec

from allotment.metrics.reasons import LifePhase, Stretch
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.model.reasons import Blocked

WHILE_ELIGIBLE = "eligible"
"""Stands for a reason where none was found: the job waited too shortly to be looked at."""


class WaitHistory(msgspec.Struct, frozen=True):
    """The life of one job, in stretches of time, with what it waited for in each."""

    job: JobId
    name: str
    state: JobState
    why: Blocked | None
    """Why it waits now; null when it does not."""
    waited_ms: int
    """How long it waited for a place, all attempts together."""
    waited_for: Mapping[str, int]
    """The same by reason, in milliseconds, longest first; `eligible` without a known one."""
    stretches: tuple[Stretch, ...]
    """In order, from its submission to now or its end. The last one of a job that is not
    over goes on. At most 100: of more the shortest are merged into the others."""


def waited_for(stretches: tuple[Stretch, ...]) -> dict[str, int]:
    """Sum up the time without a place by reason, the longest first."""
    sums: dict[str, int] = {}
    for each in stretches:
        if each.phase is LifePhase.WAITING:
            reason = each.reason.value if each.reason else WHILE_ELIGIBLE
            sums[reason] = sums.get(reason, 0) + each.ms
    return dict(sorted(sums.items(), key=lambda item: -item[1]))
