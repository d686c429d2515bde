"""How long jobs will run yet, from those that finished and from time limits.

The run time of a job is what its like needed: jobs of the same user and name, else of its
tenant. Low, expected and high are the quartiles and the median of those that ran for
longer than it has already. Its max_run_time bounds all three. Where it has one and none of
its like has ended, its run time is that limit times the part of theirs that earlier jobs of
the tenant used. Where there is only the limit, expected and high are the limit, and low is a
quarter of it: a guess, not a measurement.

Bad at: jobs whose length depends on their input, and the first of their kind.
Source of the idea: Tsafrir, Etsion and Feitelson, "Backfilling using system-generated
predictions", TPDS 18(6), 2007, who predict from a user's last jobs; and "Modeling user
runtime estimates", JSSPP 2005, on how little of their limits jobs use.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from allotment.engine.records import JobRecord
from allotment.engine.run_history import History, kind_of, ran_ms_of
from allotment.model.forecast import Ground
from allotment.model.quantity import Instant
from allotment.model.spec import NEVER

ENOUGH = 4
"""Samples that have quartiles; fewer are widened by half and by twice."""

MOST_ALIKE, MOST_OF_TENANT = 50, 500
"""Samples kept: the newest."""


class Left(NamedTuple):
    """What a job has yet to run; None where no end is known."""

    low_ms: int
    expected_ms: int | None
    high_ms: int | None
    ground: Ground

    @property
    def all(self) -> tuple[int | None, int | None, int | None]:
        return self.low_ms, self.expected_ms, self.high_ms


def progress_of(job: JobRecord, now: Instant) -> int:
    """Return how much of its work is done, in milliseconds of running.

    Without checkpoints, what earlier attempts did is gone.
    """
    kept = max(0, job.served_ms - job.lost_ms) if job.spec.checkpoint else 0
    attempt = job.attempt
    return kept + (attempt.ran_until(now) if attempt is not None else 0)


class RunTimes:
    """Predicts from the jobs it was given, the newest first.

    Of a user and name of which `history` has runs, it goes by those, as the scheduler does.
    """

    def __init__(self, finished: Iterable[JobRecord], history: History | None = None) -> None:
        self._history = history or History()
        self._sorted: dict[tuple[str, str], list[int]] = {}
        self._alike: dict[tuple[str, str], list[int]] = {}
        self._of_tenant: dict[str, list[int]] = {}
        self._used_of_tenant: dict[str, list[int]] = {}
        """Thousandths of their limits that jobs ran."""
        self._fresh: dict[tuple[object, int], Left] = {}
        for job in finished:
            ran_ms = ran_ms_of(job)
            if ran_ms > 0:
                _keep(self._alike.setdefault(kind_of(job), []), ran_ms, MOST_ALIKE)
                of_tenant = self._of_tenant.setdefault(job.spec.tenant, [])
                _keep(of_tenant, ran_ms, MOST_OF_TENANT)
                if job.spec.max_run_ms != NEVER:
                    used = self._used_of_tenant.setdefault(job.spec.tenant, [])
                    _keep(used, ran_ms * 1_000 // job.spec.max_run_ms, MOST_OF_TENANT)

    def left(self, job: JobRecord, now: Instant) -> Left:
        """Return how long a job that has not finished will run yet."""
        done = progress_of(job, now)
        limit = job.spec.max_run_ms
        ran = job.attempt.ran_until(now) if job.attempt is not None else 0
        most = max(0, limit - ran) if limit != NEVER else None
        kind = kind_of(job)
        alike = self._of_history(*kind) or self._alike.get(kind)
        if alike:
            return _bounded(_quartiles(alike, done), most, Ground.SAME_NAME)
        if done:
            return self._of_other_kind(job, done, most)
        key = (job.spec.tenant, limit)
        known = self._fresh.get(key)
        if known is None:
            known = self._fresh[key] = self._of_other_kind(job, 0, most)
        return known

    def _of_history(self, user: str, name: str) -> list[int]:
        kind = (user, name)
        known = self._sorted.get(kind)
        if known is None:
            known = self._sorted[kind] = sorted(self._history.of(user, name))
        return known

    def _of_other_kind(self, job: JobRecord, done: int, most: int | None) -> Left:
        tenant, limit = job.spec.tenant, job.spec.max_run_ms
        used = self._used_of_tenant.get(tenant, ())
        if most is not None and len(used) >= ENOUGH:
            lengths = [share * limit // 1_000 for share in used]
            return _bounded(_quartiles(lengths, done), most, Ground.LIMIT_USED)
        samples = self._of_tenant.get(tenant, ())
        if len(samples) >= ENOUGH:
            return _bounded(_quartiles(samples, done), most, Ground.TENANT)
        if most is not None:
            return Left(most // 4, most, most, Ground.LIMIT)
        return Left(0, None, None, Ground.UNKNOWN)


def _keep(samples: list[int], ran_ms: int, most: int) -> None:
    if len(samples) < most:
        insort(samples, ran_ms)


def _quartiles(samples: Sequence[int], done: int) -> tuple[int, int, int]:
    """Return what is left of the lengths beyond `done`: the quartiles.

    A job that outlived all of them runs on for as long as it has: no better is known.
    """
    longer = samples[bisect_right(samples, done) :]
    if not longer:
        return done // 4, done, 3 * done
    low, middle, high = (_at(longer, quarters) for quarters in (1, 2, 3))
    if len(longer) < ENOUGH:
        low, high = longer[0] - (longer[0] - done) // 2, 2 * longer[-1]
    return low - done, middle - done, high - done


def _at(samples: Sequence[int], quarters: int) -> int:
    """Return a quartile, between two samples in proportion."""
    whole, rest = divmod((len(samples) - 1) * quarters, 4)
    below = samples[whole]
    return below + (samples[whole + 1] - below) * rest // 4 if rest else below


def _bounded(left: tuple[int, int, int], most: int | None, ground: Ground) -> Left:
    low, middle, high = (each if most is None else min(each, most) for each in left)
    return Left(low, middle, high, ground)
