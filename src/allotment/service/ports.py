"""What the service wants of the outside: small protocols, filled in by `wiring`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from allotment.model.cluster import Node
from allotment.model.content import Content
from allotment.model.engines import Ability
from allotment.model.events import Phase, Record
from allotment.model.forecast import Answer, Question
from allotment.model.grid import Parameters
from allotment.model.ids import Actor, JobId, NodeId, Seq, TaskIndex, TaskKey
from allotment.model.lifecycle import JobState
from allotment.model.pools import MoreAnswer, MoreQuestion
from allotment.model.quantity import Instant, Millis, Resources, WallTime
from allotment.model.reasons import StopCause
from allotment.model.reports import AnyReport, TaskReport
from allotment.model.reservations import FoundReservation
from allotment.model.spec import JobSpec, Mpi, Offered
from allotment.model.sweeps import Sweep, Tried
from allotment.service.image_view import ImageRow, ImageView

# ── time ────────────────────────────────────────────────────────────────────────────────


class Clock(Protocol):
    """Where `now` comes from: time that goes on evenly, beside the clock that people set."""

    def begin(self, last: Instant, ahead_ms: int) -> None:
        """Go on after the log's end, when the wall clock was so much ahead of this one."""
        ...

    def now(self) -> Instant: ...

    def wall(self) -> WallTime: ...


# ── the future ──────────────────────────────────────────────────────────────────────────


class Forecast(Protocol):
    """Who can run a live state ahead: a simulator, beside the work of the service."""

    async def starts(self, question: Question) -> Answer:
        """Return when a job starts. Its work ends when it is cancelled. Raises Rejected."""
        ...

    async def more(self, question: MoreQuestion) -> MoreAnswer:
        """Return which waiting jobs more nodes would let start. The rest as of `starts`."""
        ...


# ── the event log ───────────────────────────────────────────────────────────────────────


class ArchivedJob(msgspec.Struct, frozen=True):
    """A finished job as the store keeps it: what is searched for, and the whole as bytes."""

    id: JobId
    name: str
    tenant: str
    user: str
    state: JobState
    submitted_at: Instant
    finished_at: Instant
    key: str = ""
    document: bytes = b""


class JobFilter(msgspec.Struct, frozen=True):
    """Which archived jobs: every given word must match; newest first, before `before`."""

    tenant: str = ""
    user: str = ""
    name: str = ""
    states: tuple[JobState, ...] = ()
    before: JobId | None = None
    beginning: str = ""
    """How the name begins."""

    def matches(self, job: ArchivedJob) -> bool:
        """Whether a job is wanted."""
        return (
            (not self.tenant or job.tenant == self.tenant)
            and (not self.user or job.user == self.user)
            and (not self.name or job.name == self.name)
            and job.name.startswith(self.beginning)
            and (not self.states or job.state in self.states)
            and (self.before is None or job.id < self.before)
        )


class Snapshot(msgspec.Struct, frozen=True):
    """The encoded state after the event `seq`."""

    seq: Seq
    data: bytes


class Store(Protocol):
    """The event log and what is derived from it. Calls block; the service uses a thread.

    Every failure is a StoreError that says what to do.
    """

    def append(self, records: Sequence[Record], archived: Sequence[ArchivedJob] = ()) -> None:
        """Add to the log in one transaction; durable on return.

        Raises StoreError, with nothing added, when the first `seq` is not the next one.
        """
        ...

    def last_seq(self) -> Seq: ...

    def snapshot(self) -> Snapshot | None:
        """Return the newest snapshot."""
        ...

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep this snapshot, and drop older ones but one."""
        ...

    def records(self, after: Seq = Seq(0), limit: int | None = None) -> Iterator[Record]:
        """Return the log in order, from the event after `after`."""
        ...

    def records_of(
        self, job: JobId, after: Seq = Seq(0), limit: int = 1000
    ) -> Sequence[Record]:
        """Return one job's events, in order."""
        ...

    def archived(self, job: JobId) -> ArchivedJob | None: ...

    def archived_by_key(self, user: str, key: str) -> ArchivedJob | None:
        """Find the job that an idempotency key of this user made."""
        ...

    def archived_page(self, which: JobFilter, limit: int) -> Sequence[ArchivedJob]: ...

    def archived_states(self, first: JobId, last: JobId) -> Mapping[JobId, JobState]:
        """Return how the archived jobs ended whose ids are in a range."""
        ...

    def prune(self, finished_before: Instant) -> Sequence[JobId]:
        """Forget archived jobs that finished before then, events included; return ids."""
        ...

    def backup(self, target: str, *, without_secrets: bool = False) -> None:
        """Write a consistent copy, while in use, to a file that must not exist.

        Without secrets it has the names of the jobs' secrets, and WITHHELD for their values.
        """
        ...

    def close(self) -> None: ...


