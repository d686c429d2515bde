"""The service: every use case, as the API offers it."""

import asyncio
import os
import re
import zlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from allotment.core.ports import Policies
from allotment.engine.engine import Engine
from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.errors import AllotmentError, Code, Rejected
from allotment.model.ids import SYSTEM, Actor, AttemptNo, JobId, NodeId, Seq, TaskIndex, TaskKey
from allotment.model.lifecycle import JobState, TaskState
from allotment.model.quantity import HOUR, Instant
from allotment.model.reasons import Blocked
from allotment.model.spec import Dependency, EndKind, JobSpec
from allotment.model.tenancy import Config
from allotment.service import views as v
from allotment.service.access import may_administer, may_change
from allotment.service.budget_read import budgets_now
from allotment.service.cells_read import cell_tree
from allotment.service.cells_view import CellTree
from allotment.service.estimate_view import Accuracy, StartEstimate
from allotment.service.estimating import Estimating
from allotment.service.fairness import ask, weigh
from allotment.service.fairness_view import FairnessReport
from allotment.service.folders import account_of, belongs_to, check_paths
from allotment.service.hardware import hardware_views, part_of, places_of, reports_of
from allotment.service.hardware_view import HardwareView, HealthNote
from allotment.service.history import Historian
from allotment.service.host_ports import port_is_free
from allotment.service.launch import Folders, redacted
from allotment.service.objectives_view import ObjectivesReport
from allotment.service.pipeline import Pipeline, load
from allotment.service.ports import (
    ArchivedJob,
    Backend,
    Clock,
    Enterable,
    Forecast,
    JobFilter,
    LogChunk,
    Store,
)
from allotment.service.queries import (
    SpecWriter,
    job_row,
    job_view,
    node_views,
    task_name,
    tenant_views,
)
from allotment.service.queue_read import queue_trees
from allotment.service.queue_view import TenantQueues
from allotment.service.reconciler import reconcile
from allotment.service.reconfigure import ConfigFiles, Reconfiguring
from allotment.service.reservation_view import ReservationNote, ReservationView
from allotment.service.reservations import command_of, reservation_views
from allotment.service.statistics_view import Statistics
from allotment.service.usage import by_of
from allotment.service.usage_view import UsageReport
from allotment.service.wait_view import WaitHistory, waited_for
from allotment.service.why import why
from allotment.service.words import in_words

FOLLOW_POLL_S = 0.1


