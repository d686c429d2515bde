"""Run times of jobs whose users gave none, predicted for the decision.

Predictions follow what is told of their kind at the moment: when that changes, the jobs of
the kind that wait or run stand anew, wherever they are sorted by it. So the state that a
snapshot gives back predicts the same. Where nothing goes by run times it costs nothing but
to remember them.
"""

from collections.abc import Iterable

from allotment.engine.records import JobRecord
from allotment.engine.run_history import History, Kind, Runs, kind_of
from allotment.model.ids import JobId
from allotment.model.quantity import show_millis
from allotment.model.spec import NEVER

FEW_MILLI = 2_000
"""The margin where too few runs are known: twice the longest, or more if configured."""


class Foretelling:
    """Predicts, and knows which jobs a changed prediction concerns."""

    def __init__(self, *, remembers: bool) -> None:
        self.history = History()
        self.on = False
        """Whether anything goes by predictions now."""
        self.remembers = remembers
        """Whether it learns from jobs that finish."""
        self._margin_milli = 0
        self._jobs: dict[str, dict[str, dict[JobId, None]]] = {}
        """Unfinished jobs without a limit by user and name, while it is on."""

    def configure(self, margin_milli: int, jobs: Iterable[JobRecord], *, needed: bool) -> bool:
        """Begin to predict, or stop; say whether other run times are told now. O(jobs)."""
        before = (self.on, self._margin_milli)
        self.on = needed and self.remembers and margin_milli > 0
        self._margin_milli = margin_milli
        if self.on and not before[0]:
            self._jobs = {}
            for job in jobs:
                self.came(job)
        elif not self.on:
            self._jobs = {}
        return self.on != before[0] or (self.on and before[1] != margin_milli)

    def recall(self, runs: list[Runs], jobs: Iterable[JobRecord]) -> None:
        """Remember what a snapshot kept; of one that kept nothing, what its jobs tell."""
        self.history = History(runs)
        if self.remembers and not runs:
            ended = [job for job in jobs if job.state.finished]
            for job in sorted(ended, key=lambda each: (each.finished_at, each.id)):
                self.history.learn(job)

    # ── jobs ────────────────────────────────────────────────────────────────────────────

    def came(self, job: JobRecord) -> None:
        """Note a job that may have to be predicted."""
        if self.on and job.spec.max_run_ms == NEVER and not job.state.finished:
            user, name = kind_of(job)
            self._jobs.setdefault(user, {}).setdefault(name, {})[job.id] = None

    def gone(self, job: JobRecord) -> None:
        """Forget a job that finished, or is about to be another."""
        if not self.on:
            return
        user, name = kind_of(job)
        of_user = self._jobs.get(user, {})
        alike = of_user.get(name, {})
        alike.pop(job.id, None)
        if not alike:
            of_user.pop(name, None)
            if not of_user:
                self._jobs.pop(user, None)

    def finished(self, job: JobRecord) -> list[JobId]:
        """Learn from a job that finished; name the jobs whose predictions changed."""
        self.gone(job)
        concerned = [each for kind in self.history.learn(job) for each in self._concerned(kind)]
        return sorted(set(concerned))

    def _concerned(self, kind: Kind) -> list[JobId]:
        user, name = kind
        of_user = self._jobs.get(user, {})
        if name:
            return list(of_user.get(name, ()))
        return [
            job
            for other, alike in of_user.items()
            if not self.history.of(user, other)
            for job in alike
        ]

    # ── what is told ────────────────────────────────────────────────────────────────────

    def told_ms(self, job: JobRecord) -> int:
        """Predict a whole run of a job, margin included; -1 if nothing is known. O(1)."""
        runs = self.history.find(*kind_of(job))
        if runs is None:
            return -1
        milli = max(self._margin_milli, FEW_MILLI) if runs.few else self._margin_milli
        return max(1, runs.told_ms * milli // 1_000)

    def words(self, job: JobRecord) -> str:
        """Return for how long a job is taken to run, and why; '' where that does not matter."""
        if not self.on or job.spec.max_run_ms != NEVER:
            return ""
        user, name = kind_of(job)
        runs = self.history.find(user, name)
        if runs is None:
            return (
                "Nobody knows how long it runs: it has no max_run_time, and no job of "
                f"{user} has ended yet."
            )
        count = len(runs.ran_ms)
        whose = f"{user}'s {name}" if runs.name else f"jobs of {user}"
        many = "the last run" if count == 1 else f"the last {count} runs"
        return (
            f"It is expected to run for {show_millis(self.told_ms(job))}: predicted from "
            f"{many} of {whose}."
        )
