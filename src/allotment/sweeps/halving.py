"""Successive halving, as trials come: at each rung the best part of those that came goes on.

Rule: a trial that reaches a rung is compared with all trials that have reached it. It goes on
if it is among the best one in `eta`; at least one is. No trial is judged before `eta` trials
have reached the rung: the first ones run on, and are judged together when the last of these
comes, unless they have reached the next rung by then or have ended. A value that is no number,
or that is missing, is the worst, and stops its trial at once.

Bad at: metrics that get worse before they get better, and few trials at a time in an unlucky
order. No trial is paused to wait for the others, so no device idles: Li et al., A System for
Massively Parallel Hyperparameter Tuning (MLSys 2020), in its form that stops trials.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import gt, lt

import msgspec

from allotment.model.ids import JobId
from allotment.model.sweeps import Goal, Sweep

Reached = Mapping[JobId, Sequence[float | None]]
"""The value of each trial at each rung that it reached, in order; None: it is no number."""


class Verdict(msgspec.Struct, frozen=True):
    """A trial is not to go on: it is only the `place`-th best of `of` at its rung."""

    job: JobId
    rung: int
    """Counted from 0."""
    place: int
    of: int


def losers(
    sweep: Sweep, reached: Reached, newcomer: JobId, runs: Callable[[JobId], bool]
) -> list[Verdict]:
    """Return which trials are not to go on, now that one has come to its newest rung.

    `runs` says whether a trial is not over. O(trials), without sorting them: ten thousand come.
    """
    rule = sweep.halving
    if rule is None:
        return []
    rung = len(reached[newcomer]) - 1
    came = {job: values[rung] for job, values in reached.items() if len(values) > rung}
    of, keep = len(came), max(1, len(came) // rule.eta)
    judged = {newcomer} if of >= rule.eta or came[newcomer] is None else set[JobId]()
    if of == rule.eta:
        judged |= {job for job in came if len(reached[job]) == rung + 1}
    places = ((_place(sweep, came, job), job) for job in judged if runs(job))
    return [
        Verdict(job, rung, place, of)
        for place, job in sorted(places)
        if place > keep or came[job] is None
    ]


def _place(sweep: Sweep, came: Mapping[JobId, float | None], job: JobId) -> int:
    """Return where a trial stands among those that came to a rung: 1 is the best."""
    value = came[job]
    if value is None:
        return sum(1 for each, other in came.items() if other is not None or each <= job)
    is_better = lt if sweep.goal is Goal.MINIMIZE else gt
    return 1 + sum(
        1
        for each, other in came.items()
        if other is not None and (is_better(other, value) or (other == value and each < job))
    )


def crossed(
    rungs: Sequence[int], so_far: int, told: Sequence[tuple[int, float | None]]
) -> list[tuple[int, float | None]]:
    """Return the step and value at each further rung that what was told has crossed.

    `told` are steps with values, in any order: at each rung the first that is not below it
    counts, for each trial the same, however often it is looked at.
    """
    found: list[tuple[int, float | None]] = []
    for rung in rungs[so_far:]:
        beyond = [each for each in told if each[0] >= rung]
        if not beyond:
            break
        found.append(min(beyond, key=lambda each: each[0]))
    return found
