"""The loop: stimuli in, durable records and effects out, one scheduling cycle after another.

Everything here runs on one event loop, so the engine has one caller at a time. A cycle has
a budget of decisions and the loop breathes between cycles, so no pass holds up the API.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter

import msgspec
import structlog

from allotment.engine.apply import apply
from allotment.engine.diagnose import diagnose
from allotment.engine.engine import Engine
from allotment.engine.evicted import for_whom
from allotment.engine.health import heartbeat
from allotment.engine.records import AttemptRecord, JobRecord
from allotment.engine.state import Image
from allotment.model import events as e
from allotment.model.commands import AnyCommand
from allotment.model.diagnosis import Exit
from allotment.model.effects import AnyEffect
from allotment.model.engines import Ability
from allotment.model.errors import AllotmentError, BackendError
from allotment.model.ids import SYSTEM, Actor, JobId, NodeId, TaskIndex
from allotment.model.quantity import HOUR, Instant, Millis
from allotment.model.reasons import StopCause
from allotment.model.reports import NodeReport, Seen, TaskReport
from allotment.service.abilities import check_able
from allotment.service.checkpoints import CheckpointWatch
from allotment.service.committer import Committer
from allotment.service.data.away import folder_away
from allotment.service.data.datasets import Datasets
from allotment.service.data.restoring import Restoring
from allotment.service.data.using import DataUses
from allotment.service.dispatcher import Dispatcher
from allotment.service.forever import forever
from allotment.service.held_content import LOOK_EVERY_S as CONTENT_LOOK_S
from allotment.service.held_content import HeldContent
from allotment.service.held_up import HeldUp
from allotment.service.host_workspace import HostWorkspace
from allotment.service.ports import (
    ArchivedJob,
    Backend,
    Clock,
    DeviceUse,
    Measurable,
    Report,
    Snapshot,
    Store,
)
from allotment.service.progress import (
    CLOSE_LOOK_S,
    NO_USES,
    TRIALS_EVERY_S,
    ProgressWatch,
    measures_closely,
    metric_of,
)
from allotment.service.progress import LOOK_EVERY_S as PROGRESS_LOOK_S
from allotment.service.reason_watch import LOOK_EVERY_S, ReasonWatch
from allotment.service.telemetry import Telemetry
from allotment.service.tracking.ports import Tracker
from allotment.service.tracking.tracking import Tracking
from allotment.service.wall import moved
from allotment.service.workspaces import Workspaces

BUDGET = 64
"""Decisions in one cycle."""
SNAPSHOT_EVERY = 20_000
"""Events between snapshots: bounds how much of the log a restart has to read."""
CHECKPOINT_LOOK_S = 0.5
LOG_TAIL = 64 * 1024
LONGEST_SLEEP_S = 60.0
CLOCK_LOOK_S = 1.0
STEP_MS = 2_000
"""By so much the wall clock has to be off before it was set: less is no news."""

log = structlog.get_logger("allot.service")


class Pipeline:
    """Drives the engine."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        backend: Backend,
        clock: Clock,
        own: HostWorkspace,
        tracker: Tracker | None = None,
    ) -> None:
        """Make it; `own` has the files of jobs that run where the service's disk is seen."""
        self.engine = engine
        self.state = engine.state
        self.clock = clock
        self.workspaces = workspaces = Workspaces(engine.state, backend, own)
        self._own = own
        self.telemetry = Telemetry()
        self.committer = Committer(store, self.telemetry, self._release)
        self.datasets = Datasets(engine.state, own.folders.root, self.command)
        restoring = Restoring(engine.state, self.datasets, self.command)
        self.uses = DataUses(engine.state, self.datasets, backend, restoring)
        self.tracking = Tracking(engine.state, tracker, clock.wall)
        self.dispatcher = Dispatcher(
            engine.state,
            backend,
            workspaces,
            self.telemetry,
            self.hear,
            self.uses,
            self.tracking,
        )
        self.checkpoints = CheckpointWatch(workspaces, engine.state.wall)
        self.progress = ProgressWatch(workspaces, engine.state.wall)
        self.reasons = ReasonWatch(engine.state)
        self.held_up = HeldUp(engine.state, self.dispatcher.brought)
        self._content = HeldContent(engine.state, backend, self.hear)
        self._store = store
        self._backend = backend
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._loops: list[asyncio.Task[None]] = []
        self._readings: set[asyncio.Task[None]] = set()
        self._snapshot_at = engine.state.seq
        self._progress_due_s = 0.0
        self._measuring: asyncio.Future[Mapping[NodeId, Sequence[DeviceUse]]] | None = None

    # ── stimuli ─────────────────────────────────────────────────────────────────────────

    async def command(self, command: AnyCommand, actor: Actor) -> list[e.Record]:
        """Carry out a command; durable on return.

        Raises Rejected: with the code `uncertain` it may still come true, else it will not.
        """
        self.committer.refuse_in_trouble()
        self.refuse_unable(command)
        records = self.engine.command(command, actor, self.clock.now())
        self.flush()
        if records:
            await self.committer.wait(records[-1].seq)
        return records

    def refuse_unable(self, command: AnyCommand) -> None:
        """Raise Rejected where no engine can do what a command asks for."""
        check_able(command, self.state, self._backend)

    async def together(self, work: Callable[[], None]) -> None:
        """Let `work` apply many commands as one group; durable on return."""
        try:
            work()
        finally:
            self.flush()
        await self.committer.wait(self.committer.taken)

    def apply(self, command: AnyCommand, actor: Actor) -> None:
        """Carry out one command of `together`. Raises Rejected."""
        self.refuse_unable(command)
        self.engine.command(command, actor, self.clock.now())

    def hear(self, report: Report) -> None:
        """Take a report, with times as the wall clock shows them.

        A failure is diagnosed first, from its output.
        """
        if isinstance(report, TaskReport):
            self.held_up.hear(report)
            if report.seen is Seen.ENDED:
                self._heard_end(moved(report, -self.state.wall_ms))
                return
        report = moved(report, -self.state.wall_ms)
        beats = heartbeat(self.state, report) if isinstance(report, NodeReport) else []
        for told in (report, *beats):
            self.engine.report(told, self.clock.now())
        self.flush()

    def look_at_the_clock(self) -> None:
        """Record it if the machine's clock was set."""
        now = self.clock.now()
        by_ms = self.clock.wall() - self.state.wall(now)
        if abs(by_ms) >= STEP_MS:
            log.warning("the machine's clock was set", seconds=round(by_ms / 1000))
            self.engine.emit(e.ClockStepped(Millis(by_ms)), SYSTEM, now)
            self.flush()

    def _heard_end(self, report: TaskReport) -> None:
        job, ok = self.state.jobs.get(report.key.job), report.exit and report.exit.ok
        if ok and (job is None or (not metric_of(job) and self._is_last_noted(job))):
            self.engine.report(report, self.clock.now())
            self.flush()
            return
        reading = asyncio.get_running_loop().create_task(self._end(report))
        self._readings.add(reading)
        reading.add_done_callback(self._readings.discard)

    def _is_last_noted(self, job: JobRecord) -> bool:
        """Note a job's last checkpoint, unless to look for it may take long: return whether."""
        try:
            found = self.checkpoints.look_now(job)
            for checkpoint in found or ():
                self.engine.report(checkpoint, self.clock.now())
        except Exception:
            log.exception("a job's last checkpoint cannot be read", job=job.id)
            return True
        return found is not None

    async def _end(self, report: TaskReport) -> None:
        """Let the engine know that a task is over; what is found out about it may be less."""
        try:
            job = self.state.jobs.get(report.key.job)
            for checkpoint in await self.checkpoints.last_of(job) if job is not None else ():
                self.engine.report(checkpoint, self.clock.now())
            if job is not None and report.key.index == 0:
                await self._note_trial(job)
            if report.exit and not report.exit.ok and report.diagnosis is None:
                report = await self._diagnosed(report, report.exit)
        except Exception:
            log.exception("the end of a task is not examined", task=str(report.key))
        self.engine.report(report, self.clock.now())
        self.flush()

    async def _note_trial(self, job: JobRecord) -> None:
        """Note what a job told last, where it is a trial of a sweep."""
        told = await self.progress.last_of(job, self.state)
        if told is not None:
            self.engine.report(told, self.clock.now())

    async def _diagnosed(self, report: TaskReport, exit_: Exit) -> TaskReport:
        tail = b""
        for stream in ("stdout", "stderr"):
            try:
                chunk = await self._backend.read_log(report.key, stream, -LOG_TAIL, LOG_TAIL)
            except BackendError:
                continue
            tail += chunk.data
        job = self.state.jobs.get(report.key.job)
        attempt = job.attempt if job else None
        if job is None or attempt is None:
            return report
        role, _ = job.spec.role_of(report.key.index)
        found = folder_away(self.state, job, report.key.index, exit_) or diagnose(
            exit_,
            tail.decode(errors="replace"),
            memory_limit=role.resources.memory,
            disk_limit=role.resources.disk,
            pids_limit=self.state.config.limits.task_pids,
            stopped_by=_stopped_by(attempt, report),
        )
        found = for_whom(self.state, job, found)
        return msgspec.structs.replace(report, diagnosis=found)

    # ── out ─────────────────────────────────────────────────────────────────────────────

    def flush(self) -> None:
        """Hand over what was recorded, and wake the scheduler."""
        records, effects = self.engine.take()
        if not records:
            return
        for record in records:
            self._count(record)
        self.committer.add(records, effects)
        self._wake.set()

    def _release(self, effects: list[AnyEffect]) -> None:
        self.dispatcher.send(effects)

    def _count(self, record: e.Record) -> None:
        event = record.event
        counts = self.telemetry.decisions
        kind = type(event).__name__
        counts[kind] = counts.get(kind, 0) + 1
        if isinstance(event, e.AttemptStarted):
            job = self.state.jobs[event.job]
            self.telemetry.starts.add(record.at - job.attempts[-1].placed_at)
            if event.attempt == 1:
                self.telemetry.waits.add(record.at - job.submitted_at)
        elif isinstance(event, (e.JobSucceeded, e.JobFailed, e.JobCancelled, e.JobTimedOut)):
            job = self.state.jobs[event.job]
            key = (job.spec.tenant, job.state.value)
            self.telemetry.finished[key] = self.telemetry.finished.get(key, 0) + 1

    # ── loops ───────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Begin scheduling."""
        loop = asyncio.get_running_loop()
        self._loops = [
            loop.create_task(self._schedule()),
            *(
                loop.create_task(forever(step, pause_s, what))
                for step, pause_s, what in (
                    (self._watch_checkpoints, CHECKPOINT_LOOK_S, "checkpoints"),
                    (self._watch_progress, CLOSE_LOOK_S, "progress"),
                    (self._watch_trials, TRIALS_EVERY_S, "trials"),
                    (self._watch_clock, CLOCK_LOOK_S, "clock"),
                    (self._watch_content, CONTENT_LOOK_S, "content of nodes"),
                    (self._watch_reasons, LOOK_EVERY_S, "reasons"),
                    (self._forget_old, HOUR / 1000, "old jobs"),
                )
            ),
        ]
        self._wake.set()

    async def stop(self) -> None:
        """Stop scheduling, make everything durable, and leave tasks alone.

        The backend must be silent by now: its news is observed at the next start.
        """
        for task in (*self._loops, *self._readings):
            task.cancel()
        await asyncio.gather(*self._loops, *self._readings, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()
        await self.dispatcher.close()
        self.checkpoints.close()
        self.progress.close()
        if self._measuring is not None:
            self._measuring.cancel()
        await self.committer.idle()
        if not self.committer.trouble:
            try:
                await self._snapshot()
            except AllotmentError:
                log.exception("the state is not kept; the next start reads more of the log")
        self.committer.close()

    async def _schedule(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._pass()
            except Exception:
                log.exception("scheduling failed; trying again in a second")
                await asyncio.sleep(1)
                self._wake.set()

    async def _pass(self) -> None:
        """Cycle until nothing more can be done, breathing in between."""
        self.engine.tick(self.clock.now())
        self.flush()
        self._content.look_for_new(self.clock.now())
        while True:
            began = perf_counter()
            again = self.engine.cycle(self.clock.now(), BUDGET)
            self.telemetry.cycles.add((perf_counter() - began) * 1e3)
            self.flush()
            if not again:
                break
            await asyncio.sleep(0)
        self._archive()
        self._arm()
        if self.state.seq - self._snapshot_at >= SNAPSHOT_EVERY:
            await self._snapshot()

    def _arm(self) -> None:
        """Wake up when the next timer is due."""
        if self._timer is not None:
            self._timer.cancel()
        due = self.engine.next_due(self.clock.now())
        if due is None:
            return
        seconds = min(LONGEST_SLEEP_S, max(0, due - self.clock.now()) / 1000)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._wake.set)

    def _archive(self) -> None:
        """Let the oldest finished jobs go to the store's keeping."""
        jobs = self.state.jobs
        # Who saves outputs and checkpoints looks for the job in the state.
        leaving = [
            job
            for job in self.engine.archive(self.clock.now())
            if not (jobs[job].has_to_save or jobs[job].has_to_keep)
        ]
        if not leaving:
            return
        archived = [archive_of(self.engine, job) for job in leaving]
        for job in leaving:
            self.engine.emit(e.JobArchived(job), SYSTEM, self.clock.now())
        records, effects = self.engine.take()
        self.committer.add(records, effects, archived)

    async def _snapshot(self) -> None:
        """Keep an image of the state, once all it rests on is durable."""
        if self.state.seq != self.committer.taken:
            # An event broke off half-way: nobody will write it, so nobody may wait for it.
            log.error("the state is not kept: it holds what was never recorded")
            return
        self._snapshot_at = self.state.seq
        snapshot = Snapshot(self.state.seq, msgspec.msgpack.encode(self.state.image()))
        if snapshot.seq == 0:
            return
        await self.committer.wait(snapshot.seq)
        await self.committer.in_thread(lambda: self._store.save_snapshot(snapshot))

    async def _watch_checkpoints(self) -> None:
        for report in await self.checkpoints.look(self.state):
            self.hear(report)

    async def _watch_progress(self) -> None:
        """Look at what jobs tell of their steps; often where that decides which run at once."""
        closely, now_s = measures_closely(self.state), asyncio.get_running_loop().time()
        if not closely and now_s < self._progress_due_s:
            return
        self._progress_due_s = now_s + PROGRESS_LOOK_S - CLOSE_LOOK_S / 2
        uses = await self._device_uses() if closely else NO_USES
        for report in await self.progress.look(self.state, uses):
            self.hear(report)

    async def _device_uses(self) -> Mapping[NodeId, Sequence[DeviceUse]]:
        """Measure the devices; return none where that is not possible, or takes long."""
        backend = self._backend
        if Ability.MEASURES not in backend.abilities or not isinstance(backend, Measurable):
            return NO_USES
        if self._measuring is None:
            self._measuring = asyncio.ensure_future(backend.device_uses())
        await asyncio.wait((self._measuring,), timeout=CLOSE_LOOK_S)
        if not self._measuring.done():
            return NO_USES  # A driver that does not answer is not asked once more meanwhile.
        measured, self._measuring = self._measuring, None
        return NO_USES if measured.exception() is not None else measured.result()

    async def _watch_trials(self) -> None:
        if not self.state.sweeps or self.committer.trouble:
            return
        for report in await self.progress.look_at_trials(self.state):
            self.hear(report)
            await asyncio.sleep(0)  # Each may be compared with ten thousand others.

    async def _watch_clock(self) -> None:
        if not self.committer.trouble:
            self.look_at_the_clock()

    async def _watch_content(self) -> None:
        if not self.committer.trouble:
            self._content.look(self.clock.now())

    async def _watch_reasons(self) -> None:
        """Record for what jobs wait, for their history. Nothing is scheduled for it."""
        now = self.clock.now()
        found = [] if self.committer.trouble else self.reasons.look(now)
        for event in found:
            self.engine.emit(event, SYSTEM, now)
        if found:
            self.flush()

    async def _forget_old(self) -> None:
        """Forget what is older than the configuration wants it kept."""
        before = Instant(self.clock.now() - self.state.config.limits.keep_history_ms)
        # History is forgotten up to the newest snapshot and no further.
        if self.state.seq > self._snapshot_at and not self.committer.trouble:
            await self._snapshot()
        # Beside the commits: it takes long, in many short transactions.
        gone = await asyncio.to_thread(self._store.prune, before)
        for job in gone:
            await self._backend.forget(job)
            await self._own.forget(job)


def _stopped_by(attempt: AttemptRecord, report: TaskReport) -> StopCause | None:
    """Return why a task was told to stop, with its gang or as surplus of it; None if not.

    A task that failed before that, and is kept for a look, did not fail because of it.
    """
    index = TaskIndex(report.key.index)
    if attempt.task(index).held_at:
        return None
    if attempt.stop is not None:
        return attempt.stop.cause
    return StopCause.EVICTED if attempt.is_surplus(index) else report.stopped_for


def archive_of(engine: Engine, job_id: JobId) -> ArchivedJob:
    """Return the archive's entry of a finished job."""
    job = engine.state.jobs[job_id]
    return ArchivedJob(
        id=job.id,
        name=job.spec.name,
        tenant=job.spec.tenant,
        user=job.owner.user,
        state=job.state,
        submitted_at=job.submitted_at,
        finished_at=job.finished_at,
        key=job.key,
        document=msgspec.msgpack.encode(job),
    )


def load(engine: Engine, store: Store) -> None:
    """Bring an engine's fresh state up to the end of the log: snapshot, then the tail."""
    snapshot = store.snapshot()
    if snapshot is not None:
        image = msgspec.msgpack.decode(snapshot.data, type=Image)
        engine.state = type(engine.state).from_image(image, engine.state.policies)
    for record in store.records(after=engine.state.seq):
        apply(engine.state, record)
