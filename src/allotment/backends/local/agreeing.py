"""The step after which all ranks of a gang stop, found without a collective of their own.

What asks them may be on their machine, or reach several. Only durations are compared, so the
clocks of machines need not agree.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import Final

from allotment.backends.status import PauseSaid
from allotment.model.ids import TaskKey

STAND_S, MOST_STAND_S = 5.0, 60.0
"""What ranks may take to stop, beside three times what their steps take; and at most, over all
tries."""
AHEAD_NS: Final = 100_000_000
"""Ranks stop so far ahead of the step that was read: meanwhile they go on. Twice as far at each
new try."""
LEAST_AHEAD, MOST_AHEAD = 2, 1_000_000
TRIES: Final = 6
STANDING: Final = frozenset({"there", "freed", "keeps"})

Said = Mapping[TaskKey, PauseSaid]
"""What supervisors say of the ranks of their tasks."""
Stand = Callable[[int, float], Awaitable[Said]]
"""Lets all ranks stop after a step, 0 for the next; returns what is said of those tasks that
answer in so many seconds."""


async def agree(keys: Sequence[TaskKey], said: Said, stand: Stand) -> bool:
    """Let all ranks stop after one step; False where they do not, or are not all known.

    A rank that is past a step says so, or its supervisor, where it waits for the others; then a
    later one is told to all.
    """
    end = monotonic() + MOST_STAND_S
    for tries in range(TRIES):
        if not _all_here(said, keys) or not _is_worth_it(said):
            return False
        after, wait_s = _meeting(said, AHEAD_NS << tries)
        said = await stand(after, min(wait_s, end - monotonic()))
        if all_stand(keys, said):
            return True
        if "late" not in {each.state for each in said.values()}:
            return False
    return False


def all_stand(keys: Sequence[TaskKey], said: Said) -> bool:
    """Whether each of these tasks stands after a step."""
    return len(said) == len(keys) and {each.state for each in said.values()} <= STANDING


def all_free(said: Said) -> bool:
    """Whether all ranks can give memory back, or did."""
    return all(each.frees for each in said.values())


def _all_here(said: Said, keys: Sequence[TaskKey]) -> bool:
    """Whether every rank of the gang tells of its steps, among these tasks."""
    count = sum(each.count for each in said.values())
    return len(said) == len(keys) and count == max(each.world for each in said.values())


def _is_worth_it(said: Said) -> bool:
    return len(said) > 1 or any(each.frees or each.count > 1 for each in said.values())


def _meeting(said: Said, ahead_ns: int) -> tuple[int, float]:
    """Return after which step all stop, 0 for the next of a single rank, and how long that may
    take."""
    step_ns = max(each.step_ns for each in said.values())
    if sum(each.count for each in said.values()) == 1:
        return 0, min(MOST_STAND_S, STAND_S + 3 * step_ns / 1e9)
    ahead = -(-ahead_ns // step_ns) if step_ns else LEAST_AHEAD
    ahead = min(MOST_AHEAD, max(LEAST_AHEAD, ahead))
    after = max(each.step for each in said.values()) + ahead
    return after, min(MOST_STAND_S, STAND_S + 3 * ahead * step_ns / 1e9)
