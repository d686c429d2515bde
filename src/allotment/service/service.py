"""The service: every use case, as the API offers it."""

import asyncio
import os
import uuid
import zlib
from collections.abc import AsyncGenerator, Callable
from functools import lru_cache, partial
from typing import TypeVar

import msgspec

from allotment.core.policies import Policies
from allotment.engine.again import not_of_others
from allotment.engine.engine import Engine
from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.engines import Ability
from allotment.model.environment import Environment
from allotment.model.errors import Code as Why
from allotment.model.errors import InvariantViolated, Rejected
from allotment.model.ids import SYSTEM, Actor, JobId, NodeId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Instant
from allotment.model.reasons import Blocked
from allotment.model.spec import JobSpec
from allotment.model.tenancy import Config, Visibility
from allotment.service import (
    found_reservations,
    joining,
    more_nodes,
    offering,
    studying,
    sweeping,
)
from allotment.service import views as v
from allotment.service.access import (
    is_admin,
    is_own,
    may_administer,
    may_change,
    may_see,
    sees_all,
)
from allotment.service.archive import Archive
from allotment.service.cells_read import cell_tree
from allotment.service.cells_view import CellTree
from allotment.service.code.code import SWEEP_EVERY_S, Code
from allotment.service.committer import uncertain_submission
from allotment.service.data import links, saving
from allotment.service.data.datasets import SWEEP_EVERY_S as DATA_SWEEP_EVERY_S
from allotment.service.data.saving import Saving
from allotment.service.depending import Depending
from allotment.service.environments import environments
from allotment.service.environments.view import EnvironmentRow, EnvironmentWish
from allotment.service.estimate_view import StartEstimate
from allotment.service.estimating import Estimating
from allotment.service.event_feed import EventFeed, FeedEvent, seen
from allotment.service.finding import Finding
from allotment.service.folders import PathCheck
from allotment.service.forever import forever
from allotment.service.found_reservations import FoundReservations
from allotment.service.hardware import hardware_views, part_of, places_of, reports_of
from allotment.service.hardware_view import HardwareView, HealthNote
from allotment.service.host_ports import port_is_free
from allotment.service.host_workspace import HostWorkspace
from allotment.service.images import Images, check_texts
from allotment.service.joining import Joining
from allotment.service.listing import Listing
from allotment.service.live_use import LiveUse
from allotment.service.live_view import LiveTask
from allotment.service.offering import Offering
from allotment.service.output import Output
from allotment.service.parts import told_of_parts
from allotment.service.pipeline import Pipeline, load
from allotment.service.ports import (
    Backend,
    Clock,
    Forecast,
    Proposer,
    Store,
)
from allotment.service.privacy import job_for_others, spec_for_others
from allotment.service.queries import (
    SpecWriter,
    job_view,
    node_views,
    tenant_views,
)
from allotment.service.queue_read import queue_trees
from allotment.service.queue_view import TenantQueues
from allotment.service.reconciler import reconcile
from allotment.service.reconfigure import ConfigFiles, Reconfiguring
from allotment.service.reports import Reports
from allotment.service.reservation_view import ReservationNote, ReservationView
from allotment.service.reservations import command_of, reservation_views
from allotment.service.selecting import Selecting
from allotment.service.silences import Silences
from allotment.service.steering import Steering
from allotment.service.studying import Studying
from allotment.service.sweeping import Sweeping, with_seed
from allotment.service.threads import Threads
from allotment.service.tracking import tracking
from allotment.service.tracking.ports import Tracker
from allotment.service.tracking.view import ModelRows
from allotment.service.turns import Turns
from allotment.service.wall import moved
from allotment.service.why import why
from allotment.service.withheld import check_release

PATIENCE_S = 60.0
MOST_TRIES = 5
"""To change a job that others change too."""

MOST_OWNERS = 1_000
"""Jobs of which somebody who reads events remembers whose they are."""

