"""Tasks that end themselves without the service, on nodes of a real Kubernetes."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from allotment.backends.kubernetes import beats
from allotment.backends.kubernetes.backend import KubernetesBackend
from allotment.backends.kubernetes.runner import UNHEARD
from allotment.model.cluster import Node
from allotment.model.engines import EngineSetup, EngineType
from allotment.model.ids import AttemptNo, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.quantity import MIB, Millis, Resources
from allotment.model.reports import Seen, TaskReport
from allotment.service.ports import Binding, GangLaunch, Report, TaskLaunch
from tests.support.cluster import until
from tests.support.kubernetes import IMAGE, MARKS, SILENT_S, Kubernetes
from tests.support.on_kubernetes import OnKubernetes
from tests.support.on_slurm import shell
from tests.support.patience import PATIENCE_S

pytestmark = MARKS
FENCE_S = 20
MARGIN_S = 45.0
"""Here a kubelet hands on what it heard within some 10 s, and more beside other work."""


class Tasks:
    """Tasks on one service, and what it says of them."""

    def __init__(self, folder: Path, kubernetes: Kubernetes) -> None:
        self.folder, self.kubernetes = folder, kubernetes
        self.heard: list[TaskReport] = []

    @asynccontextmanager
    async def service(self) -> AsyncIterator[KubernetesBackend]:
        nodes = [
            Node(NodeId(place), name, 4000, 2000 * MIB, 0)
            for place, name in enumerate(self.kubernetes.nodes)
        ]
        setup = EngineSetup(
            "k8s", EngineType.KUBERNETES, kubeconfig=str(self.kubernetes.kubeconfig),
            image=IMAGE, fence_after_ms=Millis(FENCE_S * 1000),
        )  # fmt: skip
        backend = KubernetesBackend(self.folder, setup, lambda: nodes)
        await backend.start(self._hear)
        try:
            yield backend
        finally:
            await backend.close()

    def _hear(self, report: Report) -> None:
        if isinstance(report, TaskReport):
            self.heard.append(report)

    def gang(self, *scripts: str, job: int = 1) -> GangLaunch:
        tasks = tuple(
            TaskLaunch(
                key=TaskKey(JobId(job), AttemptNo(1), TaskIndex(index)),
                name=f"main.{index}",
                binding=Binding(self.kubernetes.nodes[index]),
                argv=("/bin/sh", "-c", script),
                env=(),
                resources=Resources(cpu_milli=100, memory=64 * MIB),
            )
            for index, script in enumerate(scripts)
        )
        return GangLaunch(tasks, "/tmp", at_barrier=len(tasks) > 1)

    def said(self, key: TaskKey, seen: Seen) -> list[TaskReport]:
        return [each for each in self.heard if each.key == key and each.seen is seen]

    async def until_said(self, key: TaskKey, seen: Seen, more_s: float = 0) -> TaskReport:
        async with asyncio.timeout(PATIENCE_S + more_s):
            while not (found := self.said(key, seen)):
                await asyncio.sleep(0.1)
        return found[0]

    def container_of(self, key: TaskKey) -> dict[str, Any]:
        """Return how the container of a task is, as Kubernetes says it."""
        (pod,) = (
            pod
            for pod in self.kubernetes.pods()
            if pod["metadata"]["name"].endswith(f"-{key.job}-{key.attempt}-{key.index}")
        )
        return pod["status"].get("containerStatuses", [{}])[0].get("state", {})


@pytest.fixture
def tasks(
    kubernetes: Kubernetes, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Tasks]:
    monkeypatch.setattr(beats, "MARGIN_S", MARGIN_S)
    yield Tasks(folder, kubernetes)
    kubernetes.clear()


def running(words: str) -> list[int]:
    """Return the processes of tasks, on this machine, whose command lines have these words."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if words in line and UNHEARD not in line:  # that is in the guard's own
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_a_gang_waits_in_its_pods_until_all_images_are_there(tasks: Tasks) -> None:
    async def story() -> None:
        async with tasks.service() as backend:
            gang = tasks.gang("echo first", "echo second")
            await launched(backend, gang)
            keys = [task.key for task in gang.tasks]
            for key in keys:
                await tasks.until_said(key, Seen.READY)
                assert "running" in tasks.container_of(key)
            assert not any(tasks.said(key, Seen.RUNNING) for key in keys)
            await backend.open_barrier(keys)
            for key, text in zip(keys, (b"first\n", b"second\n"), strict=True):
                end = await tasks.until_said(key, Seen.ENDED)
                assert end.exit is not None
                assert end.exit.ok
                assert (await backend.read_log(key, "stdout", 0, 100)).data == text

    asyncio.run(story())