# ── the system that runs tasks ──────────────────────────────────────────────────────────


class Identity(msgspec.Struct, frozen=True):
    """The operating-system user a task runs as."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


class ImageWish(msgspec.Struct, frozen=True):
    """An image, and who wants to use it: that user's rights and passwords count."""

    reference: str
    """As written; of an accepted job, with its digest."""
    user: str
    home: str
    shell: str = "/bin/sh"
    identity: Identity | None = None
    """None for whoever we are."""
    begins_in: str = ""
    """The folder that its job names to begin in; '' where the image may say."""
    engine: str = ""
    """The engine that its job names."""
    login: str | None = None
    """What the registry is asked with, '' for nobody, where whoever asks does not see the
    user's home; None where that is looked up."""
    sees_all: bool = False
    """Whether other users' images are named to it, as to an administrator."""


class Binding(msgspec.Struct, frozen=True):
    """Where a task runs, and with which devices."""

    node: str
    devices: tuple[int, ...] = ()
    """By index. An engine that cannot pin devices gives as many of the same types."""
    types: tuple[tuple[str, int], ...] = ()
    """How many devices of each type these are, by the types' names."""
    engine: str = ""
    """The engine of its node; '' where there is but one."""


class MpiHost(msgspec.Struct, frozen=True):
    """A task in which mpirun may start ranks, as a host of its own."""

    name: str
    slots: int
    address: str
    """Of its node."""
    port: int
    """Its own one."""


class TaskLaunch(msgspec.Struct, frozen=True):
    """What tells one task of a gang from the others.

    `env` is the whole environment, secrets included. `argv` has a shell line already wrapped.
    """

    key: TaskKey
    name: str
    """`role.index`, for people and folder names."""
    binding: Binding
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    resources: Resources
    offered: Offered | None = None
    """What others made for it to be: then there is nothing to make, and no `argv`."""


class DataMount(msgspec.Struct, frozen=True):
    """A folder of this host with a dataset, to be mounted for all tasks of a gang.

    It is opened with the service's rights, in jobs of Slurm with their user's, and read-only
    unless they may `write`.
    """

    source: str
    at: str
    write: bool = False


