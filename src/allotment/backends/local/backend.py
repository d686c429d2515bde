"""The local backend: tasks as supervised processes of this machine.

Files are the truth, datagrams a nudge: after every change a supervisor sends its task's key,
and we read the task's status file. What a lost datagram would have told is seen without it:
that a task is over, within seconds, as the file is gone that stands for one that may still
run; anything else within a minute. A launcher that is gone is started again within seconds.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
import structlog

from allotment.backends.local.agreeing import Said
from allotment.backends.local.cdi.drivers import Drivers, DriversInImages
from allotment.backends.local.cdi.found import Specifications
from allotment.backends.local.device_memory import ByNvml, DeviceMemory
from allotment.backends.local.device_use import device_uses_of
from allotment.backends.local.device_watch import LOOK_EVERY_S as DEVICES_EVERY_S
from allotment.backends.local.device_watch import DeviceWatch, Locate
from allotment.backends.local.driver.by_driver import (
    ByDriver,
    allow,
    how_lost,
)
from allotment.backends.local.gpu_peaks import GpuPeaks
from allotment.backends.local.images.images import Images, Ready
from allotment.backends.local.images.trouble import ImageTrouble
from allotment.backends.local.in_image import span_of, with_image
from allotment.backends.local.launcher_client import LauncherClient
from allotment.backends.local.output import read_output
from allotment.backends.local.runner import layout
from allotment.backends.local.runner.claim import is_held
from allotment.backends.local.runner.schema import Request
from allotment.backends.local.sharing import mps_limits
from allotment.backends.local.suspending import Suspending, give_up, suspension_in
from allotment.backends.local.task_use import uses_of
from allotment.backends.local.ways import Here
from allotment.backends.status import RunnerStatus, indexes_in, report_of, status_from
from allotment.model.diagnosis import Diagnosis, Exit
from allotment.model.engines import Ability
from allotment.model.errors import BackendError, Code, Rejected
from allotment.model.ids import AttemptNo, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.quantity import Millis
from allotment.model.reasons import StopCause
from allotment.model.reports import Seen, TaskReport
from allotment.rights.removing import remove
from allotment.service.abilities import INSTEAD
from allotment.service.forever import forever
from allotment.service.isolated import isolated
from allotment.service.ports import (
    DataMount,
    DeviceUse,
    GangLaunch,
    ImagePython,
    ImageWish,
    LogChunk,
    Refused,
    Report,
    TaskLaunch,
    TaskUse,
)

log = structlog.get_logger("allot.local")

LOOK_EVERY_S = 3.0
PARTS = 16
"""At each look over all tasks, so small a part of them is looked at though nothing is seen."""
MOST_UNSTARTED = 1000
"""Of so many tasks that had no process it is remembered how they ended."""
ENTER = "allotment.backends.local.runner.enter"
ROLE = "task"
"""Tasks are numbered over all roles, so their folders all have this one role."""


class LocalBackend:
    """Runs tasks here. `device_files` gives the files of each device index, none if virtual."""

    name = "local"
    abilities = frozenset(Ability) - {Ability.PMI, Ability.MPIRUN}

    def __init__(
        self,
        state_dir: Path,
        device_files: Mapping[int, tuple[str, ...]] | None = None,
        images: Images | None = None,
        specifications: Specifications | None = None,
        memory: DeviceMemory | None = None,
    ) -> None:
        self._images = images
        self._drivers: DriversInImages | None = None
        if images is not None:
            found = specifications or Specifications()
            self._drivers = DriversInImages(images.store, found)
        self._preparing: dict[TaskKey, asyncio.Task[None]] = {}
        """Tasks whose images come."""
        self._stopped: dict[TaskKey, StopCause | None] = {}
        """Of those, what was stopped meanwhile, and for what."""
        self._launching: set[TaskKey] = set()
        """Of those, whose image is there: what was begun is not broken off."""
        self._unstarted: dict[TaskKey, TaskReport] = {}
        """How tasks ended that had no process: nothing is on disk of them."""
        self._held: dict[TaskKey, int] = {}
        """Descriptors that keep images in the store until their tasks do it themselves."""
        self.isolation: Mapping[str, object] = {}
        """What keeps tasks apart here, in the launcher's words."""
        self._no_images = ""
        """Why images cannot be run here; '' where they can."""
        self._state_dir = state_dir
        self._device_files = device_files or {}
        self._launcher = LauncherClient(state_dir)
        self._no_launcher = ""
        """Why none could be started, at the last try."""
        self._sink: Callable[[Report], None] = lambda report: None
        self._live: set[TaskKey] = set()
        self._told: dict[TaskKey, tuple[object, ...]] = {}
        self._part = 0
        self._socket: socket.socket | None = None
        self._looking: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._devices: DeviceWatch | None = None
        self._locate: Locate = dict
        self._peaks = GpuPeaks()
        self._by_driver: ByDriver | None = None
        self._memory = memory
        self._suspending: dict[JobId, asyncio.Task[None]] = {}
        """Suspensions under way, and what gives device memory back after one."""
        self._news = asyncio.Event()
        """Set when a supervisor wrote something."""

    # ── life ────────────────────────────────────────────────────────────────────────────

    async def start(self, sink: Callable[[Report], None]) -> None:
        self._sink = sink
        (self._state_dir / layout.RUN).mkdir(mode=0o700, exist_ok=True)
        told = await self._launcher.hello()
        self.isolation = told
        if why := told.get("missing", {}).get("images", ""):
            self._no_images = f"No image can be run on this machine: {why}."
        if self._images is not None:
            await self._images.start()
        self._socket = _listen(self._state_dir)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket, self._nudged)
        self._looking = loop.create_task(forever(self._look_over, LOOK_EVERY_S, "tasks"))
        if self._devices is not None:
            watch = partial(self._watch, self._devices)
            self._watching = loop.create_task(forever(watch, DEVICES_EVERY_S, "devices"))
            files, locate = self._device_files, self._locate
            self._by_driver = ByDriver(self._state_dir, files, locate, self._control)
            self._by_driver.start()

    def watch_devices(self, locate: Locate) -> None:
        """Distinguish of the health of these devices of this machine from the start on."""
        self._devices, self._locate = DeviceWatch(locate), locate
        self._memory = self._memory or ByNvml(locate)

    async def close(self) -> None:
        for key, task in list(self._preparing.items()):
            if key not in self._launching:
                task.cancel()
        await asyncio.gather(*self._preparing.values(), return_exceptions=True)
        if self._images is not None:
            await self._images.close()
        if self._looking is not None:
            self._looking.cancel()
        for work in self._suspending.values():
            work.cancel()
        await asyncio.gather(*self._suspending.values(), return_exceptions=True)
        if self._by_driver is not None:
            await self._by_driver.close()
        if self._watching is not None and self._devices is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._devices.close()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            with contextlib.suppress(OSError):
                (self._state_dir / layout.REPORT).unlink()
        if not self._live:
            await self._launcher.retire()
        await self._launcher.close()

    # ── tasks ───────────────────────────────────────────────────────────────────────────

    async def launch(self, gang: GangLaunch) -> Refused:
        refused: dict[TaskKey, str] = {}
        for task in gang.tasks:
            self._peaks.begin(task.key, task.binding.devices, task.resources.gpu_milli)
            try:
                await self._launch(gang, task)
            except BackendError as error:
                refused[task.key] = str(error)
        return refused

    async def _launch(self, gang: GangLaunch, task: TaskLaunch) -> None:
        if gang.image_wish is None:
            await self._start(self._translate(gang, task), task, gang)
        elif self._read(task.key) is not None:
            self._look_at(task.key)
        elif task.key not in self._preparing:
            self._unstarted.pop(task.key, None)
            self._live.add(task.key)
            made = self._translate(gang, task)
            work = self._bring_image(task, made, gang.image_wish, gang)
            self._preparing[task.key] = asyncio.get_running_loop().create_task(work)
            # Now it has begun: of what is cancelled before that, nothing runs, not its end.
            await asyncio.sleep(0)

    async def _start(self, made: Request, task: TaskLaunch, gang: GangLaunch) -> None:
        key = task.key
        self._live.add(key)
        try:
            answer = await self._launcher.launch(made)
        except BackendError:
            if self._read(key) is None:
                self._live.discard(key)
            raise
        if gang.by_driver and len(gang.tasks) == 1:
            allow(self._folder(key), task.binding.devices)  # its folder is there now
        if not answer.get("launched"):
            self._look_at(key)

    async def _bring_image(
        self, task: TaskLaunch, made: Request, wish: ImageWish, gang: GangLaunch
    ) -> None:
        """Have an image there, and start its task; what keeps it from that is told."""
        key = task.key
        self._sink(TaskReport(key, Seen.UNKNOWN, held_up="its image is being fetched"))
        try:
            ready = await self.images().ready(wish)
            self._held[key] = ready.hold
            drivers = await self._drivers_for(made, ready)
            self._launching.add(key)
            made = with_image(made, wish, ready, gang.named, gang.packages, drivers)
            await self._start(made, task, gang)
        except asyncio.CancelledError:
            if key in self._stopped:
                self._never_started(key, Exit(signal=signal.SIGTERM), None)
        except ImageTrouble as trouble:
            told = Exit(platform_error=trouble.cause)
            self._never_started(key, told, trouble.diagnosis())
        except Exception as error:
            if not isinstance(error, BackendError | Rejected):
                log.exception("a task with an image could not be started", task=str(key))
            self._never_started(key, Exit(platform_error=str(error)), None)
        finally:
            self._preparing.pop(key, None)
            self._stopped.pop(key, None)
            self._launching.discard(key)

    async def _drivers_for(self, made: Request, ready: Ready) -> Drivers | None:
        """Return what a task's devices need in its image. Raises BackendError."""
        if self._drivers is None:
            return None
        uid = made.get("uid", os.geteuid())
        return await self._drivers.of(uid, made.get("devices", ()), ready)

    async def _stopped_before(self, key: TaskKey, cause: StopCause | None) -> bool:
        """Stop a task whose image still comes; False where its process is, or may be, there."""
        preparing = self._preparing.get(key)
        if preparing is None:
            return False
        if key not in self._launching:
            self._stopped[key] = cause
            preparing.cancel()
            return True
        await asyncio.wait([preparing])
        return False

    def _never_started(self, key: TaskKey, told: Exit, why: Diagnosis | None) -> None:
        self._live.discard(key)
        self._let_image_go(key)
        cause = self._stopped.get(key)
        report = TaskReport(key, Seen.ENDED, exit=told, diagnosis=why, stopped_for=cause)
        while len(self._unstarted) >= MOST_UNSTARTED:
            del self._unstarted[next(iter(self._unstarted))]
        self._unstarted[key] = report
        self._sink(report)

    def _let_image_go(self, key: TaskKey) -> None:
        """Let go of a task's image: from here on its supervisor holds it."""
        if (held := self._held.pop(key, None)) is not None:
            os.close(held)

    async def open_barrier(self, keys: Sequence[TaskKey]) -> None:
        for key in keys:
            self._control(key, "go")

    async def stop(
        self, key: TaskKey, signal: str, grace_ms: Millis, cause: StopCause | None = None
    ) -> None:
        if await self._stopped_before(key, cause):
            return
        order = f"stop {signal} {grace_ms}"
        if cause is not None:
            # On a full disk it is only told less well to books that are restored.
            with contextlib.suppress(OSError):
                (self._folder(key) / STOPPED_FOR).write_text(cause.value)
        await self._leave_off(key.job)
        if self._by_driver is not None and (task := self.here(key)) is not None:
            await self._by_driver.let_save(task)
        self._control(key, order)

    async def freeze(
        self, keys: Sequence[TaskKey], no: int, *, frees: bool | None = None
    ) -> None:
        """Suspend gangs. Where ranks elsewhere belong to them, `frees` says what all agreed."""
        for key in keys:
            self._peaks.freeze(key)
        for job in {key.job for key in keys}:
            await self._leave_off(job)
            own = [key for key in keys if key.job == job]
            suspending = self._a_suspension()
            work = self._suspend(suspending, own, no, suspending.begin(own), frees)
            self._suspending[job] = asyncio.get_running_loop().create_task(work)

    def _a_suspension(self) -> Suspending:
        ways = (self._by_driver,) if self._by_driver is not None else ()
        return Suspending(self, self._memory, ways, self._news)

    async def ask_ranks(self, keys: Sequence[TaskKey]) -> Said:
        """Return what is said of the ranks of one gang that is to be suspended."""
        for job in {key.job for key in keys}:
            await self._leave_off(job)
        return await self._a_suspension().ask(keys)

    async def stand_ranks(self, keys: Sequence[TaskKey], after: int, wait_s: float) -> Said:
        """Let the ranks of one gang stop after a step; return what is said in time."""
        return await self._a_suspension().stand(keys, after, wait_s)

    async def _suspend(
        self,
        suspending: Suspending,
        keys: Sequence[TaskKey],
        no: int,
        asked: int,
        frees: bool | None,
    ) -> None:
        """Suspend tasks of one gang that were asked, and tell how they are then."""
        try:
            await suspending.run(keys, no, asked, frees)
        except Exception:
            log.exception("a suspension failed; it is only frozen", job=keys[0].job)
            for key in keys:
                self.halt(key)
                give_up(self._folder(key), no)
        for key in keys:
            self._look_at(key)

    async def _leave_off(self, job: JobId) -> None:
        """Begin nothing more of a suspension, nor wait for room to undo one: what comes next
        undoes what was done of it."""
        while (work := self._suspending.get(job)) is not None:
            work.cancel()
            # It stays until then: orders that come meanwhile wait, too, each in its turn.
            await asyncio.wait([work])
            if self._suspending.get(job) is work:
                del self._suspending[job]

    async def thaw(self, key: TaskKey) -> None:
        self._peaks.thaw(key)
        await self._leave_off(key.job)
        self._control(key, "thaw")
        way, task = self._by_driver, self.here(key)
        if way is not None and task is not None and way.has_taken(task):
            # Not awaited: it may wait for room, for which no order to end waits.
            undoing = asyncio.get_running_loop().create_task(way.undo(task))
            self._suspending[key.job] = undoing

    # ── for suspensions ─────────────────────────────────────────────────────────────────

    def here(self, key: TaskKey) -> Here | None:
        status = self.status(key)
        if status is None or status.phase != "running" or not status.pid:
            return None
        devices = indexes_in(status.pause.devices) if status.pause is not None else ()
        supervisor = status.supervisor_pid or status.pid
        return Here(key, status.pid, supervisor, devices, self._folder(key))

    def status(self, key: TaskKey) -> RunnerStatus | None:
        return _status_in(self._folder(key) / layout.STATUS)

    def order(self, key: TaskKey, line: str) -> None:
        self._control(key, line)

    def halt(self, key: TaskKey) -> None:
        if not how_lost(self._folder(key)):  # It was killed, and nothing frozen dies.
            self._control(key, "freeze")

    async def highest_job(self) -> JobId:
        folder = self._state_dir / layout.TASKS
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return JobId(max((int(name) for name in names if name.isdecimal()), default=0))

    async def observe(self, keys: Sequence[TaskKey]) -> Sequence[TaskReport]:
        found: list[TaskReport] = []
        for key in keys:
            report = self._read(key) or self._unstarted.get(key)
            if report is None and key in self._preparing:
                report = TaskReport(key, Seen.UNKNOWN)
            if report is not None:
                found.append(report)
                if report.seen is not Seen.ENDED:
                    self._live.add(key)
        return found

    async def read_log(self, key: TaskKey, stream: str, offset: int, size: int) -> LogChunk:
        if stream not in layout.STREAMS:
            raise BackendError(f"there is no stream {stream!r}; there are stdout and stderr")
        try:
            return read_output(self._folder(key), stream, offset, size)
        except OSError as error:
            raise BackendError(f"the output of task {key} cannot be read: {error}") from error

    async def uses(self, keys: Sequence[TaskKey]) -> Sequence[TaskUse]:
        roots = {key: told.pid for key in keys if (told := self._read(key)) and told.pid}
        return await asyncio.to_thread(uses_of, roots)

    async def device_uses(self) -> Mapping[NodeId, Sequence[DeviceUse]]:
        return await asyncio.to_thread(device_uses_of, self._locate())

    async def forget(self, job: JobId) -> None:
        folder = self._state_dir / layout.TASKS / str(job)
        await asyncio.to_thread(remove, None, str(folder))

    def enter_argv(self, key: TaskKey, argv: Sequence[str]) -> list[str]:
        folder = str(self._folder(key).absolute())
        return isolated(ENTER, folder, "--", *argv, bare=True)

    # ── datasets ────────────────────────────────────────────────────────────────────────

    async def why_no_mounts(self, mounts: Sequence[DataMount]) -> str:  # noqa: ARG002 - all alike
        if self.isolation.get("namespaces") in ("own", "bwrap"):
            return ""
        return (
            "No dataset can be mounted on this machine: it has neither namespaces of our own "
            "nor bubblewrap (`allot doctor` says why)."
        )

    # ── images ──────────────────────────────────────────────────────────────────────────

    async def pythons_in(self, wish: ImageWish) -> Sequence[ImagePython]:
        return await self.images().pythons_in(wish)

    def images(self) -> Images:
        """Return where images are; Raises Rejected where none can be run."""
        if self._images is None or self._no_images:
            why = self._no_images or "No engine here can run images."
            raise Rejected(Code.NOT_SUPPORTED, why, INSTEAD[Ability.IMAGES])
        return self._images

    def runs(self, job: JobId) -> bool:
        """Whether tasks of a job run here, or are about to."""
        return any(key.job == job for key in tuple(self._live))

    @property
    def is_idle(self) -> bool:
        """Whether no task is known to run."""
        return not self._live

    # ── looking ─────────────────────────────────────────────────────────────────────────

    def _nudged(self) -> None:
        assert self._socket is not None
        while True:
            try:
                key = _key_of(self._socket.recv(256).decode(errors="replace"))
            except BlockingIOError:
                return
            self._news.set()
            if key is not None:
                self._look_at(key)

    async def _look_over(self) -> None:
        self._part = (self._part + 1) % PARTS
        if self._live and self._launcher.is_gone:
            await self._start_launcher()
        running = {entry.name for entry in os.scandir(self._state_dir / layout.LIVE)}
        for key in list(self._live):
            if (key.job + key.index) % PARTS == self._part or task_name(key) not in running:
                self._look_at(key)

    async def _start_launcher(self) -> None:
        """Have a new launcher clear up after the one before: until then no task is lost."""
        why = ""
        try:
            await self._launcher.hello()
        except BackendError as error:
            why = str(error)
        if why and why != self._no_launcher:
            log.error("tasks that are lost are not seen: there is no launcher", why=why)
        self._no_launcher = why

    async def _watch(self, devices: DeviceWatch) -> None:
        for report in await asyncio.to_thread(devices.look):
            self._sink(report)
        self._peaks.see(devices.uses())

    def _look_at(self, key: TaskKey) -> None:
        report = self._read(key)
        if report is None:
            return
        mark = (report.seen, report.pid, report.suspension, report.held_up)
        if self._told.get(key) == mark:
            return
        try:
            self._sink(self._peaks.end(report) if report.seen is Seen.ENDED else report)
        except Exception:
            # Told again when it is looked at again: nothing else may suffer from it.
            log.exception("what became of a task is not understood", task=str(key))
            return
        self._told[key] = mark
        self._let_image_go(key)
        if report.seen is Seen.ENDED:
            self._live.discard(key)
            self._told.pop(key, None)

    def _read(self, key: TaskKey) -> TaskReport | None:
        """Read what is known of a task; None for one that was never launched."""
        report = self._reported(key)
        if report is None or report.seen is not Seen.ENDED:
            return report
        return msgspec.structs.replace(report, stopped_for=stop_cause_in(self._folder(key)))

    def _reported(self, key: TaskKey) -> TaskReport | None:
        folder = self._folder(key)
        status = _status_in(folder / layout.STATUS)
        if status is not None and status.phase == "ended":
            return report_of(key, _blamed(folder, status))
        if not (folder / layout.CLAIM).exists():
            return None
        if is_held(str(folder / layout.CLAIM)) or self._is_to_be_cleared(key):
            report = report_of(key, status) if status else None
            how = suspension_in(folder) if report is not None else None
            return msgspec.structs.replace(report, suspension=how) if report and how else report
        # No process is at it any more. Its last words may have come between our looks, or,
        # when the disk was full, be written over its claim.
        for place in (layout.STATUS, layout.CLAIM):
            last = _status_in(folder / place)
            if last is not None and last.phase == "ended":
                return report_of(key, last)
        if status is None:
            return TaskReport(key, Seen.ENDED, exit=Exit(lost=True))
        return report_of(key, msgspec.structs.replace(status, phase="ended", lost=True))

    def _is_to_be_cleared(self, key: TaskKey) -> bool:
        """Whether our launcher is yet to end what a killed supervisor left, and to say so.

        What it left may be about to die, with the task's devices in use until it has.
        """
        is_ours = self._socket is not None
        return is_ours and (self._state_dir / layout.live_file(task_name(key))).exists()

    # ── small parts ─────────────────────────────────────────────────────────────────────

    def _folder(self, key: TaskKey) -> Path:
        return self._state_dir / layout.task_dir(task_name(key))

    def _control(self, key: TaskKey, line: str) -> None:
        """Write to a task's control FIFO; a task that is gone needs no control."""
        try:
            fd = os.open(self._folder(key) / layout.CONTROL, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            self._look_at(key)
            return
        try:
            os.write(fd, line.encode() + b"\n")
        except OSError:
            self._look_at(key)
        finally:
            os.close(fd)

    def _translate(self, gang: GangLaunch, task: TaskLaunch) -> Request:
        """Put what is asked for in the launcher's words."""
        need = task.resources
        indexes = task.binding.devices
        devices = [path for index in indexes for path in self._device_files.get(index, ())]
        made: Request = {
            "key": task_name(task.key),
            "argv": list(task.argv),
            "env": {**dict(task.env), **mps_limits(need, len(devices))},
            "cwd": gang.workdir,
            "read_only": list(gang.read_only),
            "writable": list(gang.writable),
            "devices": devices,
            "cpu_milli": need.cpu_milli,
            "memory_bytes": need.memory,
            "disk_bytes": need.disk,
            "pids": gang.pids,
            "log_bytes": gang.log_bytes,
            "hold_at_barrier": gang.at_barrier,
            "hold_on_failure_ms": gang.hold_on_failure_ms,
        }
        if gang.identity is not None:
            made["uid"] = gang.identity.uid
            made["gid"] = gang.identity.gid
            made["groups"] = list(gang.identity.groups)
        if gang.phases:
            made["phases"] = [span_of(phase) for phase in gang.phases]
        if gang.data:
            made["mounts"] = [
                {"source": each.source, "at": each.at, "write": each.write}
                for each in gang.data
            ]
        return made


# ── what is written of a task ────────────────────────────────────────────────────────────


STOPPED_FOR = "stopped-for"
"""Beside a task's status: the cause it was told to stop for."""
STOPPED = {"stop", "grace", "kill"}
"""What a status says of a task that was stopped from outside."""


def stop_cause_in(folder: Path) -> StopCause | None:
    """Read for what a task was stopped; None if it ended by itself before it heard."""
    status = _status_in(folder / layout.STATUS)
    if status is None or status.ended_by not in STOPPED:
        return None
    try:
        return StopCause((folder / STOPPED_FOR).read_text())
    except (OSError, ValueError):
        return None


def _blamed(folder: Path, status: RunnerStatus) -> RunnerStatus:
    """Return an end that blames no task which the driver lost."""
    if status.ended_by in STOPPED and (words := how_lost(folder)):
        return msgspec.structs.replace(status, platform_error=words)
    return status


def _status_in(path: Path) -> RunnerStatus | None:
    """Read a status; None when there is none, or none that can be read."""
    try:
        return status_from(path.read_bytes())
    except OSError:
        return None


def task_name(key: TaskKey) -> str:
    """Return a task's key in the launcher's words."""
    return f"{key.job}.{key.attempt}.{ROLE}.{key.index}"


def _key_of(name: str) -> TaskKey | None:
    try:
        job, attempt, _, index = name.split(".")
        return TaskKey(JobId(int(job)), AttemptNo(int(attempt)), TaskIndex(int(index)))
    except ValueError:
        return None


def _listen(state_dir: Path) -> socket.socket:
    """Bind the datagram socket that supervisors nudge."""
    path = state_dir / layout.REPORT
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        made.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
    path.chmod(0o600)
    return made
