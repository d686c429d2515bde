"""The agent of a node: the local engine, asked by the service over a connection it dials.

    agent FOLDER        with the note (JSON) on standard input

It ends with 0 when the service lets it go or its lease is over, and with 3 when it is not let
in. Ended otherwise it is started again, and finds its tasks again.
"""

import asyncio
import os
import ssl
import sys
from collections.abc import Awaitable
from pathlib import Path
from time import monotonic

import msgspec
import uvloop

from allotment.backends.local.agreeing import Said
from allotment.backends.local.backend import LocalBackend
from allotment.backends.local.device_watch import Known
from allotment.backends.local.images.images import Images
from allotment.backends.local.machine import SHARED_FILES, DeviceFiles, real_devices
from allotment.backends.pilot.door import ADDRESS
from allotment.backends.pilot.fence import LEFT, REFUSED
from allotment.backends.pilot.file_messages import FileOp
from allotment.backends.pilot.image_messages import (
    ImageOp,
    ImagesTold,
    ListImages,
    RemoveImage,
    WarmImage,
)
from allotment.backends.pilot.messages import (
    PROTOCOL,
    Answer,
    AskRanks,
    Call,
    DeviceUses,
    Fault,
    Freeze,
    FromAgent,
    FromService,
    HealthNews,
    Hello,
    Isolation,
    Launch,
    Leave,
    Note,
    Observe,
    Op,
    OpenBarrier,
    Ping,
    ReadLog,
    Refused,
    StandRanks,
    Stop,
    TaskNews,
    Thaw,
    Uses,
    Welcome,
    framed,
    next_frame,
    packed,
)
from allotment.backends.pilot.node_files import NodeFiles
from allotment.backends.status import PauseSaid
from allotment.model.errors import BackendError, Code, Rejected
from allotment.model.health import HealthReport
from allotment.model.ids import NodeId, TaskKey
from allotment.model.reports import TaskReport
from allotment.service.ports import GangLaunch, Report

DIAL_S = 10.0
LOOK_EVERY_S = 15.0
IMAGES_S = 30.0
"""For what a service asks of images: shorter than it waits for any answer."""
LEASE_EVERY_S = 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
HERE = NodeId(0)
"""The agent does not know its node's number; the service puts it in."""

_decoder = msgspec.msgpack.Decoder[FromService](FromService)


def main() -> None:
    """Serve until the end of the node's hold."""
    note = msgspec.json.decode(sys.stdin.buffer.read(), type=Note)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(Agent(Path(sys.argv[1]), note).run())
    sys.exit(code)