class GangLaunch(msgspec.Struct, frozen=True):
    """Everything a backend needs to run a gang. Built by a pure function.

    After a restart its tasks may be just those of the gang that did not start before.
    `read_only` and `writable` are host paths.
    """

    tasks: tuple[TaskLaunch, ...]
    workdir: str
    identity: Identity | None = None
    read_only: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    at_barrier: bool = False
    hold_on_failure_ms: Millis = Millis(0)
    log_bytes: int = 64 << 20
    pids: int = 1024
    limit_ms: Millis = Millis(0)
    """How long it may run at most, its grace included; 0 without a limit. The service ends it
    in time: this is for engines that want to know."""
    warning: tuple[str, Millis] = ("TERM", Millis(0))
    """By which signal it is told to save, and how long it then has: for engines that end a
    task by themselves."""
    image: str = ""
    """The container image that its job names; '' for none."""
    image_wish: ImageWish | None = None
    """The same and for whom, for an engine that fetches it itself."""
    named: frozenset[str] = frozenset()
    """The variables that its user named: no image changes them."""
    labels: tuple[tuple[str, str], ...] = ()
    """Whose it is, for people who look at the engine."""
    mpi: Mpi = Mpi.NONE
    """Whether its tasks are ranks that the engine starts together."""
    hosts: Mapping[TaskIndex, MpiHost] = {}
    """Of an MPIJob, the workers of the whole gang: for engines on which tasks share no node's
    devices, files and processes, though they share a node."""
    phases: tuple[Phase, ...] = ()
    """What of its start came before, with times."""
    data: tuple[DataMount, ...] = ()
    """The datasets that its tasks find by their names."""
    kept: tuple[str, ...] = ()
    """Those of `read_only` that are the service's, for all who may know of them to read."""
    code: str = ""
    """That one of `writable` which is the service's own: a copy of the code of its job."""
    packages: str = ""
    """The folder of its environment: its programs are found before those of an image."""
    by_driver: bool = False
    """Whether the GPU's driver may take its device memory while it is suspended."""

    def only(self, tasks: Iterable[TaskLaunch]) -> "GangLaunch":
        """Return the same launch with just some of its tasks."""
        return msgspec.structs.replace(self, tasks=tuple(tasks))


Refused = Mapping[TaskKey, str]
"""Why an engine does not take tasks."""


Report = AnyReport


class LogChunk(msgspec.Struct, frozen=True):
    """A piece of a task's output. `next` is where to read on."""

    data: bytes
    next: int


class Backend(Protocol):
    """A system that really runs tasks. All calls are idempotent by task key.

    A fault of the system is a BackendError; the dispatcher tries again.
    """

    name: str
    abilities: frozenset[Ability]
    """What it can do that not all can: nothing else is planned for its nodes."""

    async def start(self, sink: Callable[[Report], None]) -> None:
        """Connect, and from now on hand every report to `sink`, on this event loop."""
        ...

    async def launch(self, gang: GangLaunch) -> Refused:
        """Start each task of a gang unless it was ever started; their reports follow.

        Return which of them it refuses; these are not started, and the others go on. Raises
        EngineAway where it is not known of all whether they start.
        """
        ...

    async def open_barrier(self, keys: Sequence[TaskKey]) -> None: ...

    async def stop(
        self, key: TaskKey, signal: str, grace_ms: Millis, cause: StopCause | None = None
    ) -> None:
        """Signal the task, and end it by force after the grace. Unknown keys are no error.

        The cause is kept with the task, and reported with its end.
        """
        ...

    async def freeze(self, keys: Sequence[TaskKey], no: int) -> None:
        """Let all tasks of a gang stand still: its suspension `no`.

        How each does, and what memory of its devices it keeps by measurement, is told by the
        `suspension` of its reports, once it is known; without that it counts as keeping all.
        """
        ...

    async def thaw(self, key: TaskKey) -> None:
        """Let a task go on, with what it had."""
        ...

    async def highest_job(self) -> JobId:
        """Return the highest job id it ever launched a task of and still knows; 0 for none."""
        ...

    async def observe(self, keys: Sequence[TaskKey]) -> Sequence[TaskReport]:
        """Return how these tasks are now; a key that was never launched is left out."""
        ...

    async def read_log(self, key: TaskKey, stream: str, offset: int, size: int) -> LogChunk:
        """Read output from `offset` on, from the end if negative; stdout or stderr."""
        ...

    async def forget(self, job: JobId) -> None:
        """Remove logs and leftovers of a job that is finished and archived."""
        ...

    async def close(self) -> None:
        """Disconnect. Tasks run on."""
        ...


class DeviceUse(msgspec.Struct, frozen=True):
    """What of one device is in use now, by whatever runs on it."""

    index: int
    busy_milli: int
    """Thousandths of the last moment in which it worked."""
    memory: int
    """Bytes."""


