"""Sweeps: shown, stopped, and kept within their budgets."""

from collections import Counter
from collections.abc import Mapping

import msgspec
import structlog

from allotment.engine.records import JobRecord
from allotment.engine.sweep_records import SweepRecord
from allotment.engine.sweeps import no_such_sweep, spent, sweep_of
from allotment.model import commands as c
from allotment.model.errors import Code, Rejected
from allotment.model.ids import SYSTEM, Actor, JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Instant
from allotment.model.sweeps import Sweep, SweepEnd
from allotment.model.tenancy import Visibility
from allotment.service.access import is_admin
from allotment.service.archive import Archive
from allotment.service.finding import Finding
from allotment.service.pipeline import Pipeline
from allotment.service.sweep_view import SweepRow, SweepView, TrialView
from allotment.service.sweep_words import loss
from allotment.sweeps.draw import trials

LOOK_EVERY_S = 5.0
MOST_LISTED = 100

log = structlog.get_logger("allot.service")


class Sweeping:
    """The sweeps of one service."""

    def __init__(self, pipeline: Pipeline, finding: Finding, archive: Archive) -> None:
        self._pipeline, self._state = pipeline, pipeline.state
        self._finding, self._archive = finding, archive

    # ── budgets ─────────────────────────────────────────────────────────────────────────

    async def look(self) -> None:
        """Stop the sweeps whose trials have used what they may."""
        if self._pipeline.committer.trouble:
            return
        now = self._pipeline.clock.now()
        for sweep in tuple(self._state.sweeps.values()):
            if sweep.is_over or sweep.ended is not None:
                continue
            why = self._used_up(sweep, now)
            if why is not None:
                log.info("a sweep has used up its budget", sweep=sweep.id, of=why.value)
                await self._pipeline.command(c.StopSweep(sweep.id, why), SYSTEM)

    def _used_up(self, sweep: SweepRecord, now: Instant) -> SweepEnd | None:
        limits = sweep.sweep
        if not (limits.gpu_hours or limits.cpu_hours):
            return None
        gpu, cpu = spent(self._state, sweep, now)
        if 0 < limits.gpu_hours <= gpu:
            return SweepEnd.GPU_HOURS
        return SweepEnd.CPU_HOURS if 0 < limits.cpu_hours <= cpu else None

    # ── wishes ──────────────────────────────────────────────────────────────────────────

    async def stop(self, ref: str, actor: Actor) -> SweepView:
        """End all trials of a sweep; durable on return. Raises Rejected."""
        sweep = self._find(ref, actor)
        if not self._is_own(sweep, actor):
            raise Rejected(
                Code.FORBIDDEN,
                f"Sweep {sweep.id} belongs to {sweep.owner.user}; you are {actor.user}.",
                "Ask its owner or the administrator.",
            )
        await self._pipeline.command(c.StopSweep(sweep.id), actor)
        return self.sweep(str(sweep.id), actor)

    # ── reading ─────────────────────────────────────────────────────────────────────────

    def sweeps(self, actor: Actor) -> list[SweepRow]:
        """Return the newest sweeps, the newest first."""
        newest = sorted(self._state.sweeps.values(), key=lambda sweep: -sweep.id)
        return [self._row(sweep, actor) for sweep in newest[:MOST_LISTED]]

    def sweep(self, ref: str, actor: Actor) -> SweepView:
        """Return one sweep with its trials. Raises Rejected."""
        sweep = self._find(ref, actor)
        inside = self._sees(sweep, actor)
        found = self._trials(sweep, inside=inside)
        return SweepView(
            row=self._row(sweep, actor, found),
            sweep=sweep.sweep if inside else None,
            max_running=self._max_running(sweep),
            trials=tuple(found),
            hint=self._hint(sweep, found) if inside else "",
            private=not inside,
        )

    def lost(self, job: JobRecord) -> str:
        """Return where a trial stood that its sweep stopped; '' for every other job."""
        sweep = sweep_of(self._state, job)
        verdict = sweep.stopped.get(job.id) if sweep is not None else None
        return loss(*verdict) if verdict is not None else ""

    def _find(self, ref: str, actor: Actor) -> SweepRecord:
        """Return the sweep of this id or name, or of which a job is a trial."""
        sweeps = self._state.sweeps
        if ref.isdecimal() and len(ref) < 19 and int(ref) in sweeps:
            return sweeps[JobId(int(ref))]
        named = [sweep for sweep in sweeps.values() if sweep.name == ref]
        named.sort(key=lambda sweep: (sweep.owner.user == actor.user, sweep.id))
        if named:
            return named[-1]
        if ref == "last":
            own = [each for each in sweeps.values() if each.owner.user == actor.user]
            found = own[-1] if own else None
        else:
            found = self._of_trial(ref, actor)
        if found is None:
            raise no_such_sweep(ref)
        return found

    def _of_trial(self, ref: str, actor: Actor) -> SweepRecord | None:
        try:
            return sweep_of(
                self._state, self._finding.record(self._finding.resolve(ref, actor))
            )
        except Rejected:
            return None

    def _is_own(self, sweep: SweepRecord, actor: Actor) -> bool:
        return is_admin(actor) or actor.uid == sweep.owner.uid

    def _sees(self, sweep: SweepRecord, actor: Actor) -> bool:
        is_open = self._state.config.visibility is Visibility.OPEN
        return is_open or self._is_own(sweep, actor)

    def _max_running(self, sweep: SweepRecord) -> int:
        for job in self._live(sweep).values():
            if (array := job.spec.array) is not None:
                return array.max_running
        return 0

    def _live(self, sweep: SweepRecord) -> dict[JobId, JobRecord]:
        """Return the trials that have not left memory."""
        jobs = self._state.jobs
        return {JobId(job): jobs[JobId(job)] for job in sweep.ids if job in jobs}

    def _row(
        self, sweep: SweepRecord, actor: Actor, found: list[TrialView] | None = None
    ) -> SweepRow:
        inside = self._sees(sweep, actor)
        found = self._trials(sweep, inside=inside) if found is None else found
        gpu, cpu = spent(self._state, sweep, self._pipeline.clock.now())
        counts = Counter(trial.state.value for trial in found)
        return SweepRow(
            id=sweep.id,
            name=sweep.name,
            tenant=sweep.tenant,
            user=sweep.owner.user,
            state=sweep.ended.value if sweep.ended else "over" if sweep.is_over else "running",
            counts=dict(sorted(counts.items())),
            stopped=len(sweep.stopped),
            submitted_at=sweep.submitted_at,
            finished_at=sweep.finished_at,
            gpu_ms=gpu,
            cpu_ms=cpu,
            best=found[0] if inside and found and found[0].value is not None else None,
        )

    # ── trials ──────────────────────────────────────────────────────────────────────────

    def _trials(self, sweep: SweepRecord, *, inside: bool) -> list[TrialView]:
        """Return the trials, the best first."""
        live = self._live(sweep)
        gone: Mapping[JobId, JobState] = {}
        if len(live) < sweep.trials:
            gone = self._archive.states(JobId(sweep.ids[0]), JobId(sweep.ids[-1]))
        params = trials(sweep.sweep) if inside else []
        now = self._pipeline.clock.now()
        made: list[TrialView] = []
        for index, each in enumerate(sweep.ids):
            id_ = JobId(each)
            job = live.get(id_)
            state = job.state if job is not None else gone.get(id_, JobState.CANCELLED)
            step, value = self._last(sweep, id_, job) if inside else (0, None)
            made.append(
                TrialView(
                    job=id_,
                    index=index,
                    params=dict(params[index]) if inside else {},
                    state=state,
                    ran_ms=_ran_ms(sweep, id_, job, now),
                    rung=len(sweep.reached.get(id_, ())),
                    step=step,
                    value=value,
                    rungs=tuple(sweep.reached.get(id_, ())) if inside else (),
                    stopped=loss(*sweep.stopped[id_]) if id_ in sweep.stopped else "",
                )
            )
        sign = -1 if sweep.sweep.goal.value == "maximize" else 1
        made.sort(key=lambda each: (each.value is None, sign * (each.value or 0), each.index))
        return made

    def _last(
        self, sweep: SweepRecord, id_: JobId, job: JobRecord | None
    ) -> tuple[int, float | None]:
        """Return the newest step and value that a trial reported."""
        progress, recorded = self._pipeline.progress, sweep.measured.get(id_, (0, None))
        if (now := progress.compared(id_)) is not None:
            return now
        told = progress.of(job) if job is not None else None
        return (max(recorded[0], told.step), recorded[1]) if told is not None else recorded

    def _hint(self, sweep: SweepRecord, found: list[TrialView]) -> str:
        """Return what keeps trials from being compared, where they report something else."""
        metric = sweep.sweep.metric
        if not metric or any(trial.value is not None for trial in found):
            return ""
        others: dict[str, None] = {}
        for job in self._live(sweep).values():
            told = self._pipeline.progress.of(job)
            others |= dict.fromkeys(told.metrics if told is not None else ())
        if others:
            return f"No trial reports {metric!r}; they report {', '.join(sorted(others))}."
        ran = any(trial.ran_ms > 60_000 for trial in found)
        return f"No trial has reported {metric!r} yet: docs/guide/progress.md." if ran else ""


def _ran_ms(sweep: SweepRecord, id_: JobId, job: JobRecord | None, now: Instant) -> int:
    attempt = job.attempt if job is not None else None
    return sweep.ran.get(id_, 0) + (attempt.ran_until(now) if attempt is not None else 0)


def with_seed(sweep: Sweep | None, seed: int) -> Sweep | None:
    """Return a sweep with the seed of its draws, where it names none."""
    if sweep is None or sweep.seed is not None or not sweep.draws:
        return sweep
    return msgspec.structs.replace(sweep, seed=seed)