class Agent:
    """One node's end of the link."""

    def __init__(self, folder: Path, note: Note) -> None:
        self._folder = folder
        self._note = note
        found = real_devices()
        self._files = (
            device_files(note)
            if not found
            else {int(device.index): (*paths, *SHARED_FILES) for device, paths in found}
        )
        self._image_bytes = 0
        images = Images(folder, lambda: self._image_bytes)
        self._backend = LocalBackend(folder, self._files, images)
        self._files_of_jobs = NodeFiles(folder, self._backend)
        if found:
            known: Known = {device.uuid: (HERE, device.index) for device, _ in found}
            self._backend.watch_devices(lambda: known)
        self._writer: asyncio.StreamWriter | None = None
        self._heard = monotonic()
        self._calls: set[asyncio.Task[None]] = set()
        self._is_leaving = asyncio.Event()

    async def run(self) -> int:
        """Run the agent; return its exit code."""
        await self._backend.start(self._tell)
        serving = asyncio.create_task(self._serve())
        leaving = asyncio.create_task(self._is_leaving.wait())
        lease = asyncio.create_task(self._lease())
        await asyncio.wait((serving, leaving, lease), return_when=asyncio.FIRST_COMPLETED)
        for task in (serving, leaving, lease):
            task.cancel()
        if serving.done() and not serving.cancelled():
            return serving.result()
        await self._backend.close()
        return LEFT

    async def _lease(self) -> None:
        """Return when nothing was heard for too long: then the node's tasks end with us."""
        while (left := self._heard + self._patience_s - monotonic()) > 0:
            await asyncio.sleep(min(left, LEASE_EVERY_S))
        print(f"allotment: nothing heard for {self._patience_s:.0f} s, so it ends", flush=True)

    @property
    def _patience_s(self) -> float:
        """For how long it does without the service: a node on which nothing runs, for less."""
        note = self._note
        return min(note.idle_s, note.lease_s) if self._backend.is_idle else note.lease_s

    # ── the connection ──────────────────────────────────────────────────────────────────

    async def _serve(self) -> int:
        """Dial, serve, dial again. Returns when we are not let in."""
        pause, told = FIRST_PAUSE_S, ""
        while True:
            try:
                reader, writer = await self._dial()
                pause, told = FIRST_PAUSE_S, ""
                await self._attend(reader, writer)
            except _NotLetIn as refusal:
                print(f"allotment: the service refuses this runner: {refusal}", flush=True)
                return REFUSED
            except FileNotFoundError:
                if not self._folder.exists():
                    print("allotment: its folder was removed, so it ends", flush=True)
                    return LEFT
            except (OSError, EOFError, ValueError, TimeoutError) as error:
                if str(error) != told:
                    told = str(error)
                    print(f"allotment: the service does not answer: {told}", flush=True)
            finally:
                if self._writer is not None:
                    self._writer.close()
                    self._writer = None
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect and be let in. Raises OSError, ValueError, _NotLetIn."""
        # On a shared disk it is looked up for every dial: a service may move.
        told = self._note.address or (self._folder.parent.parent / ADDRESS).read_text()
        host, port = told.split()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # Just this one certificate is believed.
        context.load_verify_locations(cadata=self._note.certificate)
        async with asyncio.timeout(DIAL_S):
            reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
            writer.write(framed(self._hello()))
            answer = _decoder.decode(await next_frame(reader))
        match answer:
            case Welcome():
                self._heard = monotonic()
                return reader, writer
            case Refused(why):
                raise _NotLetIn(why)
            case _:
                raise ValueError("no welcome")

    def _hello(self) -> Hello:
        note = self._note
        return Hello(
            PROTOCOL, note.node, note.epoch, note.job, note.secret, note.session,
            len(self._files), self._isolation(),
        )  # fmt: skip

    def _isolation(self) -> Isolation:
        told = {"fence": self._note.fence, "uid": os.geteuid()}
        return msgspec.convert({**self._backend.isolation, **told}, Isolation)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        while True:
            message = _decoder.decode(await next_frame(reader))
            self._heard = monotonic()
            if isinstance(message, Call):
                call = asyncio.create_task(self._answer(message))
                self._calls.add(call)
                call.add_done_callback(self._calls.discard)

    async def _answer(self, call: Call) -> None:
        try:
            answer: FromAgent = Answer(call.id, packed(await self._do(call.op)))
        except BackendError as error:
            answer = Fault(call.id, str(error))
        except Exception as error:  # noqa: BLE001 - told to the service, which logs it
            answer = Fault(call.id, f"a bug in Allotment: {error!r}")
        self._send(answer)
        if isinstance(call.op, Leave) and isinstance(answer, Answer):
            self._is_leaving.set()

    def _do(self, op: Op) -> Awaitable[object]:
        match op:
            case Ping():
                return asyncio.sleep(0)
            case Leave():
                return self._leave()
            case DeviceUses():
                return self._device_uses()
            case Observe(keys):
                return self._backend.observe(keys)
            case ReadLog(key, stream, offset, size):
                return self._backend.read_log(key, stream, offset, size)
            case Uses(keys):
                return self._backend.uses(keys)
            case Launch(gang, image_bytes):
                return self._launch(gang, image_bytes)
            case _:
                return self._order(op)

    async def _launch(self, gang: GangLaunch, image_bytes: int) -> object:
        self._image_bytes = image_bytes
        return list((await self._backend.launch(gang)).items())

    def _order(
        self, op: OpenBarrier | Stop | AskRanks | StandRanks | Freeze | Thaw | FileOp | ImageOp
    ) -> Awaitable[object]:
        backend = self._backend
        match op:
            case OpenBarrier(keys):
                return backend.open_barrier(keys)
            case Stop(key, signal, grace_ms, cause):
                return backend.stop(key, signal, grace_ms, cause)
            case AskRanks(keys):
                return _pairs(backend.ask_ranks(keys))
            case StandRanks(keys, after, wait_s):
                return _pairs(backend.stand_ranks(keys, after, wait_s))
            case Freeze(keys, no, frees):
                return backend.freeze(keys, no, frees=frees)
            case Thaw(key):
                return backend.thaw(key)
            case ListImages() | WarmImage() | RemoveImage():
                return self._images(op)
            case _:
                return self._files_of_jobs.do(op)

    async def _images(self, op: ImageOp) -> ImagesTold:
        try:
            # A registry or a disk that is slow is no silent node.
            async with asyncio.timeout(IMAGES_S):
                match op:
                    case ListImages(uid):
                        return ImagesTold(tuple(await self._backend.images().rows(uid)))
                    case WarmImage(wish, image_bytes):
                        self._image_bytes = image_bytes
                        await self._backend.images().warm(wish)
                    case RemoveImage(image):
                        await self._backend.images().remove(image)
        except Rejected as error:
            return ImagesTold((), error.code.value, error.message, error.hint)
        except TimeoutError:
            why = f"Node {self._note.node} did not get an answer in {IMAGES_S:.0f} s."
            return ImagesTold((), Code.UNAVAILABLE.value, why, "Try again.")
        return ImagesTold()

    async def _leave(self) -> None:
        """Agree to end, if nothing runs here. Raises BackendError."""
        if not self._backend.is_idle:
            raise BackendError("tasks run here")

    async def _device_uses(self) -> object:
        return list((await self._backend.device_uses()).get(HERE, ()))

    def _tell(self, report: Report) -> None:
        """Send news; what is sent while nobody listens is asked for at the next welcome."""
        if isinstance(report, TaskReport):
            self._send(TaskNews(report))
        elif isinstance(report, HealthReport):
            self._send(HealthNews(report))

    def _send(self, message: FromAgent) -> None:
        if self._writer is not None:
            self._writer.write(framed(message))


class _NotLetIn(Exception):
    """The service will never let this runner in."""


async def _pairs(asked: Awaitable[Said]) -> list[tuple[TaskKey, PauseSaid]]:
    return list((await asked).items())


def device_files(note: Note) -> DeviceFiles:
    """Return the device files that the note names if all exist; else none."""
    files = {int(index): paths for index, paths in note.devices.items()}
    there = all(Path(path).exists() for paths in files.values() for path in paths)
    return files if there else {}