class Service:
    """One running Allotment."""

    def __init__(  # noqa: PLR0913 - the composition root's one call
        self,
        *,
        store: Store,
        backend: Backend,
        clock: Clock,
        policies: Policies,
        state_dir: str,
        write_spec: SpecWriter,
        version: str,
        config_files: ConfigFiles,
        forecast: Forecast | None = None,
    ) -> None:
        engine = Engine(State(policies), port_is_free)
        load(engine, store)
        self._store = store
        self._historian = Historian(store)
        self._weighing = asyncio.Lock()
        self._backend = backend
        self._clock = clock
        self._write_spec = write_spec
        self._version = version
        self._started_at = clock.now()
        self.folders = Folders(state_dir)
        self.pipeline = Pipeline(engine, store, backend, clock, self.folders)
        self.reconfiguring = Reconfiguring(self.pipeline, config_files)
        self.estimating = Estimating(self.pipeline, store, forecast)
        self.ready = False

    @property
    def state(self) -> State:
        return self.pipeline.state

    @property
    def trouble(self) -> str:
        """What keeps the event log from being written; empty when all is well."""
        return self.pipeline.committer.trouble

    def now(self) -> Instant:
        return self._clock.now()

    # ── life ────────────────────────────────────────────────────────────────────────────

    async def start(self, config: Config) -> None:
        """Apply the configuration if it changed, meet the backend, begin scheduling."""
        await self.pipeline.command(c.ApplyConfig(config), SYSTEM)
        # Two services of one host begin in different places of the same range of ports.
        self.state.ports.begin_at(zlib.crc32(self.folders.root.encode()) + self.now())
        await self._backend.start(self.pipeline.hear)
        await self._skip_used_ids()
        await reconcile(self.pipeline, self._backend)
        self.pipeline.start()
        self.ready = True

    async def _skip_used_ids(self) -> None:
        """Give no id again that the backend knows from books that were lost or put back."""
        highest = await self._backend.highest_job()
        if highest >= self.state.next_job:
            skipped = e.JobIdsSkipped(JobId(highest + 1))
            self.pipeline.engine.emit(skipped, SYSTEM, self.now())
            self.pipeline.flush()

    async def stop(self) -> None:
        """Stop; tasks run on and are adopted at the next start."""
        self.ready = False
        await self._backend.close()
        await self.pipeline.stop()
        self._store.close()

    async def backup(self, target: str) -> None:
        """Write a consistent copy of the event log while in use."""
        await self.pipeline.committer.idle()
        await self.pipeline.committer.in_thread(lambda: self._store.backup(target))

    # ── wishes ──────────────────────────────────────────────────────────────────────────

    async def submit(self, command: c.SubmitJob, actor: Actor) -> v.Submitted:
        """Accept a job; durable on return. Raises Rejected."""
        if command.key and (known := self._known(actor, command.key)) is not None:
            # It may be on its way to the disk still, with another request that has the key.
            await self.pipeline.committer.wait(self.state.seq)
            return known
        command = self._prepared(command, actor)
        records = await self.pipeline.command(command, actor)
        accepted = [
            record.event for record in records if isinstance(record.event, e.JobSubmitted)
        ]
        ids = tuple(event.job for event in accepted)
        job = self.state.jobs.get(ids[0])
        state = job.state if job else JobState.QUEUED
        return v.Submitted(ids[0], ids, command.spec.name, state, accepted[0].warnings)

    def _prepared(self, command: c.SubmitJob, actor: Actor) -> c.SubmitJob:
        """Complete a job and check what can be checked before the engine sees it."""
        spec = self._complete(command.spec, actor)
        warnings = command.warnings
        if spec.image:
            warnings += (
                f"image: {spec.image} cannot be used by the {self._backend.name} backend yet; "
                "the job runs on the machine's own software.",
            )
        check_paths(spec, account_of(actor))
        return msgspec.structs.replace(command, spec=spec, warnings=warnings)

    async def dry_run(self, command: c.SubmitJob, actor: Actor) -> StartEstimate:
        """Say whether, where and when a job would start. Submits nothing. Raises Rejected."""
        return await self.estimating.dry_run(self._prepared(command, actor), actor)

    async def start_of(self, job: JobId) -> StartEstimate:
        """Say when a job starts, as a range and with its grounds. Raises Rejected."""
        return await self.estimating.start_of(self._record(job))

    async def accuracy(self, since: int) -> Accuracy:
        """Say how good the start estimates were that were given since then."""
        await self.pipeline.committer.wait(self.state.seq)
        return await self._historian.accuracy(since)

    def _known(self, actor: Actor, key: str) -> v.Submitted | None:
        """Find what an idempotency key of this user made before."""
        job_id = self.state.keys.get((actor.user, key))
        if job_id is not None:
            job = self.state.jobs[job_id]
            ids = self._array(job)
            return v.Submitted(
                job.id, ids, job.spec.name, job.state, job.warnings, repeated=True
            )
        old = self._store.archived_by_key(actor.user, key)
        if old is None:
            return None
        return v.Submitted(old.id, (old.id,), old.name, old.state, repeated=True)

    @staticmethod
    def _array(job: JobRecord) -> tuple[JobId, ...]:
        size = job.spec.array.size if job.spec.array else 1
        return tuple(JobId(job.id + index) for index in range(size))

    def _complete(self, spec: JobSpec, actor: Actor) -> JobSpec:
        """Fill in what depends on who submits, and settle dependencies on archived jobs."""
        if not spec.tenant:
            spec = msgspec.structs.replace(spec, tenant=self.default_tenant(actor))
        if not any(dependency.job not in self.state.jobs for dependency in spec.depends_on):
            return spec
        kept = tuple(d for d in spec.depends_on if not self._archived_and_met(d))
        return msgspec.structs.replace(spec, depends_on=kept)

    def _archived_and_met(self, dependency: Dependency) -> bool:
        if dependency.job in self.state.jobs:
            return False
        old = self._store.archived(dependency.job)
        if old is None:
            return False
        if dependency.end is EndKind.ANY or old.state is JobState.SUCCEEDED:
            return True
        raise Rejected(
            Code.BAD_DEPENDENCY,
            f"It is to start after job {old.id} succeeds, but that job {old.state.value}.",
            "Use `end: any`, or depend on another job.",
        )

    async def act(self, command: c.AnyCommand, actor: Actor) -> None:
        """Carry out a wish about a job or a node; durable on return. Raises Rejected."""
        match command:
            case (
                c.DrainNode()
                | c.UndrainNode()
                | c.DeclareHealth()
                | c.ReserveNodes()
                | c.EndReservation()
                | c.ApplyConfig()
            ):
                may_administer(actor)
            case c.SubmitJob():
                await self.submit(command, actor)
                return
            case _:
                job = self.state.jobs.get(command.job)
                if job is None and self._store.archived(command.job) is not None:
                    raise Rejected(Code.WRONG_STATE, f"Job {command.job} finished long ago.")
                if job is not None:
                    may_change(actor, job)
        if isinstance(command, c.EditJob):
            check_paths(command.spec, account_of(actor))
            spec = self._complete(command.spec, actor)
            command = msgspec.structs.replace(command, spec=spec)
        await self.pipeline.command(command, actor)

    # ── finding ─────────────────────────────────────────────────────────────────────────

    def resolve(self, ref: str, actor: Actor) -> JobId:
        """Find the job that an id, `last`, a name or a unique prefix means. Raises Rejected."""
        if ref.isdecimal() and len(ref) < 19:
            job_id = JobId(int(ref))
            if job_id in self.state.jobs or self._store.archived(job_id) is not None:
                return job_id
        if ref == "last":
            return self._last(actor)
        named = [job.id for job in self.state.jobs.values() if job.spec.name == ref]
        if named:
            return max(named)
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,128}", ref):
            raise Rejected(Code.NO_SUCH_JOB, f"{ref[:60]!r} cannot be the name of a job.")
        starting = [
            job.id
            for job in self.state.jobs.values()
            if job.spec.name.startswith(ref) or str(job.id).startswith(ref)
        ]
        if len(starting) > 1:
            some = ", ".join(
                f"{job} ({self.state.jobs[job].spec.name})" for job in starting[:6]
            )
            raise Rejected(
                Code.AMBIGUOUS_JOB,
                f"Several jobs begin with {ref}: {some}.",
                "Give more of it.",
            )
        if starting:
            return starting[0]
        old = self._store.archived_page(JobFilter(name=ref), 1)
        if old:
            return old[0].id
        raise Rejected(
            Code.NO_SUCH_JOB,
            f"There is no job {ref}.",
            "See `allot ps --all` for all there are.",
        )

    def _last(self, actor: Actor) -> JobId:
        mine = [job.id for job in self.state.jobs.values() if job.owner.user == actor.user]
        if mine:
            return max(mine)
        old = self._store.archived_page(JobFilter(user=actor.user), 1)
        if old:
            return old[0].id
        raise Rejected(Code.NO_SUCH_JOB, f"User {actor.user} has submitted no job yet.")

    def _record(self, job: JobId) -> JobRecord:
        """Give a job's record, live or archived. Raises Rejected."""
        live = self.state.jobs.get(job)
        if live is not None:
            return live
        old = self._store.archived(job)
        if old is None:
            raise Rejected(Code.NO_SUCH_JOB, f"There is no job {job}.", "See `allot ps --all`.")
        return _unpack(old)

    def default_tenant(self, actor: Actor) -> str:
        """Choose the tenant of a job that names none: the user's own, else the default."""
        for tenant in self.state.config.tenants:
            if actor.user in tenant.users or set(actor.groups) & set(tenant.groups):
                return tenant.name
        tenants = self.state.config.tenants
        return self.state.config.default_tenant or (tenants[0].name if tenants else "")

    # ── reading ─────────────────────────────────────────────────────────────────────────

    def page(  # noqa: PLR0913 - one argument a filter, all by name
        self,
        *,
        tenant: str = "",
        user: str = "",
        name: str = "",
        states: Sequence[JobState] = (),
        finished: bool = False,
        limit: int = 100,
        before: JobId | None = None,
    ) -> tuple[list[v.JobRow], JobId | None]:
        """List jobs, newest first: the live ones, with `finished` also the archived."""
        now = self.now()
        rows: list[v.JobRow] = []

        def wanted(job: JobRecord) -> bool:
            return (
                (before is None or job.id < before)
                and (not tenant or job.spec.tenant == tenant)
                and (not user or job.owner.user == user)
                and (not name or job.spec.name.startswith(name))
                and (not states or job.state in states)
                and (finished or not job.state.finished or now - job.finished_at < HOUR)
            )

        for job_id in sorted(self.state.jobs, reverse=True):
            job = self.state.jobs[job_id]
            if wanted(job):
                rows.append(job_row(self.state, job, now, explain=True))
                if len(rows) > limit:
                    break
        if finished and len(rows) <= limit:
            rows += self._old_rows(
                rows, JobFilter(tenant, user, name, tuple(states), before), limit
            )
        more = rows[limit - 1].id if len(rows) > limit else None
        return rows[:limit], more

    def _old_rows(self, rows: list[v.JobRow], which: JobFilter, limit: int) -> list[v.JobRow]:
        old = self._store.archived_page(which, limit + 1 - len(rows))
        seen = {row.id for row in rows}
        return [
            job_row(self.state, _unpack(job), self.now()) for job in old if job.id not in seen
        ]

    def job(self, job: JobId, actor: Actor) -> v.JobView:  # noqa: ARG002 - for rights to come
        """Give the full picture of one job. Raises Rejected."""
        record = self._record(job)
        return job_view(self.state, record, self.now(), self.folders, self._write_spec)

    def spec_of(self, job: JobId, actor: Actor) -> JobSpec:
        """Give a job's spec, secrets included, to who may change it. Raises Rejected."""
        record = self._record(job)
        if record.spec.secrets:
            may_change(actor, record)
        return (
            msgspec.structs.replace(record.spec, array=None)
            if record.spec.array
            else record.spec
        )

    def why(self, job: JobId) -> Blocked | None:
        """Say why a job waits; None when it does not."""
        record = self.state.jobs.get(job)
        return why(self.state, record, self.now()) if record else None

    async def waits(self, job: JobId) -> WaitHistory:
        """Tell for what a job waited so far, live or archived. Raises Rejected."""
        record, now = self._record(job), self.now()
        if not self.trouble:  # Otherwise what is on disk has to do.
            await self.pipeline.committer.wait(self.state.seq)
        found = tuple(await self._historian.stretches(job, self._end_of, now))
        sums = waited_for(found)
        return WaitHistory(
            job=job,
            name=record.spec.name,
            state=record.state,
            why=self.why(job),
            waited_ms=sum(sums.values()),
            waited_for=sums,
            stretches=found,
        )

    def _end_of(self, need: Dependency) -> Instant | None:
        """Say when a job was over that another waits for; None while it is not."""
        live = self.state.jobs.get(need.job)
        if live is not None:
            return live.finished_at if live.state.finished else None
        old = self._store.archived(need.job)
        return old.finished_at if old is not None else Instant(0)

    def nodes(self) -> list[v.NodeView]:
        return node_views(self.state)

    def hardware(self) -> list[HardwareView]:
        """List the nodes and devices that are suspect or bad."""
        return hardware_views(self.state)

    async def note_health(self, note: HealthNote, actor: Actor) -> list[HardwareView]:
        """Take an administrator's word on hardware, or a probe's; say how it is now.

        Durable on return. Raises Rejected.
        """
        may_administer(actor)
        places = places_of(self.state, note.where)
        if note.source == "admin":
            await self.pipeline.command(c.DeclareHealth(places, note.ok, note.because), actor)
        else:
            for report in reports_of(note, places, actor.user):
                self.pipeline.hear(report)
            await self.pipeline.committer.wait(self.state.seq)
        return hardware_views(self.state, map(part_of, places))

    def node_id(self, name: str) -> NodeId:
        """Find a node by its name. Raises Rejected."""
        for node in self.state.config.nodes:
            if node.name == name:
                return node.id
        names = ", ".join(node.name for node in self.state.config.nodes[:10])
        raise Rejected(Code.NO_SUCH_NODE, f"There is no node {name}.", f"Nodes here: {names}.")

    def reservations(self) -> list[ReservationView]:
        """List the nodes that are set aside, the earliest first."""
        return reservation_views(self.state, self.pipeline.clock.now())

    async def reserve(self, note: ReservationNote, actor: Actor) -> list[ReservationView]:
        """Set nodes aside; durable on return. Raises Rejected."""
        await self.act(command_of(note, self.node_id), actor)
        return self.reservations()

    def tenants(self) -> list[v.TenantView]:
        return tenant_views(self.state)

    def queues(self, tenant: str = "") -> list[TenantQueues]:
        """Give the tree of queues of each tenant, or of one. Raises Rejected."""
        return queue_trees(self.state, self.now(), tenant)

    def cells(self, level: str, under: str) -> CellTree:
        """Give the tree of cells. Raises Rejected."""
        return cell_tree(self.state, level, under)

    def health(self) -> v.Health:
        return v.Health(
            version=self._version,
            pid=os.getpid(),
            state_dir=self.folders.root,
            backend=self._backend.name,
            ready=self.ready and not self.trouble,
            trouble=self.trouble,
            jobs=len(self.state.jobs),
            events=self.state.seq,
            started_at=self._started_at,
        )

    # ── events ──────────────────────────────────────────────────────────────────────────

    def events(self, job: JobId | None, after: int, limit: int) -> list[v.EventView]:
        """Give durable events in order, of one job or of all."""
        if job is not None:
            self._record(job)
            records = self._store.records_of(job, Seq(after), limit)
        else:
            records = list(self._store.records(Seq(after), limit))
        return [self._event(record) for record in records]

    async def follow_events(self, job: JobId | None, after: int) -> AsyncIterator[v.EventView]:
        """Give events as they become durable; ends when that job has finished."""
        changed = asyncio.Event()
        # A job may be over in memory before its last event is durable, and so told.
        last: Seq | None = None
        self.pipeline.committer.watch(changed)
        try:
            while True:
                changed.clear()
                found = self.events(job, after, 1000)
                for event in found:
                    after = event.seq
                    yield event
                if found:
                    continue
                if job is not None and self._record(job).state.finished:
                    last = last or self.state.seq
                    if self.pipeline.committer.durable >= last:
                        return
                await changed.wait()
        finally:
            self.pipeline.committer.unwatch(changed)

    def _event(self, record: e.Record) -> v.EventView:
        event = record.event
        job = record.job
        secrets: tuple[tuple[str, str], ...] = ()
        detail = msgspec.to_builtins(event)
        if isinstance(event, (e.JobSubmitted, e.JobEdited)):
            secrets = event.spec.secrets
            detail["spec"] = self._write_spec(event.spec)
            if event.spec.array is not None:
                detail["array"] = msgspec.to_builtins(event.spec.array)
        elif job is not None and job in self.state.jobs:
            secrets = self.state.jobs[job].spec.secrets
        return v.EventView(
            seq=record.seq,
            at=record.at,
            kind=type(event).__name__,
            job=job,
            user=record.actor.user,
            groups=record.actor.groups,
            text=redacted(in_words(event, self.state), secrets),
            detail=detail,
        )

    async def statistics(self, since: int, until: int | None = None) -> Statistics:
        """Sum up a stretch of the history, up to now when `until` is None. Raises Rejected."""
        next_job, last = await self._on_disk(until)
        return await self._historian.statistics(since, last, next_job)

    async def usage(
        self, since: int, until: int | None = None, by: str = "tenant"
    ) -> UsageReport:
        """Sum up who held what in a stretch, up to now when `until` is None.

        `by` names what a row is about, parted by commas. Raises Rejected.
        """
        rows = by_of(by)
        next_job, last = await self._on_disk(until)
        found = await self._historian.usage(since, last, next_job, rows)
        budgets = budgets_now(self.state, self.now())
        return msgspec.structs.replace(found, budgets=budgets)

    async def objectives(self, since: int, until: int | None = None) -> ObjectivesReport:
        """Say whether promises were kept, up to now when `until` is None. Raises Rejected."""
        next_job, last = await self._on_disk(until)
        return await self._historian.objectives(since, last, next_job)

    async def _on_disk(self, until: int | None) -> tuple[JobId, int]:
        """Wait until all that happened so far can be read; give the next id and the end."""
        next_job, newest = self.state.next_job, self.state.seq
        now = self.now()
        # Its own writes are in it: what happened before the question is on disk.
        await self.pipeline.committer.wait(newest)
        return next_job, now if until is None else min(until, now)

    async def fairness(self) -> FairnessReport:
        """Say what each tenant deserves now, and has."""
        asked = ask(self.state, self.now())
        async with self._weighing:
            return await asyncio.to_thread(weigh, asked)

    # ── output ──────────────────────────────────────────────────────────────────────────

    def task_index(
        self, job: JobId, attempt: int | None, task: str
    ) -> tuple[AttemptNo, TaskIndex]:
        """Find a task of an attempt (the newest when None) by name or number."""
        record = self._record(job)
        if not record.attempts:
            raise Rejected(
                Code.NO_SUCH_TASK, f"Job {job} has not started yet.", f"See `allot why {job}`."
            )
        no = attempt or record.attempts[-1].no
        if no > len(record.attempts):
            raise Rejected(
                Code.NO_SUCH_TASK, f"Job {job} has only {len(record.attempts)} attempt(s)."
            )
        names = [task_name(record.spec, index) for index in range(record.spec.task_count)]
        if task in names:
            return AttemptNo(no), TaskIndex(names.index(task))
        if task.isdecimal() and int(task[:9]) < len(names):
            return AttemptNo(no), TaskIndex(int(task[:9]))
        raise Rejected(
            Code.NO_SUCH_TASK,
            f"Job {job} has no task {task[:60]!r}.",
            f"Tasks: {', '.join(names[:12])}.",
        )

    def may_read_output(self, job: JobId, actor: Actor) -> None:
        """Raise Rejected unless this actor may read what a job's tasks wrote."""
        may_change(actor, self._record(job))

    async def read_log(
        self,
        job: JobId,
        attempt: AttemptNo,
        index: TaskIndex,
        stream: str,
        offset: int,
        size: int,
    ) -> LogChunk:
        """Read a piece of a task's output, secrets blotted out."""
        chunk = await self._backend.read_log(TaskKey(job, attempt, index), stream, offset, size)
        return LogChunk(self._blot(job, chunk.data), chunk.next)

    async def follow_log(
        self, job: JobId, attempt: AttemptNo, index: TaskIndex, stream: str, offset: int
    ) -> AsyncIterator[LogChunk]:
        """Give a task's output as it comes; ends when the task is gone and all is read."""
        while True:
            over = self._task_over(job, attempt, index)
            chunk = await self.read_log(job, attempt, index, stream, offset, 64 * 1024)
            offset = chunk.next
            if chunk.data:
                yield chunk
            elif over:
                return
            else:
                await asyncio.sleep(FOLLOW_POLL_S)

    def _task_over(self, job: JobId, attempt: AttemptNo, index: TaskIndex) -> bool:
        record = self._record(job)
        current = record.attempt
        if current is None or current.no != attempt:
            return True
        return current.task(index).state is TaskState.ENDED

    def _blot(self, job: JobId, data: bytes) -> bytes:
        for _, value in self._record(job).spec.secrets:
            if len(value) >= 4:
                data = data.replace(value.encode(), b"***")
        return data

    def outputs(self, job: JobId, actor: Actor) -> list[v.OutputFile]:
        """List the files a job left in its output folders, per attempt."""
        record = self._record(job)
        may_change(actor, record)
        found: list[v.OutputFile] = []
        for attempt in record.attempts:
            root = Path(self.folders.output(job, record.spec, attempt.no))
            if not belongs_to(root, account_of(record.owner)):
                continue
            for path in sorted(root.rglob("*")):
                if path.is_file() and not path.is_symlink():
                    stat = path.stat()
                    found.append(
                        v.OutputFile(
                            attempt.no,
                            path.relative_to(root).as_posix(),
                            stat.st_size,
                            stat.st_mtime_ns // 1_000_000,
                        )
                    )
        return found

    def output_path(self, job: JobId, attempt: int, path: str, actor: Actor) -> Path:
        """Give the host path of one output file, never one outside the output folder."""
        record = self._record(job)
        may_change(actor, record)
        root = Path(self.folders.output(job, record.spec, AttemptNo(attempt))).resolve()
        target = (root / path).resolve()
        theirs = belongs_to(root, account_of(record.owner))
        if not theirs or not target.is_relative_to(root) or not target.is_file():
            raise Rejected(
                Code.NOT_FOUND,
                f"Job {job} left no file {path[:200]!r} in attempt {attempt}.",
                f"See `allot outputs {job}`.",
            )
        return target

    def enter_argv(
        self, job: JobId, index: TaskIndex, argv: Sequence[str], actor: Actor
    ) -> list[str]:
        """Give the host command that runs `argv` inside a running task."""
        record = self._record(job)
        may_change(actor, record)
        attempt = record.attempt
        enterable = (TaskState.RUNNING, TaskState.HOLDING)
        if attempt is None or attempt.task(index).state not in enterable:
            raise Rejected(
                Code.WRONG_STATE,
                f"Task {task_name(record.spec, index)} of job {job} does not run now.",
                "To look at a failed task, submit with hold_on_failure.",
            )
        if not isinstance(self._backend, Enterable):
            raise Rejected(
                Code.NOT_SUPPORTED, f"The {self._backend.name} backend cannot enter tasks."
            )
        return self._backend.enter_argv(TaskKey(job, attempt.no, index), argv)


def _unpack(old: ArchivedJob) -> JobRecord:
    try:
        return msgspec.msgpack.decode(old.document, type=JobRecord)
    except msgspec.DecodeError as error:
        raise AllotmentError(f"the archive of job {old.id} cannot be read: {error}") from error