Change = Callable[[JobSpec], JobSpec]
T = TypeVar("T")


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
        tracker: Tracker | None = None,
        proposer: Proposer | None = None,
    ) -> None:
        engine = Engine(State(policies), port_is_free)
        load(engine, store)
        clock.begin(engine.state.at, engine.state.wall_ms)
        self._store = store
        self._backing_up = asyncio.Lock()
        self._backend = backend
        self._clock = clock
        self._write_spec = write_spec
        self._version = version
        self._started_at = clock.now()
        own = HostWorkspace(state_dir)
        self.folders = own.folders
        self.pipeline = Pipeline(engine, store, backend, clock, own, tracker)
        self.reconfiguring = Reconfiguring(self.pipeline, config_files)
        self._joining = Joining(self.pipeline, backend, self.reconfiguring)
        self._reserving = FoundReservations(self.pipeline, backend)
        self._looking: list[asyncio.Task[None]] = []
        committer = self.pipeline.committer
        self.turns = turns = Turns()
        """For what looks at all jobs at once."""
        self._feed = EventFeed(self.state, store, committer, write_spec, turns)
        self._archive = Archive(store, committer.leaving)
        self.finding = Finding(self.state, self._archive)
        self.more_nodes = more_nodes.Asking(self.pipeline, forecast)
        would_help = self.more_nodes.would_help
        self._offering = Offering(self.pipeline, backend, self.finding, would_help)
        self.finding.offered = self._offering
        self._silences = Silences(backend)
        self.listing = Listing(
            self.state, self.finding, self._archive, clock.now, turns, self._silences
        )
        self.selecting = Selecting(self.state, self.finding)
        self.output = Output(self.finding, backend, self.pipeline.workspaces, turns)
        self.reports = Reports(
            self.state, store, committer, self.finding, self._archive, clock.now
        )
        self.estimating = Estimating(self.pipeline, self._archive, forecast)
        self._depending = Depending(self.state, self.finding, self._archive)
        self._tracking = self.pipeline.tracking
        self._live_use = LiveUse(self.state, backend, self._progress)
        self._paths = PathCheck(state_dir, self.pipeline.workspaces.is_seen)
        self.images = Images(self.state, backend)
        self.code = Code(self.state, self.finding, self.folders, backend)
        self.environments = self.pipeline.dispatcher.environments
        self.datasets = self.pipeline.datasets
        self._saving = Saving(
            self.state, self.datasets, self.pipeline.workspaces, self.pipeline.command
        )
        self.studying = Studying(self.pipeline, proposer)
        self.sweeping = Sweeping(
            self.pipeline, self.finding, self._archive, turns, self.studying.trouble
        )
        self._changes = Threads("changes", each=1, total=2)
        self.steering = Steering(
            self.pipeline, self.finding, self.selecting, self.job, self._prepared_again
        )
        self.ready = False

    @property
    def state(self) -> State:
        return self.pipeline.state

    @property
    def trouble(self) -> str:
        """Return what keeps the event log from being written; empty when all is well."""
        return self.pipeline.committer.trouble

    def now(self) -> Instant:
        return self._clock.now()

    def shown(self, view: T) -> T:
        """Return a view with its times as the machine's clock shows them now."""
        return moved(view, self.state.wall_ms)

    # ── life ────────────────────────────────────────────────────────────────────────────

    def note_loss(self, lost: e.EventsLost) -> None:
        """Record that the log continues without its end."""
        self.pipeline.engine.emit(lost, SYSTEM, self.now())
        self.pipeline.flush()

    async def start(self, config: Config) -> None:
        """Apply the configuration if it changed, meet the backend, begin scheduling."""
        self.pipeline.look_at_the_clock()
        await self.pipeline.command(c.ApplyConfig(config), SYSTEM)
        # Two services of one host begin in different places of the same range of ports.
        self.state.ports.begin_at(zlib.crc32(self.folders.root.encode()) + self.now())
        self._offering.resume()
        await self.code.start()
        await self.environments.start()
        await self.datasets.start()
        await self._backend.start(self.pipeline.hear)
        await self._skip_used_ids()
        await reconcile(self.pipeline, self._backend)
        self._hold_without_secrets()
        self.pipeline.start()
        self._looking = [
            asyncio.create_task(forever(step, pause_s, what))
            for step, pause_s, what in (
                (self._joining.look, joining.LOOK_EVERY_S, "nodes of engines"),
                (self._reserving.look, found_reservations.LOOK_EVERY_S, "reservations"),
                (self._offering.look, offering.LOOK_EVERY_S, "offers"),
                (self.more_nodes.look, more_nodes.LOOK_EVERY_S, "nodes that are missing"),
                (self._offering.follow, 0, "new offers"),
                (self.sweeping.look, sweeping.LOOK_EVERY_S, "budgets of sweeps"),
                (self.studying.look, studying.LOOK_EVERY_S, "studies"),
                (self.code.sweep, SWEEP_EVERY_S, "code of jobs"),
                (self.environments.sweep, environments.SWEEP_EVERY_S, "environments"),
                (self.datasets.sweep, DATA_SWEEP_EVERY_S, "datasets"),
                (self.datasets.links.look, links.LOOK_EVERY_S, "links to datasets"),
                (self._saving.look, saving.LOOK_EVERY_S, "outputs to save"),
                (self._tracking.keep, tracking.KEEP_EVERY_S, "MLflow"),
                (self._tracking.look, tracking.LOOK_EVERY_S, "runs in MLflow"),
            )
        ]
        self.ready = True

    async def _skip_used_ids(self) -> None:
        """Use no id again that the backend knows from books that were lost or put back."""
        highest = await self._backend.highest_job()
        if highest >= self.state.next_job:
            skipped = e.JobIdsSkipped(JobId(highest + 1))
            self.pipeline.engine.emit(skipped, SYSTEM, self.now())
            self.pipeline.flush()

    def _hold_without_secrets(self) -> None:
        """Hold jobs whose secrets a backup left out: their owners give them again."""
        for job in tuple(self.state.jobs.values()):
            if job.state is JobState.QUEUED and job.spec.withheld:
                self.pipeline.engine.command(c.HoldJob(job.id), SYSTEM, self.now())
        self.pipeline.flush()

    async def stop(self) -> None:
        """Stop; tasks run on and are adopted at the next start."""
        self.ready = False
        for looking in self._looking:
            looking.cancel()
        await asyncio.gather(*self._looking, return_exceptions=True)
        self._tracking.close()
        await self.environments.close()
        await self.datasets.objects.close()
        await self._saving.close()
        await self._backend.close()
        await self.pipeline.stop()
        self._store.close()

    async def backup(self, target: str, *, without_secrets: bool = False) -> None:
        """Write a consistent copy of the event log while in use."""
        async with self._backing_up:
            if not self.trouble:  # Otherwise what is on disk has to do.
                await self.pipeline.committer.wait(self.pipeline.committer.taken)
            # Beside the commits: it only reads, for as long as it takes.
            write = partial(self._store.backup, target, without_secrets=without_secrets)
            await asyncio.to_thread(write)

    # ── wishes ──────────────────────────────────────────────────────────────────────────

    async def submit(self, command: c.SubmitJob, actor: Actor) -> v.Submitted:
        """Accept a job; durable on return.

        Raises Rejected: with the code `uncertain` there may still be a job, else there is none.
        """
        is_new = not command.key
        if is_new:  # A user in doubt needs a key to ask by.
            command = msgspec.structs.replace(command, key=uuid.uuid4().hex)
        if command.sweep is not None:
            self.studying.check(command.sweep)
            sweep = with_seed(command.sweep, zlib.crc32(command.key.encode()))
            command = msgspec.structs.replace(command, sweep=sweep)
        try:
            return await self._submitted(command, actor, is_new=is_new)
        except Rejected as error:
            if error.code is Why.UNCERTAIN:
                raise uncertain_submission(error, command.key) from error
            raise

    async def submission(self, key: str, actor: Actor) -> v.Submitted:
        """Return what a submission made, by its key; durable. Raises Rejected."""
        try:
            known = await self._repeated(key, actor)
        except Rejected as error:
            raise uncertain_submission(error, key) from error
        if known is None:
            raise Rejected(
                Why.NOT_FOUND,
                f"No submission of {actor.user} with the key {key[:200]} was accepted.",
                "Submit the job again, with the same key.",
            )
        return known

    async def _submitted(
        self, command: c.SubmitJob, actor: Actor, *, is_new: bool
    ) -> v.Submitted:
        """Accept a job, unless its key made one before: a key that `is_new` cannot have."""
        key = "" if is_new else command.key
        try:
            command = await self._prepared(command, actor)
        except Rejected:
            # What was accepted once is not refused because its paths are gone now.
            if (known := await self._repeated(key, actor)) is not None:
                return known
            raise
        # Asked last: another request with this key may have come while paths were looked at.
        if (known := await self._repeated(key, actor)) is not None:
            return known
        records = await self.pipeline.command(command, actor)
        accepted = [
            record.event for record in records if isinstance(record.event, e.JobSubmitted)
        ]
        ids = tuple(event.job for event in accepted)
        await self.code.note(ids, command.spec, actor)
        job = self.state.jobs.get(ids[0])
        state = job.state if job else JobState.QUEUED
        return v.Submitted(ids[0], ids, command.spec.name, state, accepted[0].warnings)

    async def _repeated(self, key: str, actor: Actor) -> v.Submitted | None:
        """Return what this user's key of a submission made before; None if nothing."""
        known = self.finding.known(actor, key) if key else None
        if known is not None:
            # It may be on its way to the disk still, with another request that has the key.
            committer = self.pipeline.committer
            await committer.wait(committer.pending(known.ids))
        return known

    async def _prepared(self, command: c.SubmitJob, actor: Actor) -> c.SubmitJob:
        """Complete a job and check what can be checked before the engine sees it."""
        not_of_others(command.spec)
        await self._paths.check(command.spec, actor)
        spec = self._complete(command.spec, actor)
        warnings = (*command.warnings, *told_of_parts(spec))
        if spec.image and Ability.IMAGES not in self._backend.abilities:
            warnings += (
                f"image: {spec.image} cannot be used by the {self._backend.name} backend yet; "
                "the job runs on the machine's own software.",
            )
        named, spec = spec.engine, await self._with_world(spec, actor)
        if not all(role.command for role in command.spec.roles):
            check_texts(spec, command.copies)
        if spec.engine != named:
            warnings += (f"data: only {spec.engine} can mount it, so the job runs there.",)
        return msgspec.structs.replace(command, spec=spec, warnings=warnings)

    async def _prepared_again(self, spec: JobSpec, actor: Actor) -> JobSpec:
        """Check and complete a job that was submitted before. Raises Rejected."""
        await self._paths.check(spec, actor)
        return await self._with_world(self._complete(spec, actor), actor)

    async def _with_world(self, spec: JobSpec, owner: Actor) -> JobSpec:
        """Settle what a job brings along: image, code, data, packages. Raises Rejected."""
        spec = await self.images.settled(spec, owner)
        spec = await self.code.settled(spec, owner)
        spec = await self.pipeline.uses.settled(spec, owner)
        return await self.environments.settled(spec, owner)

    async def build_environment(self, wish: EnvironmentWish, actor: Actor) -> EnvironmentRow:
        """Build an environment ahead, for the machine or for an image. Raises Rejected."""
        if wish.image:
            self.images.check_fetched(wish.image, actor)
        asked = Environment(wish.python, wish.requirements)
        spec = JobSpec("x", tenant="", roles=(), image=wish.image, environment=asked)
        return await self.environments.build(await self.images.settled(spec, actor), actor)

    async def dry_run(self, command: c.SubmitJob, actor: Actor) -> StartEstimate:
        """Return whether, where and when a job would start. Raises Rejected."""
        command = await self._prepared(command, actor)
        told = (
            await self.images.expected(command.spec, actor),
            await self.environments.expected(command.spec),
            *self.pipeline.uses.expected(command.spec),
        )
        estimate = await self.estimating.dry_run(command, actor)
        return msgspec.structs.replace(estimate, brings=tuple(filter(None, told)))

    async def start_of(self, job: JobId) -> StartEstimate:
        """Return when a job starts, as a range, and what that rests on. Raises Rejected."""
        return await self.estimating.start_of(self.finding.record(job))

    def _complete(self, spec: JobSpec, actor: Actor) -> JobSpec:
        """Fill in what depends on who submits, and settle dependencies."""
        if not spec.tenant:
            spec = msgspec.structs.replace(spec, tenant=self.default_tenant(actor))
        needs = self._depending.settled(spec.depends_on, actor)
        return msgspec.structs.replace(spec, depends_on=needs) if spec.depends_on else spec

    async def act(self, command: c.AnyCommand, actor: Actor) -> None:
        """Carry out a command on a job or a node; durable on return. Raises Rejected."""
        match command:
            case (
                c.DrainNode()
                | c.UndrainNode()
                | c.DeclareHealth()
                | c.ReserveNodes()
                | c.EndReservation()
                | c.ApplyConfig()
                | c.FindNodes()
                | c.FindReservations()
            ):
                may_administer(actor)
            case (
                c.SubmitJob()
                | c.SubmitAgain()
                | c.DataCommand()
                | c.StopSweep()
                | c.ProposeTrial()
            ):
                raise InvariantViolated("this is no wish about a job or a node")
            case _:
                job = self.finding.live(command.job)
                may_change(actor, job)
                check_release(command, job)
        await self.pipeline.command(command, actor)

    async def edit(self, job: JobId, change: Change, actor: Actor) -> None:
        """Change a waiting job; durable on return. Raises Rejected.

        The change is made again when another one came first: of two at once both are kept.
        """
        for _ in range(MOST_TRIES):
            record = self.finding.live(job)
            may_change(actor, record)
            was = record.spec
            was_spec = self.spec_of(job, actor)
            spec = await self._changes.run(actor.user, partial(change, was_spec), PATIENCE_S)
            await self._paths.check(spec, actor)
            spec = await self._with_world(self._complete(spec, record.owner), record.owner)
            if self.finding.live(job).spec is was:
                await self.act(c.EditJob(job, spec), actor)
                return
        raise Rejected(
            Why.CONFLICT,
            f"Others keep changing job {job}.",
            "Look at it with `allot show`, and try again.",
        )

    # ── finding ─────────────────────────────────────────────────────────────────────────

    def default_tenant(self, actor: Actor) -> str:
        """Return the tenant of a job that names none: the user's own, else the default."""
        for tenant in self.state.config.tenants:
            if actor.user in tenant.users or set(actor.groups) & set(tenant.groups):
                return tenant.name
        tenants = self.state.config.tenants
        return self.state.config.default_tenant or (tenants[0].name if tenants else "")

    # ── reading ─────────────────────────────────────────────────────────────────────────

    def job(self, job: JobId, actor: Actor) -> v.JobView:
        """Return one job, as much of it as this user may see. Raises Rejected."""
        record = self.finding.record(job)
        inside = sees_all(actor, record, self.state.config.visibility)
        workspace = self.pipeline.workspaces.of(record)
        view = job_view(
            self.state, record, self.now(), workspace.folders, self._write_spec, inside=inside
        )
        view = msgspec.structs.replace(
            view,
            row=self._silences.on_row(view.row),
            warnings=(
                *view.warnings,
                *workspace.warnings_of(record.id),
                *self._saving.warnings_of(record.id),
            ),
            held_up=self.pipeline.held_up.of_job(record),
            progress=self._progress(record),
            lost=self.sweeping.lost(record),
        )
        if inside:
            return view
        return job_for_others(view, self._write_spec(spec_for_others(record.spec)))

    def _progress(self, job: JobRecord) -> v.ProgressView | None:
        """Return what a job told of its progress: in its file, or else in MLflow."""
        return self.pipeline.progress.of(job) or self._tracking.progress(job)

    async def job_with_runs(self, job: JobId, actor: Actor) -> v.JobView:
        """Return one job, and the runs that it made in MLflow. Raises Rejected."""
        view = self.job(job, actor)
        if view.private:
            return view
        runs = await self._tracking.runs(self.finding.record(job))
        return msgspec.structs.replace(view, runs=runs)

    async def models(self, actor: Actor) -> ModelRows:
        """Return the models registered in MLflow, and which job made each. Raises Rejected."""
        return await self._tracking.models(self.finding, actor)

    def spec_of(self, job: JobId, actor: Actor) -> JobSpec:
        """Return a job's spec, secrets included.

        Raises Rejected unless this user may see the job, and may change it if it has secrets.
        """
        record = self.finding.record(job)
        may_see(actor, record, self.state.config.visibility)
        if record.spec.secrets:
            may_change(actor, record)
        return record.spec

    def spec_again(self, job: JobId, actor: Actor) -> JobSpec:
        """Return a job's spec, to submit it again; a job of an array keeps its index.

        Raises Rejected.
        """
        spec = self.spec_of(job, actor)
        if spec.array is None:
            return spec
        alone = msgspec.structs.replace(spec.array, parent=JobId(0), max_running=0, members=1)
        return msgspec.structs.replace(spec, array=alone)

    def why(self, job: JobId) -> Blocked | None:
        """Return why a job waits; None when it does not."""
        record = self.state.jobs.get(job)
        return why(self.state, record, self.now()) if record else None

    def nodes(self) -> list[v.NodeView]:
        found = map(self.pipeline.held_up.on_node, node_views(self.state, self.now()))
        return [self._silences.on_node(node) for node in found]

    async def live_use(self) -> list[LiveTask]:
        """Return what each running task uses now. Raises Rejected."""
        return await self._live_use.now(self.now())

    def hardware(self) -> list[HardwareView]:
        """Return the nodes and devices that are unhealthy, or often were."""
        return hardware_views(self.state, self.now())

    async def note_health(self, note: HealthNote, actor: Actor) -> list[HardwareView]:
        """Record what an administrator or a probe says of hardware; return its health now.

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
        return hardware_views(self.state, self.now(), map(part_of, places))

    def node_id(self, name: str) -> NodeId:
        """Return a node's id by its name. Raises Rejected."""
        for node in self.state.config.nodes:
            if node.name == name:
                return node.id
        names = ", ".join(node.name for node in self.state.config.nodes[:10])
        raise Rejected(Why.NO_SUCH_NODE, f"There is no node {name}.", f"Nodes here: {names}.")

    def reservations(self) -> list[ReservationView]:
        """Return the reservations, the earliest first."""
        return reservation_views(self.state, self.pipeline.clock.now())

    async def reserve(self, note: ReservationNote, actor: Actor) -> list[ReservationView]:
        """Set nodes aside; durable on return. Raises Rejected."""
        await self.act(command_of(note, self.node_id), actor)
        return self.reservations()

    def tenants(self) -> list[v.TenantView]:
        return tenant_views(self.state)

    async def queues(self, tenant: str, actor: Actor) -> list[TenantQueues]:
        """Return the tree of queues of each tenant, or of one. Raises Rejected."""
        look = partial(queue_trees, self.state, self.now(), tenant)
        return await self.turns.once(look, actor.user)

    def cells(self, level: str, under: str) -> CellTree:
        """Return the tree of cells. Raises Rejected."""
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
            clock_set_at=self.state.clock_set_at,
            clock_set_ms=self.state.clock_set_ms,
        )

    # ── events ──────────────────────────────────────────────────────────────────────────

    def events(
        self, job: JobId | None, after: int, limit: int, actor: Actor
    ) -> AsyncGenerator[list[FeedEvent]]:
        """Return durable events in order, of one job or of all."""
        return self._seen_by(actor, self._feed.past(job, after, limit))

    def follow_events(
        self, job: JobId | None, after: int, actor: Actor
    ) -> AsyncGenerator[list[FeedEvent]]:
        """Return events as they become durable; end when that job has finished."""
        told = self._feed.follow(
            job, after, lambda: job is not None and self.finding.record(job).state.finished
        )
        return self._seen_by(actor, told)

    def _seen_by(
        self, actor: Actor, told: AsyncGenerator[list[FeedEvent]]
    ) -> AsyncGenerator[list[FeedEvent]]:
        return told if is_admin(actor) else seen(told, self._owners_view(actor))

    def _owners_view(self, actor: Actor) -> Callable[[JobId], bool]:
        """Make what tells of which jobs this actor sees all."""

        @lru_cache(MOST_OWNERS)
        def owns(job: JobId) -> bool:
            try:
                return is_own(actor, self.finding.record(job))
            except Rejected:  # it was forgotten: nobody knows whose it was
                return False

        state = self.state
        return lambda job: state.config.visibility is Visibility.OPEN or owns(job)
