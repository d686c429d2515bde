"""Nodes that an engine finds join, change and leave while a service runs."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.cluster import Node
from allotment.model.engines import EngineSetup, EngineType
from allotment.model.ids import Actor, JobId
from allotment.model.lifecycle import JobState as S
from allotment.service.clock import SteadyClock
from allotment.service.service import Service
from allotment.store.sqlite import SqliteStore
from allotment.wiring.engines import Engines
from allotment.wiring.kept_config import Kept
from allotment.wiring.service import config_files
from tests.integration.service.test_service import a_script, until
from tests.support.builders import POLICIES, a_node
from tests.support.fake_backend import FakeBackend

ME = Actor("me", None, ())
CONFIG = b"""\
engines: {gpus: {type: slurm, partition: main}}
tenants: {vision: {guaranteed: {gpu: 4}}}
"""
SETUP = EngineSetup("gpus", EngineType.SLURM, "main")


class Finding(FakeBackend):
    """Finds the nodes that the test says."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__()
        self.nodes = nodes

    def found_nodes(self) -> Mapping[str, Sequence[Node]]:
        return {"": self.nodes}


def nodes(*names: str, gpus: int = 8) -> tuple[Node, ...]:
    made = (a_node(at, gpus) for at, _ in enumerate(names))
    return tuple(
        msgspec.structs.replace(node, name=name) for node, name in zip(made, names, strict=True)
    )


@asynccontextmanager
async def running(
    folder: Path, backend: Finding, text: bytes = CONFIG
) -> AsyncIterator[Service]:
    folder.mkdir(exist_ok=True)
    engines = Engines(folder, (SETUP,), None, {"gpus": tuple(backend.nodes)})
    files = config_files(Kept(folder, text), engines)
    service = Service(
        store=SqliteStore.open(folder),
        backend=backend,
        clock=SteadyClock(),
        policies=POLICIES,
        state_dir=str(folder),
        write_spec=lambda spec: {"name": spec.name},
        version="test",
        config_files=files,
    )
    await service.start(files.read(text, "test")[0])
    try:
        yield service
    finally:
        await service.stop()


def names(service: Service) -> list[str]:
    return [node.name for node in service.state.config.nodes]


def events(service: Service) -> list[e.NodesFound]:
    records = service._store.records()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    return [record.event for record in records if isinstance(record.event, e.NodesFound)]


async def submitted(service: Service, gpus: int, script: str = "fake forever") -> JobId:
    return (await service.submit(c.SubmitJob(a_script(script, gpus)), ME)).id


def test_nodes_join_change_and_leave_and_shares_with_them(tmp_path: Path) -> None:
    async def story() -> None:
        backend = Finding(nodes("n1", "n2"))
        async with running(tmp_path, backend) as service:
            ids = {node.name: node.id for node in service.state.config.nodes}
            assert _cpus(service) == 32_000
            backend.nodes = nodes("n0", "n1", "n2")
            await until(lambda: names(service) == ["n0", "n1", "n2"])
            kept = {n.name: n.id for n in service.state.config.nodes if n.name in ids}
            assert kept == ids
            first, second = nodes("n1"), nodes("n2", gpus=4)
            backend.nodes = (*first, *second)
            await until(lambda: names(service) == ["n1", "n2"])
            assert [len(node.devices) for node in service.state.config.nodes] == [8, 4]
            assert _cpus(service) == 128_000 * 4 // 12
            told = [(("n0",), (), ()), ((), ("n2",), ("n0",))]
            await until(lambda: [(t.came, t.changed, t.left) for t in events(service)] == told)

    asyncio.run(story())


def test_a_node_with_a_job_leaves_when_the_job_is_over(tmp_path: Path) -> None:
    async def story() -> None:
        backend = Finding(nodes("n1", "n2"))
        async with running(tmp_path, backend) as service:
            jobs = [await submitted(service, 8) for _ in range(2)]
            await until(lambda: all(service.state.jobs[j].state is S.RUNNING for j in jobs))
            backend.nodes = nodes("n1", "n3")
            await until(lambda: names(service) == ["n1", "n2", "n3"])
            assert all(service.state.jobs[job].state is S.RUNNING for job in jobs)
            for job in jobs:
                await service.act(c.CancelJob(job), ME)
            await until(lambda: names(service) == ["n1", "n3"])

    asyncio.run(story())


def test_a_node_keeps_the_devices_that_a_job_has(tmp_path: Path) -> None:
    async def story() -> None:
        backend = Finding(nodes("n1", "n2"))
        async with running(tmp_path, backend) as service:
            job = await submitted(service, 8)
            await until(lambda: service.state.jobs[job].state is S.RUNNING)
            backend.nodes = nodes("n1", "n2", gpus=2)
            sizes = [8, 2] if _node_of(service, job) == "n1" else [2, 8]
            await until(lambda: _sizes(service) == sizes)
            await service.act(c.CancelJob(job), ME)
            await until(lambda: _sizes(service) == [2, 2])

    asyncio.run(story())


def test_a_configuration_that_does_not_fit_what_is_left_stays_in_force(tmp_path: Path) -> None:
    """And comes to fit once there are enough nodes again."""

    async def story() -> None:
        backend = Finding(nodes("n1", "n2"))
        text = CONFIG.replace(b"gpu: 4", b"gpu: 12")
        async with running(tmp_path, backend, text) as service:
            backend.nodes = nodes("n1")
            looked = service._joining._done  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
            await until(lambda: looked.get("gpus") == nodes("n1"))
            assert names(service) == ["n1", "n2"]
            backend.nodes = nodes("n1", "n3")
            await until(lambda: names(service) == ["n1", "n3"])

    asyncio.run(story())


def test_a_half_done_edit_is_not_put_in_force_by_a_node_that_joins(tmp_path: Path) -> None:
    async def story() -> None:
        backend = Finding(nodes("n1", "n2"))
        async with running(tmp_path, backend) as service:
            (tmp_path / "config.yaml").write_bytes(CONFIG.replace(b"gpu: 4", b"gpu: 2"))
            backend.nodes = nodes("n1", "n2", "n3")
            await until(lambda: names(service) == ["n1", "n2", "n3"])
            assert _gpus(service) == 4
            applied = CONFIG.replace(b"gpu: 4", b"gpu: 3")
            await service.reconfiguring.apply(applied, "new.yaml", "", Actor("root", 0))
            (tmp_path / "config.yaml").write_bytes(b"tenants: {")
            backend.nodes = nodes("n1", "n2", "n4")
            await until(lambda: names(service) == ["n1", "n2", "n4"])
            assert _gpus(service) == 3

    asyncio.run(story())


def _gpus(service: Service) -> float:
    return service.state.config.tenants[0].guaranteed.gpu_milli / 1000


def _cpus(service: Service) -> int:
    """Return how many CPUs come with the guarantee: a part of all there are."""
    return service.state.config.tenants[0].guaranteed.cpu_milli


def _sizes(service: Service) -> list[int]:
    return [len(node.devices) for node in service.state.config.nodes]


def _node_of(service: Service, job: JobId) -> str:
    (slot,) = service.state.jobs[job].attempts[-1].slots
    return service.state.cluster.nodes[slot.node].name