class TaskUse(msgspec.Struct, frozen=True):
    """What one running task has used, and uses now."""

    key: TaskKey
    cpu_ms: int
    """CPU time up to now; at times less than before, when a process is gone unnoticed."""
    memory: int
    """Bytes in memory; pages that processes share count for each."""
    processes: int


class Proposer(Protocol):
    """What proposes the parameters of trials from what those before them reported."""

    def missing(self) -> str:
        """Return why it can propose nothing here; '' where it can."""
        ...

    def propose(self, sweep: Sweep, tried: Sequence[Tried]) -> Parameters:
        """Return parameters for the next trial: the same for the same trials before it.

        Called in a thread; it takes up to seconds, and keeps nothing from call to call.
        """
        ...


@runtime_checkable
class Measurable(Protocol):
    """An ability of some backends: tell what running tasks and their devices use."""

    async def uses(self, keys: Sequence[TaskKey]) -> Sequence[TaskUse]:
        """Measure these tasks now; leave out those that do not run."""
        ...

    async def device_uses(self) -> Mapping[NodeId, Sequence[DeviceUse]]:
        """Measure the devices that can be asked, by node."""
        ...


class Silence(msgspec.Struct, frozen=True):
    """An engine that does not answer. What it runs goes on, and may end unheard."""

    engine: str
    for_ms: Millis
    """Since its last answer."""
    why: str


@runtime_checkable
class Distant(Protocol):
    """An ability of some backends: their engine is another system, which may not answer."""

    def silence(self, node: str) -> Silence | None:
        """Return since when the engine of a node does not answer; None where it does."""
        ...


class Limit(msgspec.Struct, frozen=True):
    """For how long an engine lets a task run."""

    most_ms: Millis
    where: str
    """Whose limit it is, in its words: `Slurm's partition gpu`."""


@runtime_checkable
class Contained(Protocol):
    """An ability of some backends: tasks run in container images, and cannot without."""

    default_image: str
    """For jobs that name none; '' where they have to."""
    leads_commands: bool
    """Whether a program of ours is put before each command, which must be known for that."""

    def shows(self, path: str) -> bool:
        """Whether containers can be shown a folder of the service's."""
        ...


@runtime_checkable
class Several(Protocol):
    """An ability of a backend that is several: which engines may run a job that names one."""

    def engines_for(self, engine: str) -> Mapping[str, Backend]:
        """Return the engine of this name; all of them where there is none, as for any."""
        ...


def engines_for(backend: Backend, engine: str) -> Mapping[str, Backend]:
    """Return the engines that may run a job that names one, by name; one alone has none."""
    return backend.engines_for(engine) if isinstance(backend, Several) else {"": backend}


@runtime_checkable
class Limited(Protocol):
    """An ability of some backends: bounds of their own that a job must keep."""

    def time_limit(self) -> Limit | None:
        """Return the longest that a task may run; None where there is no bound, or it is not
        known yet."""
        ...


@runtime_checkable
class Finds(Protocol):
    """An ability of some backends: find which nodes their engines have now."""

    def found_nodes(self) -> Mapping[str, Sequence[Node]]:
        """Return the nodes by engine, '' where there is but one; none before the first look."""
        ...


class Having(msgspec.Struct, frozen=True):
    """Nodes that have a content, and how large it is there; 0 where that is not known."""

    nodes: frozenset[NodeId] = frozenset()
    bytes: int = 0


@runtime_checkable
class KnowsContent(Protocol):
    """An ability of some backends: tell which nodes have what a job brings already."""

    def nodes_with(self, contents: Sequence[Content]) -> Mapping[Content, Having]:
        """Return the nodes that are known to have some contents; what none has may be left out.

        Images and environments are named as jobs name them, versions of data as
        `data/DATASET/DIGEST`. Cheap: it is answered from what was heard, with the same sets
        while nothing changes.
        """
        ...


