"""Sweeps: shown, stopped, and kept within their budgets."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

import msgspec
import structlog

from allotment.engine.records import JobRecord
from allotment.engine.sweep_records import SweepRecord
from allotment.engine.sweeps import no_such_sweep, spent, sweep_of
from allotment.model import commands as c
from allotment.model.errors import Code, Rejected
from allotment.model.grid import Parameters
from allotment.model.ids import SYSTEM, Actor, JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Instant
from allotment.model.sweeps import Goal, Sweep, SweepEnd
from allotment.model.tenancy import Visibility
from allotment.service.access import is_admin
from allotment.service.archive import Archive
from allotment.service.finding import Finding
from allotment.service.pipeline import Pipeline
from allotment.service.progress import MOST_METRICS
from allotment.service.sweep_view import SweepRow, SweepView, TrialView
from allotment.service.sweep_words import loss
from allotment.service.turns import Turns
from allotment.sweeps.draw import trials

FORGOTTEN = JobState.CANCELLED
"""What a trial is shown as whose end is not kept any more."""
LOOK_EVERY_S = 5.0
MOST_LISTED = 100

log = structlog.get_logger("allot.service")


class Sweeping:
    """The sweeps of one service."""

    def __init__(
        self,
        pipeline: Pipeline,
        finding: Finding,
        archive: Archive,
        turns: Turns,
        trouble: Callable[[JobId], str],
    ) -> None:
        """`trouble` says what keeps a study from proposing trials."""
        self._pipeline, self._state = pipeline, pipeline.state
        self._finding, self._archive, self._turns = finding, archive, turns
        self._trouble = trouble

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
        return await self.sweep(str(sweep.id), actor)

    # ── reading ─────────────────────────────────────────────────────────────────────────

    async def sweeps(self, actor: Actor) -> list[SweepRow]:
        """Return the newest sweeps, the newest first. One may have many trials: in turns."""
        newest = sorted(self._state.sweeps.values(), key=lambda sweep: -sweep.id)
        made: list[SweepRow] = []
        of = partial(self._row, actor=actor)
        async for rows in self._turns.over(newest[:MOST_LISTED], of, actor.user):
            made += rows
        return made

    async def sweep(self, ref: str, actor: Actor) -> SweepView:
        """Return one sweep with its trials. Raises Rejected."""
        sweep = self._find(ref, actor)
        return await self._turns.once(partial(self._view, sweep, actor), actor.user)

    def _view(self, sweep: SweepRecord, actor: Actor) -> SweepView:
        inside = self._sees(sweep, actor)
        found = self._trials(sweep, inside=inside)
        return SweepView(
            row=self._row(sweep, actor),
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

    def _row(self, sweep: SweepRecord, actor: Actor) -> SweepRow:
        gpu, cpu = spent(self._state, sweep, self._pipeline.clock.now())
        states = self._states(sweep)
        counts = Counter(state.value for state in states.values())
        best = self._best(sweep, states) if self._sees(sweep, actor) else None
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
            best=best,
        )

    # ── trials ──────────────────────────────────────────────────────────────────────────

    def _states(self, sweep: SweepRecord) -> dict[JobId, JobState]:
        """Return the state of each trial, by its id."""
        live = self._live(sweep)
        gone: Mapping[JobId, JobState] = {}
        if len(live) < sweep.trials:
            gone = self._archive.states(JobId(sweep.ids[0]), JobId(sweep.ids[-1]))
        return {
            JobId(each): live[each].state if each in live else gone.get(each, FORGOTTEN)
            for each in map(JobId, sweep.ids)
        }

    def _trials(self, sweep: SweepRecord, *, inside: bool) -> list[TrialView]:
        """Return the trials, the best first."""
        params = _all_params(sweep) if inside else [()] * sweep.trials
        found = self._states(sweep).items()
        made = [
            self._trial(sweep, id_, state, mine, inside=inside)
            for (id_, state), mine in zip(found, params, strict=True)
        ]
        return sorted(made, key=lambda each: _rank(sweep.sweep, each.value, each.index))

    def _best(self, sweep: SweepRecord, states: Mapping[JobId, JobState]) -> TrialView | None:
        """Return the trial with the best last value; None where there is no value yet."""
        values = ((self._last(sweep, id_)[1], index) for index, id_ in enumerate(states))
        known = [(value, index) for value, index in values if value is not None]
        if not known:
            return None
        _, index = min(known, key=lambda each: _rank(sweep.sweep, *each))
        id_ = JobId(sweep.ids[index])
        job = self._state.jobs.get(id_)
        array = job.spec.array if job is not None else None  # To draw all again takes long.
        params = array.params if array is not None else _all_params(sweep)[index]
        return self._trial(sweep, id_, states[id_], params, inside=True)

    def _trial(
        self,
        sweep: SweepRecord,
        id_: JobId,
        state: JobState,
        params: Parameters,
        *,
        inside: bool,
    ) -> TrialView:
        reached = sweep.reached.get(id_, [])
        step, value = self._last(sweep, id_) if inside else (0, None)
        return TrialView(
            job=id_,
            index=id_ - sweep.id,
            params=dict(params),
            state=state,
            ran_ms=self._ran_ms(sweep, id_),
            rung=len(reached),
            step=step,
            value=value,
            rungs=tuple(reached) if inside else (),
            stopped=loss(*sweep.stopped[id_]) if id_ in sweep.stopped else "",
        )

    def _ran_ms(self, sweep: SweepRecord, id_: JobId) -> int:
        job = self._state.jobs.get(id_)
        attempt = job.attempt if job is not None else None
        now = attempt.ran_until(self._pipeline.clock.now()) if attempt is not None else 0
        return sweep.ran.get(id_, 0) + now

    def _last(self, sweep: SweepRecord, id_: JobId) -> tuple[int, float | None]:
        """Return the newest step and value that a trial reported."""
        job = self._state.jobs.get(id_)
        progress, recorded = self._pipeline.progress, sweep.measured.get(id_, (0, None))
        if (now := progress.compared(id_)) is not None:
            return now
        told = progress.of(job) if job is not None else None
        return (max(recorded[0], told.step), recorded[1]) if told is not None else recorded

    def _hint(self, sweep: SweepRecord, found: list[TrialView]) -> str:
        """Return what keeps trials from being proposed, or compared."""
        metric = sweep.sweep.metric
        if not sweep.is_over and (trouble := self._trouble(sweep.id)):
            return trouble
        if not metric or any(trial.value is not None for trial in found):
            return ""
        others: dict[str, None] = {}
        for job in self._live(sweep).values():
            told = self._pipeline.progress.of(job)
            others |= dict.fromkeys(told.metrics if told is not None else ())
        if others:
            some = ", ".join(sorted(others)[:MOST_METRICS])
            return f"No trial reports {metric!r}; they report {some}."
        ran = any(trial.ran_ms > 60_000 for trial in found)
        return f"No trial has reported {metric!r} yet: docs/guide/progress.md." if ran else ""


def _all_params(sweep: SweepRecord) -> list[Parameters]:
    """Return the parameters of each trial; of those of a study that have none yet, none."""
    if not sweep.sweep.is_study:
        return trials(sweep.sweep)
    return [sweep.proposed.get(JobId(job), ()) for job in sweep.ids]


def _rank(sweep: Sweep, value: float | None, index: int) -> tuple[bool, float, int]:
    """Return what sorts trials: the best first, then those without a value."""
    sign = 1 if sweep.goal is Goal.MINIMIZE else -1
    return value is None, sign * (value or 0.0), index


def with_seed(sweep: Sweep | None, seed: int) -> Sweep | None:
    """Return a sweep with the seed of its draws, where it names none."""
    if sweep is None or sweep.seed is not None or not sweep.draws:
        return sweep
    return msgspec.structs.replace(sweep, seed=seed)