async def launched(backend: KubernetesBackend, gang: GangLaunch) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not backend._beats.within("")._written_at:
            await asyncio.sleep(0.05)
    assert await backend.launch(gang) == {}


class Hasty(OnKubernetes):
    """A service whose fence may be shorter than a configuration allows."""

    def up(self) -> None:
        words = [sys.executable, "-c", HASTY, "up", "--foreground", "--config", self.config]
        env = {**os.environ, "ALLOT_STATE": str(self.state)}
        with (self.state.parent / "service.out").open("wb") as out:
            self._process = subprocess.Popen(words, env=env, stdout=out, stderr=out)
        until((self.state / "address.json").exists, "the service to be ready")

    def down(self) -> None:
        super().down()
        self._process.wait(PATIENCE_S)


HASTY = f"""\
from allotment.backends.kubernetes import beats
from allotment.wire import config_shape
beats.MARGIN_S, beats.LATE_S, config_shape.SHORTEST_FENCE_MS = {MARGIN_S}, 0, 0
from allotment.cli import main
main()
"""


@pytest.fixture
def fenced(kubernetes: Kubernetes, folder: Path) -> Iterator[OnKubernetes]:
    (folder / "state").mkdir()
    cluster = Hasty(folder / "state", kubernetes, f", fence_after: {FENCE_S}s")
    cluster.up()
    try:
        yield cluster
    finally:
        cluster.down()
        kubernetes.clear()


def test_a_gang_with_a_lost_node_is_dead_before_it_is_run_again(fenced: OnKubernetes) -> None:
    """The kubelet is killed and its containers run on: nobody but the task itself could end
    what runs there."""
    kubernetes, first = fenced.kubernetes, fenced.kubernetes.nodes[0]
    words = f"sleep 31536{os.getpid()}"
    script = f"[ $ALLOT_ATTEMPT -gt 1 ] || exec {words}"
    job = fenced.submit(shell(script, count=2, resources={"gpu": 3}))
    until(lambda: len(running(words)) == 2, "both tasks to run")
    kubernetes.kill(f"{first}-kubelet")
    try:

        def is_over() -> bool:
            left = len(running(words))
            state = fenced.state_of(job)
            assert left < 2 or state == "running", f"it is {state}, and both run"
            return state == "queued"

        until(is_over, "the gang to be ended", PATIENCE_S + SILENT_S + FENCE_S + MARGIN_S)
        assert not running(words), "it would run twice"
        (attempt,) = fenced.job(job)["attempts"]
        assert f"node {first} was cut off" in str(attempt)
        assert f"node {first} was cut off" in fenced.allot("show", str(job)).stdout
        assert first in fenced.allot("why", str(job)).stdout
    finally:
        if f"{first}-kubelet" not in kubernetes.running:
            kubernetes.again(f"{first}-kubelet")
        kubernetes.until(lambda: kubernetes.is_ready(first), f"{first} to be ready")
        kubernetes.offer(first, 4)
    fenced.wait_for(job, "succeeded")
    assert len(fenced.job(job)["attempts"]) == 2


def test_tasks_end_where_the_service_stays_away_and_are_not_their_jobs_failure(
    tasks: Tasks,
) -> None:
    async def story() -> None:
        gang = tasks.gang("trap 'exit 0' TERM; sleep 1000 & wait")
        (key,) = (task.key for task in gang.tasks)
        async with tasks.service() as backend:
            await launched(backend, gang)
            await tasks.until_said(key, Seen.RUNNING)
            async with asyncio.timeout(3 * FENCE_S):  # beats come, so it goes on
                first = backend._beats.within("")._written_at
                while backend._beats.within("")._written_at < first + 1.5 * FENCE_S:
                    assert not tasks.said(key, Seen.ENDED)
                    await asyncio.sleep(0.5)
        async with asyncio.timeout(PATIENCE_S + FENCE_S):
            while "terminated" not in tasks.container_of(key):
                await asyncio.sleep(0.5)
        async with tasks.service() as backend:
            await backend.observe([key])
            end = await tasks.until_said(key, Seen.ENDED)
            assert end.exit is not None
            assert end.exit.lost
            assert "heard nothing from the service" in end.exit.platform_error

    asyncio.run(story())
