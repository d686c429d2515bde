"""Which runs the jobs made in MLflow: looked up beside all work, and never waited for long.

MLflow knows no users, so whatever it says of a job may be written by anybody. It is shown to
people and decides nothing: no rate of it moves a job, no metric of it ends a trial.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
import structlog

from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor, JobId
from allotment.model.quantity import WallTime
from allotment.service.finding import Finding
from allotment.service.live_use import running
from allotment.service.progress import ProgressLine, Steps
from allotment.service.threads import Threads
from allotment.service.tracking.ports import (
    OF_SYSTEM,
    Metric,
    Registered,
    Run,
    Tracker,
    TrackerAway,
)
from allotment.service.tracking.variables import variables_of
from allotment.service.tracking.view import ModelRow, ModelRows
from allotment.service.views import ProgressView, RunView

LOOK_EVERY_S: Final = 5.0
KEEP_EVERY_S: Final = 1.0
PATIENCE_S: Final = 60.0
"""For a look beside all work."""
LISTING_S: Final = 25.0
"""For who lists models, and as long before for its turn: its client waits a minute."""
SHOWING_S: Final = 2.0
"""By so much `allot show` may come later for it, once in AWAY_S."""
AWAY_S: Final = 30.0
FRESH_S: Final = 60.0
SOON_S: Final = 5.0
"""After which runs of a job are asked for again to be shown: known ones, and none."""
_BACK_MS: Final = 3_600_000
"""By so much clocks of nodes may be behind, and the service may have been without MLflow."""
_MOST_JOBS: Final = 10_000
_MOST_RUNS: Final = 20
_MOST_AGAIN: Final = 500

log = structlog.get_logger("allot.mlflow")


class Tracking:
    """Remembers the runs of jobs, and what these told last."""

    def __init__(
        self, state: State, tracker: Tracker | None, wall: Callable[[], WallTime]
    ) -> None:
        self._state, self._tracker, self._wall = state, tracker, wall
        self._threads = Threads("mlflow", each=1, total=4)
        self._runs: dict[JobId, dict[str, Run]] = {}
        self._steps: dict[JobId, Steps] = {}
        self._asked: dict[JobId, float] = {}
        """When MLflow was asked for the runs of a job last, to show them."""
        self._is_asking = False
        self._since = 0
        self._away_until = 0.0
        self._trouble = ""

    @property
    def _address(self) -> str:
        """Where MLflow is; '' where the cluster has none."""
        setup = self._state.config.mlflow
        return setup.address if setup is not None and self._tracker is not None else ""

    # ── what jobs are told ──────────────────────────────────────────────────────────

    def variables(self, job: JobRecord) -> Mapping[str, str]:
        """Return what a job that starts now finds in its environment."""
        before = (run for run in self._known(job) if run.attempt < job.attempts[-1].no)
        last = max(before, key=lambda run: (not run.is_nested, run.started_ms), default=None)
        return variables_of(job, self._state.config.mlflow, last.id if last else "")

    def close(self) -> None:
        """End the server that the service started."""
        if self._tracker is not None:
            self._tracker.end()

    # ── looking ─────────────────────────────────────────────────────────────────────

    async def keep(self) -> None:
        """Have the server run that the service starts, if it is to."""
        if self._tracker is not None:
            self._tracker.keep(self._state.config.mlflow)

    async def look(self) -> None:
        """Note new runs and metrics of the jobs that run."""
        tracker, address = self._tracker, self._address
        jobs = running(self._state)
        for job in self._steps.keys() - {job.id for job in jobs}:
            del self._steps[job]
        if tracker is None or not address or not jobs:
            return
        began, known = self._wall(), self._ids(jobs)

        def ask() -> list[Run]:
            found = {run.id: run for run in tracker.newest(address, self._since)}
            rest = [each for each in known if each not in found][:_MOST_AGAIN]
            return [*found.values(), *(tracker.again(address, rest) if rest else ())]

        try:
            found = await self._threads.run("look", ask, PATIENCE_S)
        except (TrackerAway, TimeoutError) as error:
            self._note_away(str(error) or f"no answer in {PATIENCE_S:.0f} s")
            return
        self._trouble, self._away_until = "", 0.0
        self._since = max(0, began - _BACK_MS)
        for run in sorted(found, key=lambda run: run.started_ms):
            self._note(run)
        for job in jobs:
            self._follow(job)

    def _ids(self, jobs: Iterable[JobRecord]) -> list[str]:
        """Return the runs that go on, as far as is known."""
        runs = (run for job in jobs for run in self._known(job))
        return [run.id for run in runs if run.status == "RUNNING"]

    def _note_away(self, why: str) -> None:
        self._away_until = time.monotonic() + AWAY_S
        if why != self._trouble:
            self._trouble = why
            log.warning("MLflow does not say what jobs log there; jobs continue", why=why)

    def _note(self, run: Run) -> None:
        """Keep a run, if it is of a job that is known here."""
        job = self._state.jobs.get(JobId(run.job))
        if job is not None and job.submitted_at == run.submitted:
            self._keep(job.id, [run])

    def _keep(self, job: JobId, found: Sequence[Run]) -> None:
        runs = self._runs.pop(job, {})
        for run in found:
            runs[run.id] = run
        while len(runs) > _MOST_RUNS:
            del runs[min(runs, key=lambda each: runs[each].started_ms)]
        self._runs[job] = runs
        while len(self._runs) > _MOST_JOBS:
            gone = next(iter(self._runs))
            del self._runs[gone]
            self._asked.pop(gone, None)

    def _known(self, job: JobRecord) -> list[Run]:
        runs = self._runs.get(job.id, {}).values()
        return [run for run in runs if run.submitted == job.submitted_at]

    def _follow(self, job: JobRecord) -> None:
        """Note how far the present attempt of a job is, by its newest run with metrics."""
        attempt = job.attempts[-1]
        told = [
            run
            for run in self._known(job)
            if run.attempt == attempt.no and any(map(_is_told, run.metrics))
        ]
        if not told:
            return
        run = max(told, key=lambda run: (not run.is_nested, run.started_ms))
        metrics = [metric for metric in run.metrics if _is_told(metric)]
        line = ProgressLine(
            max(metric.step for metric in metrics),
            metrics={metric.name: metric.value for metric in metrics},
        )
        at_ns = max(metric.at_ms for metric in metrics) * 1_000_000
        steps = self._steps.get(job.id)
        if steps is None or (steps.attempt, steps.tasks) != (attempt.no, attempt.staying):
            steps = self._steps[job.id] = Steps(attempt.no, attempt.staying)
        if steps.told != line:
            steps.add(at_ns, line)

    # ── showing ─────────────────────────────────────────────────────────────────────

    def progress(self, job: JobRecord) -> ProgressView | None:
        """Return what the present attempt of a job logged last; None if nothing is known."""
        steps, attempt = self._steps.get(job.id), job.attempt
        if steps is None or attempt is None or steps.attempt != attempt.no:
            return None
        return steps.view()

    async def runs(self, job: JobRecord) -> tuple[RunView, ...]:
        """Return the runs of a job, the newest first; those known where MLflow is silent."""
        tracker, address = self._tracker, self._address
        if tracker is None or not address or not job.attempts:
            return ()
        if self._is_due(job):
            self._is_asking = True
            try:
                await self._ask_for(job, partial(tracker.of_job, address))
            finally:
                self._is_asking = False
        known = sorted(self._known(job), key=lambda run: -run.started_ms)
        return tuple(RunView(run.id, run.attempt, run.status, run.url) for run in known)

    def _is_due(self, job: JobRecord) -> bool:
        """Whether MLflow is asked for the runs of a job: one question at a time, and seldom."""
        now, pause_s = time.monotonic(), FRESH_S if self._known(job) else SOON_S
        if self._is_asking or now < self._away_until:
            return False
        return now - self._asked.get(job.id, -pause_s) >= pause_s

    async def _ask_for(
        self, job: JobRecord, of_job: Callable[[int, int], Sequence[Run]]
    ) -> None:
        ask = partial(of_job, job.id, job.submitted_at)
        try:
            found = await self._threads.run("show", ask, SHOWING_S)
        except (TrackerAway, TimeoutError) as error:
            self._note_away(str(error) or f"no answer in {SHOWING_S:.0f} s")
            return
        self._asked[job.id] = time.monotonic()
        self._keep(job.id, [run for run in found if run.submitted == job.submitted_at])

    async def models(self, finding: Finding, actor: Actor) -> ModelRows:
        """Return the registered models, and the job that made each. Raises Rejected."""
        tracker, address = self._tracker, self._address
        if tracker is None or not address:
            raise Rejected(
                Code.NOT_SUPPORTED,
                "This cluster has no MLflow server.",
                "Its administrator names one in the configuration: mlflow: {url: …}.",
            )
        try:
            found = await self._threads.run(actor, partial(tracker.models, address), LISTING_S)
        except (TrackerAway, TimeoutError) as error:
            why = str(error) or f"no answer in {LISTING_S:.0f} s"
            raise Rejected(
                Code.UNAVAILABLE,
                f"MLflow at {address} does not say which models it has: {why}.",
                "Try again; if this continues, tell the administrator. Jobs are not affected.",
            ) from error
        return ModelRows(tuple(_row(model, finding) for model in found), address)


def _is_told(metric: Metric) -> bool:
    return not metric.name.startswith(OF_SYSTEM)


def _row(model: Registered, finding: Finding) -> ModelRow:
    row = ModelRow(model.name, model.version, WallTime(model.made_ms), model.url)
    return row if model.run is None else _made_by(row, model.run, finding)


def _made_by(row: ModelRow, run: Run, finding: Finding) -> ModelRow:
    """Return a row with the job that a run names, if it is one of this service."""
    row = msgspec.structs.replace(row, run=run.id)
    try:
        job = finding.record(JobId(run.job))
    except Rejected:
        return row
    if job.submitted_at != run.submitted:
        return row
    return msgspec.structs.replace(
        row, job=job.id, job_name=job.spec.name, tenant=job.spec.tenant, user=job.owner.user
    )
