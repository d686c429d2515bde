"""Successive halving, as trials come: at each rung the best part of those that came goes on.

Rule: a trial that reaches a rung is compared with all trials that have reached it. It goes on
if it is among the best one in `eta`; at least one is. Nobody is judged before `eta` trials
have reached the rung: the first ones run on, and are judged together when the last of these
comes, unless they have reached the next rung by then or have ended. A value that is no number,
or that is missing, is the worst, and stops its trial at once.

Bad at: metrics that get worse before they get better, and few trials at a time in an unlucky
order. Nobody is paused to wait for the others, so no device idles: Li et al., A System for
Massively Parallel Hyperparameter Tuning (MLSys 2020), in its form that stops trials.
"""

from collections.abc import Collection, Mapping, Sequence

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
    sweep: Sweep, reached: Reached, newcomer: JobId, running: Collection[JobId]
) -> list[Verdict]:
    """Return which trials are not to go on, now that one has come to its newest rung.

    `running` are the trials that are not over. O(trials × log).
    """
    rule = sweep.halving
    if rule is None:
        return []
    rung = len(reached[newcomer]) - 1
    ranked = sorted(
        (_rank(sweep, values[rung]), job)
        for job, values in reached.items()
        if len(values) > rung
    )
    of, keep = len(ranked), max(1, len(ranked) // rule.eta)
    judged = {newcomer} if of >= rule.eta else set[JobId]()
    if of == rule.eta:
        judged |= {job for job in running if len(reached.get(job, ())) == rung + 1}
    if reached[newcomer][rung] is None:
        judged.add(newcomer)
    return [
        Verdict(job, rung, place, of)
        for place, (_, job) in enumerate(ranked, 1)
        if job in judged and job in running and (place > keep or reached[job][rung] is None)
    ]


def _rank(sweep: Sweep, value: float | None) -> tuple[bool, float]:
    """Return what sorts the best value first; what is no number comes last."""
    if value is None:
        return True, 0.0
    return False, value if sweep.goal is Goal.MINIMIZE else -value


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
