"""What every backend promises, asked of each of them."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest

from allotment.backends.kubernetes.backend import KubernetesBackend
from allotment.backends.local.backend import LocalBackend
from allotment.backends.local.images.images import Images
from allotment.backends.pilot.backend import PilotBackend
from allotment.backends.router import Router
from allotment.backends.slurm.backend import SlurmBackend
from allotment.model.cluster import Node
from allotment.model.engines import EngineSetup, EngineType, RestSetup
from allotment.model.errors import EngineAway
from allotment.model.ids import AttemptNo, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.quantity import MIB, Millis, Resources
from allotment.model.reports import Seen, TaskReport
from allotment.service.ports import Backend, Binding, GangLaunch, ImageWish, Report, TaskLaunch
from tests.support.cluster import end_launchers
from tests.support.fake_backend import FakeBackend
from tests.support.kubernetes import IMAGE, Kubernetes, a_kubernetes
from tests.support.kubernetes import MARKS as FOR_KUBERNETES
from tests.support.patience import PATIENCE_S
from tests.support.registry import a_link, busybox
from tests.support.scripted import Scripted, a_scripted_registry
from tests.support.slurm import REST_TOOLS, TOOLS, Slurm, a_slurm

IN_IMAGE = "local in an image"
SCRIPTS = {
    "fake": {
        "ok": "fake",
        "refused": "fake refused",
        "fails": "fake 0 exit 3",
        "forever": "fake forever",
    },
    "local": {"ok": "true", "fails": "exit 3", "forever": "sleep 1000"},
    IN_IMAGE: {"ok": "test -e /etc/system", "fails": "exit 3", "forever": "sleep 1000"},
    "slurm": {"ok": "true", "fails": "exit 3", "forever": "sleep 1000"},
    "slurm over rest": {"ok": "true", "fails": "exit 3", "forever": "sleep 1000"},
    "pilot": {"ok": "true", "fails": "exit 3", "forever": "sleep 1000"},
    "kubernetes": {"ok": "true", "fails": "exit 3", "forever": "sleep 1000"},
    "kubernetes with runner": {"ok": "true", "fails": "exit 3", "forever": "sleep 1000"},
}
"""By the engine that runs a task."""
ON_KUBERNETES = ("kubernetes", "kubernetes with runner")
"""Pods that begin with the command, and those that begin with our own first process."""
ROUTED = ("routed to here", "routed to gpus")
"""A router of a local engine and one of Slurm, and which of them is to run the tasks."""
COUNT, GPUS = 4, 8
NODES = [
    Node(NodeId(n), f"n{n}", 4000, 2000 * MIB, 0, address="127.0.0.1")
    for n in range(1, COUNT + 1)
]
"""Of Slurm; a Kubernetes has the first two of them."""
OF_KUBERNETES = NODES[:2]
STORE_BYTES = 64 * MIB
"""The limit of a store of images, more than it has."""


class Driver:
    """A backend with everything it ever said."""

    def __init__(self, backend: Backend, folder: Path, name: str) -> None:
        self.backend = backend
        self.engine = name.removeprefix("routed to ")
        self.scripts = SCRIPTS[{"here": "local", "gpus": "slurm"}.get(self.engine, name)]
        self.folder = folder
        self.work = folder / "outputs"
        self.work.mkdir(exist_ok=True)
        self.heard: list[TaskReport] = []
        self._news = asyncio.Event()

    def hear(self, report: Report) -> None:
        if isinstance(report, TaskReport):
            self.heard.append(report)
            self._news.set()

    def gang(self, *scripts: str, job: int = 1, at_barrier: bool = False) -> GangLaunch:
        """Describe a gang of a task for each script, in turn on all nodes."""
        nodes = OF_KUBERNETES if self.engine in ON_KUBERNETES else NODES
        tasks = tuple(
            TaskLaunch(
                key=TaskKey(JobId(job), AttemptNo(1), TaskIndex(index)),
                name=f"main.{index}",
                binding=Binding(nodes[index % len(nodes)].name, engine=self.engine),
                argv=("/bin/sh", "-c", self.scripts.get(script, script)),
                env=(("PATH", "/usr/bin:/bin"),),
                resources=Resources(cpu_milli=100, memory=64 * MIB),
            )
            for index, script in enumerate(scripts)
        )
        return GangLaunch(
            tasks,
            str(self.work),
            writable=(str(self.work),),
            at_barrier=at_barrier,
            image_wish=wish() if self.engine == IN_IMAGE else None,
        )

    def refused(self, task: TaskLaunch) -> TaskLaunch:
        """Return a task as no engine of this kind takes it."""
        match self.engine:
            case "slurm" | "slurm over rest" | "gpus" | "kubernetes" | "kubernetes with runner":
                nowhere = msgspec.structs.replace(task.binding, node="n9")
                return msgspec.structs.replace(task, binding=nowhere)
            case "local" | "local in an image" | "here" | "pilot":
                return msgspec.structs.replace(task, argv=())
            case _:
                return task

    async def launch(self, script: str, job: int = 1) -> TaskKey:
        """Have a job of one task started; return the task's key."""
        gang = self.gang(script, job=job)
        assert await self.backend.launch(gang) == {}
        return gang.tasks[0].key

    async def order(self, call: Callable[[], Awaitable[None]]) -> None:
        """Give an order until it is heard, as the service does."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with suppress(EngineAway):
                    await call()
                    return
                await asyncio.sleep(0.05)

    async def until(self, check: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not check():
                self._news.clear()
                await self._news.wait()

    def seen(self, key: TaskKey) -> list[Seen]:
        return [report.seen for report in self.heard if report.key == key]

    async def until_seen(self, key: TaskKey, seen: Seen) -> TaskReport:
        await self.until(lambda: seen in self.seen(key))
        return next(r for r in self.heard if r.key == key and r.seen is seen)


@asynccontextmanager
async def a_backend(name: str) -> AsyncIterator[Driver]:
    folder = Path(tempfile.mkdtemp(prefix="allot-"))
    if name == IN_IMAGE:
        shutil.copytree(os.environ["IMAGE_STORE"], folder / "images", symlinks=True)
    driver = Driver(new_backend(name, folder), folder, name)
    backend = driver.backend
    await backend.start(driver.hear)
    try:
        yield driver
    finally:
        for key in {report.key for report in driver.heard}:
            with suppress(EngineAway):  # The story closed it, and went on with another.
                await backend.stop(key, "KILL", Millis(0))
        await backend.close()
        end_launchers(folder)
        shutil.rmtree(folder, ignore_errors=True)


def new_backend(name: str, folder: Path) -> Backend:
    match name:
        case "fake":
            return FakeBackend()
        case "slurm":
            return SlurmBackend(folder, "main", lambda: NODES)
        case "slurm over rest":
            rest = RestSetup(os.environ["SLURMRESTD"], os.environ["SLURMRESTD_TOKEN"])
            setup = EngineSetup("gpus", EngineType.SLURM, "main", rest=rest)
            return SlurmBackend(folder, "main", lambda: NODES, setup)
        case _ if name in ON_KUBERNETES:
            fence_ms = Millis(60_000 if name != "kubernetes" else 0)
            setup = EngineSetup(
                "kubernetes", EngineType.KUBERNETES, image=IMAGE, fence_after_ms=fence_ms
            )
            return KubernetesBackend(folder, setup, lambda: OF_KUBERNETES)
        case "local in an image":
            return LocalBackend(folder, images=Images(folder, lambda: STORE_BYTES))
        case "pilot":
            return PilotBackend(folder, "main", lambda: NODES, Images(folder, int))
        case _ if name in ROUTED:
            slurm = SlurmBackend(folder, "main", lambda: NODES)
            engines: dict[str, Backend] = {"here": LocalBackend(folder), "gpus": slurm}
            return Router(engines, lambda: NODES)
        case _:
            return LocalBackend(folder)


def wish() -> ImageWish:
    """Return the image of all tasks in one; its registry tells each time who may read it."""
    return ImageWish(os.environ["IMAGE"], "root", "/root")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scripted, str, Path]]:
    """A registry, the name of an image, and a store that has it."""
    folder = tmp_path_factory.mktemp("unpacked")
    with a_scripted_registry() as registry:
        digest = registry.image("bb", busybox(a_link("bin/seq", "busybox")))
        name = f"{registry.host}/bb@{digest}"

        async def fetch() -> None:
            images = Images(folder, lambda: STORE_BYTES)
            await images.start()
            os.close((await images.ready(ImageWish(name, "root", "/root"))).hold)

        asyncio.run(fetch())
        yield registry, name, folder / "images"


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    has_rest = shutil.which("slurmrestd") is not None
    with a_slurm(COUNT, GPUS, rest=has_rest) as running:
        yield running


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[Kubernetes]:
    with a_kubernetes() as running:
        yield running


@pytest.fixture
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param in ("fake", "local"):
        yield request.param
        return
    if request.param == IN_IMAGE:
        registry, image, store = request.getfixturevalue("unpacked")
        registry.asked.clear()
        monkeypatch.setenv("IMAGE", image)
        monkeypatch.setenv("IMAGE_STORE", str(store))
        yield request.param
        assert not any("/blobs/" in each for each in registry.asked), "it was here already"
        return
    if request.param in ON_KUBERNETES:
        kubernetes: Kubernetes = request.getfixturevalue("kubernetes")
        monkeypatch.setenv("KUBECONFIG", str(kubernetes.kubeconfig))
        yield request.param
        kubernetes.clear()
        return
    slurm: Slurm = request.getfixturevalue("slurm")
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    monkeypatch.setenv("SLURMRESTD", f"http://127.0.0.1:{slurm.rest_port}")
    monkeypatch.setenv("SLURMRESTD_TOKEN", str(slurm.token))
    yield request.param
    slurm.clear()  # A pilot is left whose last task was told to end, and nobody waited.


MARKS = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS)]
WITH_SLURM = [pytest.param(name, marks=MARKS) for name in ("slurm", "pilot", *ROUTED)]
REST_MARKS = [pytest.mark.needs_root, pytest.mark.needs_tool(*REST_TOOLS)]
WITH_SLURM.append(pytest.param("slurm over rest", marks=REST_MARKS))
PODS = [pytest.param(name, marks=FOR_KUBERNETES) for name in ON_KUBERNETES]
REMOTE = [*WITH_SLURM, *PODS]
IMAGE_MARKS = [pytest.mark.needs_root, pytest.mark.needs_tool("busybox")]
HERE = ["local", pytest.param(IN_IMAGE, marks=IMAGE_MARKS)]
every = pytest.mark.parametrize("name", ["fake", *HERE, *REMOTE], indirect=True)
real = pytest.mark.parametrize("name", [*HERE, *REMOTE], indirect=True)
at_launch = pytest.mark.parametrize("name", ["fake", "local", *REMOTE], indirect=True)
"""Those that refuse as they launch. A task in an image is launched before its image is there:
what keeps it from starting is told as its end."""
freezing = pytest.mark.parametrize("name", ["fake", *HERE, *WITH_SLURM[1:3]], indirect=True)
"""Those that are able to suspend."""


@every
def test_a_task_runs_and_its_end_is_told(name: str) -> None:
    async def story() -> None:
        async with a_backend(name) as driver:
            for job, script, code in ((1, "ok", 0), (2, "fails", 3)):
                key = await driver.launch(script, job)
                end = await driver.until_seen(key, Seen.ENDED)
                assert end.exit is not None
                assert end.exit.code == code
                assert end.exit.ok is (code == 0)

    asyncio.run(story())


@every
def test_launching_again_starts_nothing(name: str) -> None:
    async def story() -> None:
        async with a_backend(name) as driver:
            key = await driver.launch("forever")
            first = await driver.until_seen(key, Seen.RUNNING)
            assert await driver.backend.launch(driver.gang("forever")) == {}
            (now,) = await driver.backend.observe([key])
            assert (now.seen, now.pid) == (Seen.RUNNING, first.pid)

    asyncio.run(story())


@every
def test_a_gang_waits_at_the_barrier(name: str) -> None:
    async def story() -> None:
        async with a_backend(name) as driver:
            gang = driver.gang(*["ok"] * (COUNT + 1), at_barrier=True)
            keys = [task.key for task in gang.tasks]
            assert await driver.backend.launch(gang) == {}
            for key in keys:
                await driver.until_seen(key, Seen.READY)
            # Before that it may be told what they wait for, as an image.
            seen = {each.seen for each in driver.heard if not each.held_up}
            assert seen == {Seen.READY}
            await driver.backend.open_barrier(keys)
            for key in keys:
                end = await driver.until_seen(key, Seen.ENDED)
                assert end.exit is not None
                assert end.exit.ok

    asyncio.run(story())


@at_launch
def test_refused_tasks_are_named_and_the_others_can_be_taken_back(name: str) -> None:
    async def story() -> None:
        async with a_backend(name) as driver:
            good, bad = driver.gang("ok", "refused", at_barrier=True).tasks
            gang = driver.gang("ok", at_barrier=True).only((good, driver.refused(bad)))
            refused = await driver.backend.launch(gang)
            assert list(refused) == [bad.key], "just the one"
            assert refused[bad.key]
            await driver.until_seen(good.key, Seen.READY)
            assert await driver.backend.launch(gang) == refused, "nothing has changed"
            await driver.backend.stop(good.key, "TERM", Millis(1000))
            end = await driver.until_seen(good.key, Seen.ENDED)
            assert end.exit is not None
            assert not end.exit.ok
            assert driver.seen(bad.key) == []

    asyncio.run(story())


@pytest.mark.parametrize("name", HERE[1:], indirect=True)
def test_a_task_that_cannot_start_in_its_image_ends_and_the_others_go_on(name: str) -> None:
    async def story() -> None:
        async with a_backend(name) as driver:
            good, bad = driver.gang("ok", "refused", at_barrier=True).tasks
            gang = driver.gang("ok", at_barrier=True).only((good, driver.refused(bad)))
            assert await driver.backend.launch(gang) == {}
            end = await driver.until_seen(bad.key, Seen.ENDED)
            assert end.exit is not None
            assert end.exit.platform_error
            await driver.until_seen(good.key, Seen.READY)
            await driver.backend.open_barrier([good.key])
            end = await driver.until_seen(good.key, Seen.ENDED)
            assert end.exit is not None
            assert end.exit.ok

    asyncio.run(story())


@every
def test_a_stopped_task_ends_by_the_signal(name: str) -> None:
    async def story() -> None:
        async with a_backend(name) as driver:
            key = await driver.launch("forever")
            await driver.until_seen(key, Seen.RUNNING)
            await driver.backend.stop(key, "TERM", Millis(5000))
            end = await driver.until_seen(key, Seen.ENDED)
            assert end.exit is not None
            assert end.exit.signal == 15 or end.exit.code == 143

    asyncio.run(story())


@every
def test_unknown_tasks_are_left_out_and_stopping_them_is_fine(name: str) -> None:
    async def story() -> None:
        async with a_backend(name) as driver:
            key = TaskKey(JobId(9), AttemptNo(1), TaskIndex(0))
            assert list(await driver.backend.observe([key])) == []
            await driver.backend.stop(key, "TERM", Millis(0))
            await driver.backend.freeze([key], 1)
            await driver.backend.thaw(key)
            await driver.backend.open_barrier([key])
            await driver.backend.forget(JobId(9))

    asyncio.run(story())


@every
def test_what_ended_is_still_known_until_forgotten(name: str) -> None:
    async def story() -> None:
        async with a_backend(name) as driver:
            key = await driver.launch("fails")
            await driver.until_seen(key, Seen.ENDED)
            (now,) = await driver.backend.observe([key])
            assert now.seen is Seen.ENDED
            await driver.backend.forget(key.job)
            assert list(await driver.backend.observe([key])) == []

    asyncio.run(story())


@every
def test_the_highest_job_is_known(name: str) -> None:
    async def story() -> None:
        async with a_backend(name) as driver:
            assert await driver.backend.highest_job() == 0
            for job in (7, 12, 9):
                key = await driver.launch("ok", job)
                await driver.until_seen(key, Seen.ENDED)
            assert await driver.backend.highest_job() == 12

    asyncio.run(story())


@freezing
def test_a_frozen_task_stands_still_and_goes_on(name: str) -> None:
    async def story() -> None:
        async with a_backend(name) as driver:
            script = "fake 2" if name == "fake" else "sleep 2"
            key = await driver.launch(script)
            await driver.until_seen(key, Seen.RUNNING)
            await driver.order(partial(driver.backend.freeze, [key], 1))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2.2):
                    await driver.until(lambda: Seen.ENDED in driver.seen(key))
            await driver.order(partial(driver.backend.thaw, key))
            await driver.until_seen(key, Seen.ENDED)

    asyncio.run(story())


@real
def test_output_is_read_in_pieces_and_from_the_end(name: str) -> None:
    async def story() -> None:
        async with a_backend(name) as driver:
            # A pod's output is one stream.
            stream = "stdout" if name in ON_KUBERNETES else "stderr"
            key = await driver.launch("echo oops >&2; sleep 0.1; seq 1 2000")
            await driver.until_seen(key, Seen.ENDED)
            text, offset = b"", 0
            while chunk := await driver.backend.read_log(key, "stdout", offset, 777):
                if not chunk.data:
                    break
                text, offset = text + chunk.data, chunk.next
            numbers = [str(n).encode() for n in range(1, 2001)]
            assert text.split() == ([b"oops"] if stream == "stdout" else []) + numbers
            last = await driver.backend.read_log(key, "stdout", -5, 100)
            assert last.data == b"2000\n"
            oops = await driver.backend.read_log(key, stream, 0, 5)
            assert oops.data == b"oops\n"

    asyncio.run(story())


@real
def test_tasks_outlive_the_backend_and_are_found_again(name: str) -> None:
    async def story() -> None:
        async with a_backend(name) as driver:
            key = await driver.launch("forever")
            running = await driver.until_seen(key, Seen.RUNNING)
            await driver.backend.close()
            again = new_backend(name, driver.folder)
            other = Driver(again, driver.folder, name)
            await again.start(other.hear)
            (found,) = await again.observe([key])
            assert (found.seen, found.pid) == (Seen.RUNNING, running.pid)
            await again.stop(key, "TERM", Millis(1000))
            await other.until_seen(key, Seen.ENDED)
            await again.close()

    asyncio.run(story())