@runtime_checkable
class Reserves(Protocol):
    """An ability of some backends: tell of reservations that are made in their engines."""

    def found_reservations(self) -> Mapping[str, Sequence[FoundReservation] | None]:
        """Return them by the names of their engines; None before the first look."""
        ...


class Offer(msgspec.Struct, frozen=True):
    """Work that others made on an engine, and that is ours to put in its place."""

    key: str
    """What differs from all other offers."""
    owner: Actor
    spec: JobSpec


@runtime_checkable
class Offers(Protocol):
    """An ability of some backends: others make work there that is ours to place."""

    def resume(self, tasks: Mapping[str, Mapping[TaskKey, Offered]]) -> None:
        """Note the tasks that have a place, by engine, before `start`: else they would be taken
        for what others use."""
        ...

    async def next_offers(self) -> Sequence[Offer]:
        """Wait for work that is new, and return it. After a start all of it is."""
        ...

    def is_offered(self, offer: str) -> bool | None:
        """Whether an offer still waits for its place; None while that is not known."""
        ...

    def end_offer(self, offer: str) -> None:
        """Note that an offer's job is over."""
        ...

    def say(self, engine: str, offered: Sequence[Offered], reason: str, message: str) -> None:
        """Let those who made it know why it waits. It is done in a while, where it is news."""
        ...

    def why_not_offered(self, name: str) -> str:
        """Return why something of that name is no job; '' where nothing is known of it."""
        ...


class ImageStore(Protocol):
    """Where an engine has its images. All raise Rejected."""

    async def resolve(self, wish: ImageWish) -> str:
        """Return an image's name with its present digest.

        Raises Rejected unless it can run and the user may use it.
        """
        ...

    async def command(self, wish: ImageWish) -> tuple[str, ...]:
        """Return the entry point and the command of an image, named by its digest.

        Nothing where only its engine knows them. Raises Rejected where it has none.
        """
        ...

    async def inspect(self, wish: ImageWish) -> ImageView: ...

    async def warm(self, wish: ImageWish) -> ImageView:
        """Fetch an image, so that it is there when a task wants it."""
        ...

    async def rows(self, uid: int | None) -> Sequence[ImageRow]:
        """Return the images in the store: those that a user has used, with None all."""
        ...

    async def remove(self, image: str) -> None: ...


@runtime_checkable
class Imaging(Protocol):
    """An ability of some backends: run tasks in images."""

    def images(self) -> ImageStore:
        """Return where they are. Raises Rejected where none can be run now."""
        ...


class ImagePython(msgspec.Struct, frozen=True):
    """A Python that an image has."""

    version: str
    """Without its last part: 3.12."""
    program: str
    """Its path in the image, without links."""
    libc: str
    """musl, or the version of glibc: 2.36."""


@runtime_checkable
class LookingInside(Protocol):
    """An ability of some backends: tell what an image has. Nothing of it is run for that."""

    async def pythons_in(self, wish: ImageWish) -> Sequence[ImagePython]:
        """Return an image's Pythons, the one first that its PATH finds. Raises Rejected.

        The image is fetched if need be; what takes long is refused, and goes on.
        """
        ...


@runtime_checkable
class Mounting(Protocol):
    """An ability of some backends: mount datasets where jobs want them."""

    async def why_no_mounts(self, mounts: Sequence[DataMount]) -> str:
        """Return why some folders cannot be mounted for tasks; '' where they can."""
        ...


@runtime_checkable
class NodeClosing(Protocol):
    """An ability of some backends: keep all work off a node, that of others too."""

    async def close_node(self, node: str, reason: str) -> None:
        """Make the engine start nothing new on a node, if it still does."""
        ...

    async def open_node(self, node: str) -> None:
        """Undo `close_node`, and nothing that others did."""
        ...


@runtime_checkable
class Enterable(Protocol):
    """An ability of some backends: run a command inside a running task's isolation."""

    def enter_argv(self, key: TaskKey, argv: Sequence[str]) -> list[str]:
        """Return the host command for `argv`; it uses the terminal that it is started on."""
        ...
