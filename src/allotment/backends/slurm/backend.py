"""The Slurm backend: each task a Slurm job, found again by its name and by its folder.

The folder of a task belongs to its user, who may put anything there. So it is never followed
through links, and what the service relies on lies beside it, in a record of the service's own.
"""

import asyncio
import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from time import monotonic, time_ns

import msgspec
import structlog

from allotment.backends.contact import Contact
from allotment.backends.kept import own_name, read_record
from allotment.backends.local.images.images import Images
from allotment.backends.local.output import Piece, chunk_of
from allotment.backends.slurm import client, nodes, token
from allotment.backends.slurm.accounts import GpuAccounts
from allotment.backends.slurm.apptainer import ApptainerImages, program_of
from allotment.backends.slurm.calls import calls_of
from allotment.backends.slurm.enter import enter_argv, inside_argv
from allotment.backends.slurm.nodes import NodeWatch
from allotment.backends.slurm.output import pieces_in
from allotment.backends.slurm.packed import MODULES, packed
from allotment.backends.slurm.ranks import (
    HOSTS,
    SCRIPT,
    Share,
    by_node,
    hosts_of,
    lead_of,
    misfit_of,
    options_of_ranks,
    script_of_ranks,
    share_of,
    with_words,
)
from allotment.backends.slurm.request import (
    charges_of,
    document_of,
    lasting_of,
    name_of,
    options_of,
    script_of,
)
from allotment.backends.slurm.reservations import SLURM, Calendar
from allotment.backends.slurm.status import NEVER, WAITS, Row, Rows, report
from allotment.backends.slurm.strays import STRAY_S, Strays
from allotment.backends.status import RunnerStatus, status_from
from allotment.backends.together import gather_all
from allotment.model.cluster import Node
from allotment.model.diagnosis import Exit
from allotment.model.engines import Ability, EngineSetup, EngineType
from allotment.model.errors import BackendError, EngineAway
from allotment.model.ids import JobId, TaskKey
from allotment.model.quantity import MINUTE, Millis, WallTime
from allotment.model.reasons import StopCause
from allotment.model.reports import NodeReport, Seen, TaskReport
from allotment.model.reservations import FoundReservation
from allotment.rights.removing import remove
from allotment.rights.writing import write_whole
from allotment.service.forever import forever
from allotment.service.looks import Looks
from allotment.service.ports import (
    GangLaunch,
    Identity,
    Limit,
    LogChunk,
    Refused,
    Report,
    Silence,
    TaskLaunch,
)

log = structlog.get_logger("allot.slurm")

LOOK_EVERY_S = 0.05
"""How often the tasks are looked at of which something may be new."""
LOOKS_A_SECOND = 200
"""So many cost about a hundredth of a core. The end of a task is seen late by a look."""
STEP_EVERY_S = 0.5
ASK_EVERY_S = 4.0
"""How often Slurm is asked for all jobs, while there are any of ours."""
FIRST_S = 3.0
"""How long a start waits for Slurm's first answer: what our own processes say is there."""
START_S = 60.0
"""What is to start now, and that Slurm has not started by then, is taken back."""
SHUT_S = 5.0
"""The same, once it is known that its node takes no new work, or that others came first."""
HURRY_S = 12.0
"""For so long nodes are looked at more often, as a task waits for one."""
NOT_YET = frozenset({"None", "Priority"})
"""What Slurm says of a job that it has not tried to start yet."""
OVERDUE_S = 10.0
"""After its grace a task that its first process did not end is ended by Slurm."""
UNKNOWN_S = 60.0
"""What Slurm does not know, and did not begin until then, never will: Slurm lost its state."""
SILENT_S = 120.0
"""What began, and of which only signs could tell, has ended if it shows none for so long: six
times as long as its first process goes without one."""
LOST = "TERM 0"
"""What the first process of a task is told that counts as lost, should it be there still."""
MOST_STATUS = 64 * 1024
CALLS = 8
"""How many commands of Slurm that change something run side by side."""
AGENT = Path(__file__).with_name("mpi_agent.py")
STREAMS = ("stdout", "stderr")


