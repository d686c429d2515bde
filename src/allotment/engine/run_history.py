"""How long jobs ran, as finished jobs of the same user and name tell it.

Rule: the 90th percentile of the newest `MOST_RUNS` runs of the same user and name; of a name
that never ran, of the same user; of fewer than `ENOUGH` runs, twice the longest. What is told
changes only once runs say something else by a quarter (of a user: by half or twice), so that
not every end changes the order.

Source: the same user and name, then the same user, are the best of the templates in Smith,
Foster and Taylor, "Predicting application run times using historical information", JSSPP 1998;
that the newest runs tell most, and that too short a prediction costs more than too long a one,
in Tsafrir, Etsion and Feitelson, TPDS 18(6), 2007. What was lost tells nothing: so crashes do
not make the next run look short. Bad at: jobs whose length depends on their input.
"""

from collections.abc import Iterable

import msgspec

from allotment.engine.records import JobRecord
from allotment.model.lifecycle import JobState

MOST_RUNS = 20
"""Runs remembered of a user and name, and of a user: the newest."""

ENOUGH = 4
"""So many runs have a 90th percentile; of fewer it is twice the longest."""

MOST_KINDS = 4_000
"""Of so many users and names runs are remembered; the least recent are forgotten."""

TELLING = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.TIMED_OUT})
"""How jobs end whose run time says something of the next."""

Kind = tuple[str, str]
"""User and name; no name stands for all jobs of the user."""


class Runs(msgspec.Struct, omit_defaults=True):
    """What is remembered of one user and name. Times in milliseconds."""

    user: str
    name: str = ""
    ran_ms: list[int] = []
    """The newest last."""
    told_ms: int = 0
    """What is told of the next run, before any margin."""

    @property
    def few(self) -> bool:
        """Whether there are too few runs for a percentile."""
        return len(self.ran_ms) < ENOUGH

    def add(self, ran_ms: int) -> bool:
        """Note a run; say whether something else is told of the next one now."""
        self.ran_ms = [*self.ran_ms[1 - MOST_RUNS :], ran_ms]
        order = sorted(self.ran_ms)
        high = order[-(-9 * len(order) // 10) - 1]
        if self.name:
            same = 3 * self.told_ms <= 4 * high and 4 * high <= 5 * self.told_ms
        else:  # Of many names: they differ more, and concern more jobs that wait.
            same = self.told_ms <= 2 * high and high <= 2 * self.told_ms
        if same and len(order) > ENOUGH:
            return False
        self.told_ms = high
        return True


def kind_of(job: JobRecord) -> Kind:
    """Return user and name; all jobs of an array have one name."""
    name = job.spec.name
    if job.spec.array is not None:
        name = name.removesuffix(f".{job.spec.array.index}")
    return job.owner.user, name


def ran_ms_of(job: JobRecord) -> int:
    """Return the run time that a finished job tells of its like; 0 if it tells nothing."""
    return max(0, job.served_ms - job.lost_ms) if job.state in TELLING else 0


class History:
    """What finished jobs tell, bounded: a decision goes by it, so it is kept in snapshots."""

    def __init__(self, runs: Iterable[Runs] = ()) -> None:
        self._runs = {(each.user, each.name): each for each in runs}

    def learn(self, job: JobRecord) -> list[Kind]:
        """Note a job that finished; name the kinds of which something else is told now."""
        ran_ms = ran_ms_of(job)
        if not ran_ms:
            return []
        user, name = kind_of(job)
        changed: list[Kind] = []
        for kind in ((user, name), (user, "")) if name else ((user, ""),):
            runs = self._runs.pop(kind, None) or Runs(*kind)
            self._runs[kind] = runs
            if runs.add(ran_ms):
                changed.append(kind)
        while len(self._runs) > MOST_KINDS:
            forgotten = next(iter(self._runs))
            del self._runs[forgotten]
            changed.append(forgotten)
        return changed

    def find(self, user: str, name: str) -> Runs | None:
        """Return the runs by which the next one is predicted: of the name, else of the user."""
        return self._runs.get((user, name)) or self._runs.get((user, ""))

    def of(self, user: str, name: str) -> list[int]:
        """Return the runs of just this user and name."""
        runs = self._runs.get((user, name))
        return runs.ran_ms if runs is not None else []

    def all(self) -> list[Runs]:
        """Return everything, for a snapshot: what ended least recently comes first."""
        return list(self._runs.values())
