"""A Kubernetes backend, the API server in memory that it asks, and what it reports."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from allotment.backends.kubernetes.backend import KubernetesBackend
from allotment.model.cluster import Device, Node
from allotment.model.engines import EngineSetup, EngineType
from allotment.model.ids import AttemptNo, DeviceIndex, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.quantity import GIB, MIB, Resources
from allotment.model.reports import Seen, TaskReport
from allotment.service.ports import Binding, GangLaunch, Report, TaskLaunch
from tests.support.kube_api import PODS, KubeApi
from tests.support.patience import PATIENCE_S

KEY = TaskKey(JobId(7), AttemptNo(2), TaskIndex(1))
TASK = TaskLaunch(
    key=KEY,
    name="main.1",
    binding=Binding("n1", (0,)),
    argv=("train",),
    env=(),
    resources=Resources(gpu_milli=1000, cpu_milli=1000, memory=100 * MIB),
)
GANG = GangLaunch(tasks=(TASK,), workdir="/state/outputs/7", image="pytorch:1")


def a_node(name: str = "n1", place: int = 0) -> Node:
    devices = tuple(Device(DeviceIndex(index), "gpu") for index in range(4))
    return Node(NodeId(place), name, 8000, 32 * GIB, 0, devices)


def a_kubeconfig(folder: Path) -> Path:
    """Return a file that names a cluster which needs no proof of who calls."""
    context = {"cluster": "k", "user": "u", "namespace": "ns"}
    tree = {
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "http://k"}}],
        "contexts": [{"name": "c", "context": context}],
        "users": [{"name": "u", "user": {}}],
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(tree))
    return file


class World:
    """A backend, the API server that it asks, and what it reports."""

    def __init__(self, folder: Path, **setup: Any) -> None:
        """`setup` is what its engine has beside where its API server is."""
        self.folder, self.api, self.nodes = folder, KubeApi(), [a_node()]
        self.setup = setup
        self.reports: list[Report] = []
        self.api.add_node("n1")

    @contextlib.asynccontextmanager
    async def service(self) -> AsyncGenerator[KubernetesBackend]:
        """Run a backend, which finds what an earlier one kept."""
        kubeconfig = a_kubeconfig(self.folder)
        setup = EngineSetup(
            "k8s", EngineType.KUBERNETES, kubeconfig=str(kubeconfig), **self.setup
        )
        backend = KubernetesBackend(self.folder, setup, lambda: self.nodes)
        await backend.start(self.reports.append)
        try:
            yield backend
        finally:
            await backend.close()

    def ends(self) -> list[TaskReport]:
        return self.said(Seen.ENDED)

    def said(self, seen: Seen) -> list[TaskReport]:
        return [
            each for each in self.reports if isinstance(each, TaskReport) and each.seen is seen
        ]

    def asks(self, method: str, path: str) -> int:
        return self.api.asked.count((method, path))

    @property
    def pod(self) -> str:
        return f"{PODS}/{self.api.our_pod()['metadata']['name']}"


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0)