UNNAMED = EngineSetup("", EngineType.SLURM)


class Submitted(msgspec.Struct, frozen=True):
    """What the service keeps of a task that it gave to Slurm."""

    uid: int
    """To whom the folder belongs."""
    identity: Identity | None = None
    """As whom it runs; None where it is the service's own user."""
    job: str = ""
    """Slurm's number; empty until it has answered."""
    cause: StopCause | None = None
    """For what it was told to stop."""
    node: str = ""
    share: Share | None = None
    """Of a rank, whose gang is one Slurm job: what it has of it."""
    has_devices: bool = False


def abilities_with(apptainer: str) -> frozenset[Ability]:
    """Return what can be done, with the program that runs images; '' for none."""
    shows = bubblewrap()
    programs = {Ability.IMAGES: apptainer, Ability.FOLDERS: shows, Ability.DATASETS: shows}
    return SlurmBackend.abilities | {ability for ability, found in programs.items() if found}


@cache
def bubblewrap() -> str:
    """Return the program that shows folders to tasks, '' for none: nodes are taken to be as
    this machine."""
    return shutil.which("bwrap") or ""


class SlurmBackend:
    """Runs tasks in one partition. `nodes` are those of the configuration, by name."""

    name = "slurm"
    abilities = frozenset({
        Ability.ENTERS, Ability.PMI, Ability.MPIRUN, Ability.VERSIONS, Ability.ENVIRONMENTS,
    })  # fmt: skip
    """A suspended Slurm job keeps its devices, and which devices it gets Slurm decides."""

    def __init__(
        self,
        state_dir: Path,
        partition: str,
        nodes: Callable[[], Sequence[Node]],
        setup: EngineSetup = UNNAMED,
        images: Images | None = None,
    ) -> None:
        """`images` asks registries; without it there are no images."""
        self._images = ApptainerImages(program_of(setup), images)
        self.abilities = abilities_with(self._images.program)
        self._setup = setup
        self._user = token.name_of(os.geteuid())
        self._slurm = calls_of(setup)
        self._root = state_dir / "slurm"
        self._partition = partition
        self._nodes = nodes
        self._runner = self._root
        """What starts a task on a node."""
        self._prefix = ""
        self._sink: Callable[[Report], None] = lambda report: None
        self._live: dict[TaskKey, Submitted] = {}
        self._told: dict[TaskKey, tuple[object, ...]] = {}
        self._rows: Rows = {}
        self._asked = 0.0
        self._waiting: dict[TaskKey, float] = {}
        """Since when a task has waited in Slurm's queue."""
        self._overdue: dict[TaskKey, float] = {}
        self._signs: dict[TaskKey, tuple[float, float]] = {}
        """Of tasks that Slurm does not know, or takes for running: the last sign seen, and
        since when."""
        self._read_at: dict[TaskKey, tuple[tuple[int, ...], RunnerStatus | None]] = {}
        """What was read last of a task's status, and in which state of its file."""
        self._looks = Looks[TaskKey](LOOKS_A_SECOND)
        self._launching: set[tuple[str, int]] = set()
        self._shares: dict[tuple[str, int], dict[str, list[Share]]] = {}
        """What the jobs of gangs of ranks have on each node, as long as Slurm shows them."""
        self._strays = Strays()
        self._parted = 0.0
        """When a task ended last: its job has to end as well."""
        self._is_adopted = False
        """Whether we were told what is ours: before, no job of ours is a stray."""
        self._calls = asyncio.Semaphore(CALLS)
        self._loops: list[asyncio.Task[None]] = []
        self._contact = Contact("Slurm", "jobs")
        self._watch = NodeWatch(self._slurm, nodes, partition, self._contact, self._sink)
        self._accounts = GpuAccounts(self._slurm, self._root / "accounts", self._sink)

    # ── life ────────────────────────────────────────────────────────────────────────────

    async def start(self, sink: Callable[[Report], None]) -> None:
        self._sink = sink
        self._root.mkdir(mode=0o711, exist_ok=True)
        self._root.chmod(0o711)  # whatever the umask: users reach their tasks' folders
        (self._root / "tasks").mkdir(exist_ok=True)
        (self._root / "tasks").chmod(0o711)
        name, archive = packed({module: _source_of(module) for module in MODULES})
        self._runner = self._root.absolute() / name
        for path, content, mode in (
            (self._runner, archive, 0o644),
            (self._root / "mpi-agent", AGENT.read_bytes(), 0o755),
        ):
            write_whole(path, content, mode)  # a job that starts just now reads all of it
        self._prefix = own_name(self._root)
        self._watch = NodeWatch(
            self._slurm, self._nodes, self._partition, self._contact, self._hear_of_node
        )
        self._accounts = GpuAccounts(self._slurm, self._root / "accounts", sink)
        self._accounts.start()
        with contextlib.suppress(BackendError, TimeoutError):
            async with asyncio.timeout(FIRST_S):
                await self._ask()
                await self._look_at_nodes()
        self._loops = [
            asyncio.create_task(forever(step, every_s, what))
            for step, every_s, what in (
                (self._look_over, LOOK_EVERY_S, "tasks on Slurm"),
                (self._keep_asking, STEP_EVERY_S, "Slurm's jobs"),
                (self._keep_watching, STEP_EVERY_S, "Slurm's nodes"),
                (self._keep_accounting, STEP_EVERY_S, "Slurm's accounts"),
            )
        ]

    async def close(self) -> None:
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._slurm.close()

    # ── tasks ───────────────────────────────────────────────────────────────────────────

    async def launch(self, gang: GangLaunch) -> Refused:
        if gang.mpi.by_engine:
            return await self._launch_ranks(gang)
        found = await gather_all([self._launch_or_refuse(gang, task) for task in gang.tasks])
        keys = (task.key for task in gang.tasks)
        return {key: why for key, why in zip(keys, found, strict=True) if why}

    async def _launch_or_refuse(self, gang: GangLaunch, task: TaskLaunch) -> str:
        """Return why a task is refused; '' where it is not. Raises EngineAway."""
        try:
            await self._launch(gang, task)
        except EngineAway:
            raise
        except BackendError as error:
            return str(error)
        return ""

    async def _launch(self, gang: GangLaunch, task: TaskLaunch) -> None:
        key = task.key
        record = self._record(key)
        is_new = record is None
        if record is None:
            record = await asyncio.to_thread(self._prepare, gang, task)
        if not record.job:
            name = (name_of(self._prefix, key), record.uid)
            self._launching.add(name)
            try:
                # An answer that got lost may have been a yes.
                row = None if is_new else (await self._slurm.jobs(name[0])).get(name)
                number = row.id if row else await self._submit(gang, task)
                record = msgspec.structs.replace(record, job=number)
                self._keep(key, record)
                self._follow(key, record)
            finally:
                self._launching.discard(name)
        self._follow(key, record)

    async def _submit(self, gang: GangLaunch, task: TaskLaunch) -> str:
        folder = str(self._folder(task.key).absolute())
        options = options_of(gang, task, self._prefix, self._partition, folder)
        script = self._folder(task.key).with_suffix(".sh").absolute()
        files = {script: script_of(folder, str(self._runner))}
        return await self._submit_as(gang, [task.binding.node], options, script, files)

    async def _submit_as(
        self, gang: GangLaunch, nodes: Sequence[str], options: list[str], script: Path,
        files: Mapping[Path, str], env: Mapping[str, str] = {},
    ) -> str:  # fmt: skip
        options += charges_of(gang, self._setup)
        options += lasting_of(gang, nodes, self._calendar, self._watch.partition, _wall_now())
        try:
            for path, text in files.items():
                path.write_text(text)
                path.chmod(0o644)  # Its user's srun reads it, whatever our umask.
        except OSError as error:
            raise BackendError(f"what starts task {gang.tasks[0].key}: {error}") from error
        async with self._calls:
            return await self._slurm.submit(options, str(script), env)

    async def _launch_ranks(self, gang: GangLaunch) -> Refused:
        """Start a gang as one Slurm job; all of it is refused, or none."""
        try:
            await self._start_ranks(gang)
        except EngineAway:
            raise
        except BackendError as error:
            return {task.key: str(error) for task in gang.tasks}
        return {}

    async def _start_ranks(self, gang: GangLaunch) -> None:
        known = {task.key: self._record(task.key) for task in gang.tasks}
        is_new = not any(known.values())
        records = {
            task.key: known[task.key] or await asyncio.to_thread(self._prepare, gang, task)
            for task in gang.tasks
        }
        lead = lead_of(gang.tasks[0].key)
        first = self._record(lead)
        number = first.job if first is not None else ""
        name = (name_of(self._prefix, lead), next(iter(records.values())).uid)
        self._launching.add(name)
        try:
            if not number:
                # An answer that got lost may have been a yes.
                row = None if is_new else (await self._slurm.jobs(name[0])).get(name)
                number = row.id if row else await self._submit_ranks(gang)
            for key, record in records.items():
                record = msgspec.structs.replace(record, job=number)
                self._follow(key, record)
                self._keep(key, record)
        finally:
            self._launching.discard(name)

    async def _submit_ranks(self, gang: GangLaunch) -> str:
        if why := misfit_of(gang):
            raise BackendError(why)
        folder = self._folder(gang.tasks[0].key).parent.absolute()
        hosts, script = folder / HOSTS, folder / SCRIPT
        first = str(self._folder(gang.tasks[0].key).absolute())
        path = os.environ.get("PATH", "/usr/bin:/bin")
        files = {
            hosts: hosts_of(gang),
            script: script_of_ranks(gang, str(folder), str(self._runner), path),
        }
        options = options_of_ranks(gang, self._prefix, self._partition, first)
        env = {"SLURM_HOSTFILE": str(hosts)}
        nodes = sorted({task.binding.node for task in gang.tasks})
        return await self._submit_as(gang, nodes, options, script, files, env)

    async def _cancel(self, job: str) -> None:
        async with self._calls:
            await self._slurm.cancel(job)

    def _prepare(self, gang: GangLaunch, task: TaskLaunch) -> Submitted:
        """Make a task's folder, its user's, with what its first process reads."""
        folder, identity = self._folder(task.key), gang.identity
        try:
            for parent in (folder.parent.parent, folder.parent):
                parent.mkdir(exist_ok=True)
                parent.chmod(0o711)
            folder.mkdir(mode=0o700, exist_ok=True)
            path = folder / "request.json"
            path.unlink(missing_ok=True)
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(document_of(gang, task, self._images.program, bubblewrap()))
                if identity is not None:
                    os.fchown(fd, identity.uid, identity.gid)
            if identity is not None:
                os.chown(folder, identity.uid, identity.gid)
            uid = identity.uid if identity is not None else os.geteuid()
            share = share_of(task) if gang.mpi.by_engine else None
            record = Submitted(
                uid, identity, node=task.binding.node, share=share,
                has_devices=bool(task.binding.types),
            )  # fmt: skip
            self._keep(task.key, record)
        except OSError as error:
            raise BackendError(f"the folder of task {task.key}: {error}") from error
        return record

    async def open_barrier(self, keys: Sequence[TaskKey]) -> None:
        for key in keys:
            self._put(key, "go", "")
            self._looks.news(key, monotonic())

    async def stop(
        self, key: TaskKey, signal: str, grace_ms: Millis, cause: StopCause | None = None
    ) -> None:
        record = self._record(key)
        if record is None:
            return
        if cause is not None:
            record = msgspec.structs.replace(record, cause=cause)
            self._keep(key, record)
        self._follow(key, self._live.get(key, record))
        self._put(key, "stop", f"{signal} {grace_ms}")
        self._looks.news(key, monotonic())
        self._overdue.setdefault(key, monotonic() + grace_ms / 1000 + OVERDUE_S)
        if not record.job and self._row(key, record) is None:
            await self._ask()  # An answer that got lost may have been a yes.
        row = self._row(key, record)
        number = row.id if row else record.job
        if number and (row is None or row.state in WAITS) and not self._sign(key):
            await self._cancel(number)
            self._asked = 0.0  # Ask soon: of what never began Slurm alone tells the end.

    async def freeze(self, keys: Sequence[TaskKey], no: int) -> None:
        """Do nothing: a backend without this ability is never asked."""

    async def thaw(self, key: TaskKey) -> None:
        """Do nothing, as `freeze`."""

    def images(self) -> ApptainerImages:
        return self._images

    async def highest_job(self) -> JobId:
        names = [path.name for path in (self._root / "tasks").glob("*")]
        return JobId(max((int(name) for name in names if name.isdecimal()), default=0))

    async def observe(self, keys: Sequence[TaskKey]) -> Sequence[TaskReport]:
        found: list[TaskReport] = []
        for key in keys:
            record = self._numbered(key)
            told = self._read(key, record) if record is not None else None
            if record is None or (told is None and not record.job):
                continue  # Launched again, it is looked for by its name.
            told = told or TaskReport(key, Seen.UNKNOWN)
            if told.seen is not Seen.ENDED:
                self._follow(key, record)
            found.append(told)
        self._parted, self._is_adopted = monotonic(), True
        return found

    def _numbered(self, key: TaskKey) -> Submitted | None:
        """Return what is kept of a task, with the number that its lost answer had."""
        record = self._record(key)
        row = self._row(key, record) if record is not None else None
        if record is None or record.job or row is None:
            return record
        record = msgspec.structs.replace(record, job=row.id)
        self._keep(key, record)
        return record

    def enter_argv(self, key: TaskKey, argv: Sequence[str]) -> list[str]:
        record = self._record(key)
        if record is None or not record.job:
            raise BackendError(f"task {key} has no job in Slurm")
        if record.identity is None and record.uid != os.geteuid():
            raise BackendError(f"an older version started task {key}: its groups are not known")
        folder = self._folder(key).absolute()
        code = f"{folder}/code.{token_hex(8)}"
        inside = inside_argv(str(self._runner), str(folder), code, argv)
        node = record.node if record.share is not None else ""
        around = client.surroundings()
        return enter_argv(record.job, record.identity, around, code, inside, node)

    # ── nodes ───────────────────────────────────────────────────────────────────────────

    async def close_node(self, node: str, reason: str) -> None:
        await self._watch.close(node, reason)

    async def open_node(self, node: str) -> None:
        await self._watch.open(node)

    def _hear_of_node(self, report: Report) -> None:
        """Pass on what is seen of a node. What ran on a lost one ends: where Slurm misses just
        its daemon, it would run on beside the next attempt until that is back."""
        if isinstance(report, NodeReport) and not report.alive:
            names = {node.name for node in self._nodes() if node.id == report.node}
            for key in [key for key, its in self._live.items() if its.node in names]:
                self._put(key, "stop", LOST)
        self._sink(report)

    def found_nodes(self) -> Mapping[str, Sequence[Node]]:
        return {"": self._watch.finder.nodes}

    @property
    def _calendar(self) -> Calendar:
        return Calendar(self._setup, self._user, tuple(self._watch.reservations or ()))

    def found_reservations(self) -> Mapping[str, Sequence[FoundReservation] | None]:
        known = self._watch.reservations is not None
        found = tuple(self._calendar.found(_wall_now())) if known else None
        return {self._setup.name or SLURM: found}

    def time_limit(self) -> Limit | None:
        there = self._watch.partition
        if there is None or there.max_min is None:
            return None
        return Limit(Millis(there.max_min * MINUTE), f"Slurm's partition {there.name}")

    def silence(self, node: str) -> Silence | None:
        away = self._contact
        return (
            Silence("Slurm", Millis(int(away.silent_s * 1000)), away.trouble)
            if away.trouble
            else None
        )

    # ── what it keeps ───────────────────────────────────────────────────────────────────

    async def read_log(self, key: TaskKey, stream: str, offset: int, size: int) -> LogChunk:
        if stream not in STREAMS:
            raise BackendError(f"there is no stream {stream!r}; there are stdout and stderr")
        pieces: list[Piece] = []
        with contextlib.ExitStack() as opened:
            for start, name in pieces_in(self._names(key), stream):
                fd = self._open(key, name)
                if fd is not None:
                    opened.callback(os.close, fd)
                    length = os.fstat(fd).st_size
                    pieces.append(Piece(start, length, partial(os.pread, fd)))
            return chunk_of(pieces, offset, size)

    def _names(self, key: TaskKey) -> Iterator[str]:
        """Go through the names in a task's folder, not through those behind a link."""
        try:
            at = os.open(self._folder(key), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            return
        try:
            with os.scandir(at) as entries:
                for entry in entries:
                    yield entry.name
        finally:
            os.close(at)

    async def forget(self, job: JobId) -> None:
        folder = self._root / "tasks" / str(job)
        await asyncio.to_thread(remove, None, str(folder))

    # ── looking ─────────────────────────────────────────────────────────────────────────

    async def _ask(self) -> None:
        """Ask Slurm for all its jobs. Raises BackendError; then what was known stays so."""
        before = self._rows
        async with self._contact:
            self._rows = await self._slurm.jobs()
        self._asked = monotonic()
        self._hear_of_changes(before)
        self._shares = {
            name: its for name, its in self._shares.items() if name in self._rows
        } | self._shares_now()
        if self._is_adopted:
            await self._end_strays()

    def _hear_of_changes(self, before: Rows) -> None:
        """See to it that tasks are looked at of which Slurm says something new."""
        new = {
            name
            for name, row in self._rows.items()
            if (known := before.get(name)) is None or known.state != row.state
        }
        for key, record in self._live.items() if new else ():
            if self._name(key, record) in new:
                self._looks.news(key, self._asked)

    async def _end_strays(self) -> None:
        wanted = {self._name(key, its) for key, its in self._live.items()}
        wanted |= self._launching
        for number in self._strays.overdue(self._rows, self._prefix, wanted, monotonic()):
            log.warning("a job without a task is ended", slurm_job=number)
            with contextlib.suppress(BackendError):
                await self._cancel(number)

    async def _keep_asking(self) -> None:
        """Ask, while there is anything to ask of: beside the looks, which wait for none."""
        is_quiet = monotonic() - self._parted > 2 * STRAY_S
        if not self._live and not self._strays and is_quiet:
            return
        if monotonic() - self._asked >= ASK_EVERY_S:
            with contextlib.suppress(BackendError):
                await self._ask()

    async def _keep_watching(self) -> None:
        if self._watch.is_due:
            with contextlib.suppress(BackendError):
                await self._look_at_nodes()

    async def _keep_accounting(self) -> None:
        with contextlib.suppress(BackendError):  # slurmdbd may be away for long.
            await self._accounts.ask()

    async def _look_at_nodes(self) -> None:
        """See how nodes are, and what others use of them: that takes a look at all jobs before
        and after, which are those that are asked for in any case."""
        if monotonic() - self._asked > nodes.LOOK_EVERY_S:
            await self._ask()
        before = by_node(self._rows, self._shares)
        lines = await self._watch.look()
        if any(any(line.used.values()) for line in lines):
            await self._ask()
        if lines:
            after = by_node(self._rows, self._shares)
            self._watch.tell_others(lines, before, after, self._prefix)

    def _follow(self, key: TaskKey, record: Submitted) -> None:
        """Look at a task from now on, until it has ended."""
        self._live[key] = record
        self._looks.begin(key, monotonic())

    async def _look_over(self) -> None:
        for key in self._looks.due(monotonic()):
            record = self._live.get(key)
            if record is None:
                continue  # It parted while another was looked at.
            try:
                await self._look_at(key, record)
            except BackendError as error:  # of one task, and no others have to wait for it
                log.warning("a task is looked at again later", task=str(key), why=str(error))

    def _row(self, key: TaskKey, record: Submitted) -> Row | None:
        return self._rows.get(self._name(key, record))

    def _name(self, key: TaskKey, record: Submitted) -> tuple[str, int]:
        """Return the name of a task's Slurm job, and its user."""
        of = key if record.share is None else lead_of(key)
        return name_of(self._prefix, of), record.uid

    def _shares_now(self) -> dict[tuple[str, int], dict[str, list[Share]]]:
        """Return what the jobs of gangs of ranks have on each node."""
        found: dict[tuple[str, int], dict[str, list[Share]]] = {}
        for key, record in self._live.items():
            if record.share is not None:
                nodes = found.setdefault(self._name(key, record), {})
                nodes.setdefault(record.node, []).append(record.share)
        return found

    async def _look_at(self, key: TaskKey, record: Submitted) -> None:
        row = self._row(key, record)
        told = self._read(key, record)
        is_heard = not self._contact.trouble
        if told is None and row is not None and row.state in WAITS and is_heard:
            await self._wait_for(key, record, row)
        elif told is None or told.seen is not Seen.ENDED:
            self._waiting.pop(key, None)
            if is_heard:
                await self._force(key, record)
            if is_heard and (row is None or row.state == "RUNNING"):
                told = await self._silent(key, row) or told
        if row is not None and row.state != "RUNNING":
            self._signs.pop(key, None)
        if told is None or self._told.get(key) == (told.seen, told.pid):
            return
        self._sink(told)
        self._looks.news(key, monotonic())
        self._told[key] = (told.seen, told.pid)
        if told.seen is Seen.ENDED:
            if told.exit is not None and told.exit.lost:
                self._put(key, "stop", LOST)  # Slurm may have lost it, and not ended it.
            self._part(key)
            if record.has_devices:
                self._accounts.ended(key, record.job)

    def _part(self, key: TaskKey) -> None:
        for known in (
            self._live, self._told, self._waiting, self._overdue, self._signs, self._read_at,
        ):  # fmt: skip
            known.pop(key, None)
        self._looks.part(key)
        self._parted = monotonic()

    async def _wait_for(self, key: TaskKey, record: Submitted, row: Row) -> None:
        """Take back what Slurm does not start; its reason is the job's."""
        since = self._waiting.setdefault(key, monotonic())
        waited_s = monotonic() - since
        is_passed_over = row.state == "PENDING" and row.reason not in NOT_YET
        if is_passed_over and waited_s < HURRY_S:
            self._watch.hurry(reserved="eserv" in row.reason)
        is_shut = is_passed_over and self._watch.shut_since(
            record.node, since - nodes.LOOK_EVERY_S
        )
        patience_s = SHUT_S if is_shut else START_S
        if waited_s < patience_s and row.reason not in NEVER:
            return
        await self._cancel(row.id)
        why = (
            "Slurm does not start it"
            if row.reason in NEVER
            else f"not started in {waited_s:.0f} s"
        )
        self._part(key)
        exit_ = Exit(platform_error=f"{why} on its node: {row.reason}")
        self._sink(TaskReport(key, Seen.ENDED, exit=exit_))

    async def _silent(self, key: TaskKey, row: Row | None) -> TaskReport | None:
        """Return the end of a task that shows no sign any more; None for any other.

        A slurmctld that is killed forgets what it took on in its last seconds. What runs goes
        on, unless Slurm ends it as one that it does not know. And it takes for running what
        went with its node, for half an hour where that was back at once, or whose processes
        were killed together with Slurm's own.
        """
        sign = self._sign(key)
        if row is not None and not sign:
            return None  # It comes up; `limits.phase` says for how long it may.
        known = self._signs.get(key)
        is_ending = row is None and key in self._overdue
        if known is None or (known[0] != sign and not is_ending):
            self._signs[key] = (sign, monotonic())
            return None
        if monotonic() - known[1] < (SILENT_S if sign else UNKNOWN_S):
            return None
        if row is not None:
            await self._cancel(row.id)
        self._put(key, "stop", LOST)  # Should it come after all.
        why = (
            "it shows no sign any more"
            if row
            else ("Slurm does not know it any more, and it shows no sign")
        )
        return TaskReport(key, Seen.ENDED, exit=Exit(lost=True, platform_error=why))

    def _sign(self, key: TaskKey) -> float:
        """Return when the first process of a task last showed itself; 0 if it never did."""
        try:
            return os.lstat(f"{self._folder_of(key)}/claim").st_mtime
        except OSError:
            return 0.0

    async def _force(self, key: TaskKey, record: Submitted) -> None:
        """End a task that did not end after its grace."""
        overdue = self._overdue.get(key)
        row = self._row(key, record)
        number = row.id if row else record.job
        if overdue is not None and monotonic() >= overdue and number:
            with contextlib.suppress(BackendError):
                await self._cancel(number)
            self._overdue[key] = monotonic() + OVERDUE_S

    def _read(self, key: TaskKey, record: Submitted) -> TaskReport | None:
        row, is_rank = self._row(key, record), record.share is not None
        status = self._status(key)
        told = report(key, status, row, is_rank=is_rank)
        if told is None:
            return None
        told = msgspec.structs.replace(told, engine_job=record.job)
        if is_rank and status is None:
            told = with_words(told, self._words(lead_of(key)))
        if told.seen is not Seen.ENDED or record.cause is None:
            return told
        return msgspec.structs.replace(told, stopped_for=record.cause)

    def _words(self, key: TaskKey) -> str:
        """Return what srun said in the job of a gang, by its rank 0."""
        fd = self._open(key, "slurm.log")
        if fd is None:
            return ""
        try:
            return os.read(fd, MOST_STATUS).decode(errors="replace")
        finally:
            os.close(fd)

    def _status(self, key: TaskKey) -> RunnerStatus | None:
        """Read what the first process of a task says, where that is news.

        It is opened every time: over NFS that alone asks whether there is a newer one.
        """
        fd = self._open(key, "status.json")
        if fd is None:
            return None
        try:
            found = os.fstat(fd)
            state = (found.st_ino, found.st_mtime_ns, found.st_size)
            known = self._read_at.get(key)
            if known is None or known[0] != state:
                known = self._read_at[key] = (state, status_from(os.read(fd, MOST_STATUS)))
            return known[1]
        finally:
            os.close(fd)

    # ── files ───────────────────────────────────────────────────────────────────────────

    def _folder(self, key: TaskKey) -> Path:
        return Path(self._folder_of(key))

    def _folder_of(self, key: TaskKey) -> str:
        return f"{self._root}/tasks/{key.job}/{key.attempt}/{key.index}"

    def _record(self, key: TaskKey) -> Submitted | None:
        known = self._live.get(key)
        if known is not None:
            return known
        return read_record(self._folder(key).with_suffix(".json"), Submitted, key)

    def _keep(self, key: TaskKey, record: Submitted) -> None:
        try:
            write_whole(self._folder(key).with_suffix(".json"), msgspec.json.encode(record))
        except OSError as error:
            raise BackendError(f"what task {key} is cannot be kept: {error}") from error
        if key in self._live:
            self._live[key] = record

    def _open(self, key: TaskKey, name: str) -> int | None:
        """Open a file of a task, if it is a plain one of its user; None otherwise."""
        record = self._record(key)
        try:
            fd = os.open(
                f"{self._folder_of(key)}/{name}",
                os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
            )
        except OSError:
            return None
        found = os.fstat(fd)
        if record is None or not stat.S_ISREG(found.st_mode) or found.st_uid != record.uid:
            os.close(fd)
            return None
        return fd

    def _put(self, key: TaskKey, name: str, text: str) -> None:
        """Leave an order for the first process of a task, in a file that appears as a whole."""
        folder = self._folder(key)
        try:
            at = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return  # It never was, or is forgotten.
        try:
            part = f"{name}.part"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part, dir_fd=at)
            # New, so that it is not a link to what else the service may write.
            fd = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=at)
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                os.fchmod(fd, 0o644)
                file.write(text)
            os.rename(part, name, src_dir_fd=at, dst_dir_fd=at)
        except OSError as error:
            log.warning("an order cannot be given to a task", task=str(key), why=str(error))
        finally:
            os.close(at)


def _wall_now() -> WallTime:
    return WallTime(time_ns() // 1_000_000)


def _source_of(module: str) -> str:
    found = find_spec(module)
    assert found is not None, module
    assert found.origin is not None, module
    return Path(found.origin).read_text()
