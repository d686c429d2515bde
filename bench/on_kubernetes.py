"""What the benchmark on Kubernetes needs: a control plane, bare nodes, and a client."""

import asyncio
import contextlib
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from allotment.backends.contact import Contact
from allotment.backends.kubernetes.client import Client, Denied
from allotment.backends.kubernetes.kubeconfig import access_of
from allotment.backends.kubernetes.objects import Pod, read
from allotment.model.errors import EngineAway
from bench.cluster import ALLOT, BenchCluster, allot
from tests.support.kubernetes import BIN, IMAGE, IS_NEWER, PROGRAMS, Kubernetes
from tests.support.served import free_ports

HERE = "team-a"
"""The namespace of pods that others make."""
GPUS = 8
CONFIG = """\
engines:
  k8s:
    {{type: kubernetes, kubeconfig: {kubeconfig}, image: "{image}",
     {rule}namespaces: {{{here}: lab}}}}
tenants: {{lab: {{queues: {{default: {{order: skip}}}}}}}}
"""
SCHEDULER = """\
apiVersion: kubescheduler.config.k8s.io/{version}
kind: KubeSchedulerConfiguration
clientConnection: {{kubeconfig: "{folder}/controllers.kubeconfig", qps: 2000, burst: 4000}}
leaderElection: {{leaderElect: false}}
"""
OLD = """\
healthzBindAddress: "127.0.0.1:{port}"
metricsBindAddress: "127.0.0.1:{port}"
"""
"""What the kube-scheduler of 1.20 answers at, and newer ones may not name."""
WORKERS = 32
"""Requests of ours side by side."""


def is_possible() -> bool:
    """Whether the programs are there; says so where they are not."""
    missing = [name for name in (*PROGRAMS[:3], "kubectl", "kube-scheduler") if _lacks(name)]
    if missing:
        print(f"  left out: {BIN} lacks {', '.join(missing)}")
    return not missing


def _lacks(name: str) -> bool:
    return not (BIN / name).exists()


@contextlib.contextmanager
def a_control_plane(folder: Path) -> Iterator[Kubernetes]:
    """Start etcd, API server and controllers; nodes that nobody reports for stay ready."""
    # Each node would be tainted when it is made, and the taint be lifted one by one.
    options = (
        "--disable-admission-plugins=TaintNodesByCondition",
        "--delete-collection-workers=16",
    )
    kubernetes = Kubernetes(folder, (), silent_s=86_400, options=options)
    try:
        kubernetes.start_all()
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HERE}}
        kubernetes.apply(space)
        kubernetes.kubectl(
            "create", "rolebinding", "allotment", "-n", HERE,
            "--clusterrole=allotment-foreign-pods", "--serviceaccount=allotment:allotment",
        )  # fmt: skip
        yield kubernetes
    finally:
        kubernetes.stop_all()


@contextlib.contextmanager
def a_scheduler(folder: Path) -> Iterator[int]:
    """Start a kube-scheduler beside it, and yield its process id."""
    config = folder / "scheduler.yaml"
    text = SCHEDULER.format(folder=folder, version="v1" if IS_NEWER else "v1beta1")
    config.write_text(text if IS_NEWER else text + OLD.format(port=free_ports(1)[0]))
    words = [str(BIN / "kube-scheduler"), f"--config={config}", "--secure-port=0"]
    with (folder / "scheduler.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


class Service:
    """A service on such a cluster, in a process of its own. `rule` is a further one of its
    engine."""

    def __init__(self, folder: Path, kubernetes: Kubernetes, rule: str = "") -> None:
        self.state = folder / "state"
        self.state.mkdir()
        self._config = folder / "config.yaml"
        rule = f"{rule}, " if rule else ""
        self._config.write_text(
            CONFIG.format(kubeconfig=kubernetes.kubeconfig, image=IMAGE, here=HERE, rule=rule)
        )

    def up(self) -> BenchCluster:
        """Start it. Raises where it does not start."""
        done = allot(self.state, "up", "--config", str(self._config))
        if done.returncode:
            raise RuntimeError(f"{' '.join(ALLOT)} up: {done.stderr}")
        return BenchCluster(self.state)

    def down(self) -> None:
        allot(self.state, "down")


class Admin:
    """Asks the API server as the administrator, and hears which pods get a node, and when."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.bound: dict[str, float] = {}
        """By namespace and name: when we heard that a pod has a node, as `perf_counter`."""
        self._news = asyncio.Event()

    async def ask(self, method: str, path: str, document: object = None) -> Any:
        return msgspec.json.decode(await self._client.ask(method, path, document))

    async def text(self, path: str) -> str:
        """Return what is there as text; '' where it cannot be had yet."""
        try:
            return (await self._client.ask("GET", path)).decode()
        except Denied:
            return ""

    async def each(self, count: int, do: Callable[[int], Awaitable[object]]) -> float:
        """Do so many things, some at a time; return how long that took, in seconds."""
        numbers = iter(range(count))

        async def work() -> None:
            for number in numbers:
                await do(number)

        began = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(WORKERS)))
        return time.perf_counter() - began

    async def hear(self) -> None:
        """Note which pods get a node, until cancelled."""
        while True:
            with contextlib.suppress(EngineAway, Denied):
                version = await self._list()
                async with self._client.watch("/api/v1/pods", version, 3600) as changes:
                    async for change in changes:
                        self._note(read(change.object, Pod), change.type == "DELETED")
            await asyncio.sleep(0.1)  # while the server starts anew

    async def _list(self) -> str:
        """Note all pods, and forget those that are gone; return the version to go on from."""
        there: list[Pod] = []
        token = ""
        while True:
            page = await self._client.page("/api/v1/pods", token)
            there += [pod for raw in page.items or () if (pod := read(raw, Pod)) is not None]
            token = page.metadata.next
            if not token:
                break
        for name in self.bound.keys() - {_name(pod) for pod in there}:
            del self.bound[name]
        for pod in there:
            self._note(pod, False)
        self._news.set()
        return page.metadata.resource_version

    def _note(self, pod: Pod | None, is_gone: bool) -> None:
        if pod is None or not pod.spec.node_name:
            return
        name = _name(pod)
        if is_gone:
            self.bound.pop(name, None)
        else:
            self.bound.setdefault(name, time.perf_counter())
        self._news.set()

    async def until_bound(self, count: int, seconds: float = 300) -> list[float]:
        """Wait until so many pods have a node; return when each got it, in order."""
        async with asyncio.timeout(seconds):
            while len(self.bound) < count:
                self._news.clear()
                await self._news.wait()
        return sorted(self.bound.values())

    async def until(self, name: str, seconds: float = 300) -> float:
        """Wait until a pod has a node; return when that was."""
        async with asyncio.timeout(seconds):
            while name not in self.bound:
                self._news.clear()
                await self._news.wait()
        return self.bound[name]

    async def until_answered(self) -> None:
        """Wait until the server answers again."""
        async with asyncio.timeout(120):
            while not await self._answers():
                await asyncio.sleep(0.1)

    async def _answers(self) -> bool:
        with contextlib.suppress(EngineAway, Denied):
            await self.ask("GET", "/api/v1/pods?limit=1")
            return True
        return False

    async def clear(self) -> None:
        """Delete all pods, as the kubelets that nobody has would."""
        for space in (HERE, "allotment"):
            pods = f"/api/v1/namespaces/{space}/pods"
            while (await self.ask("GET", f"{pods}?limit=1"))["items"]:
                # Of thousands of pods a server may take longer than an answer is waited for.
                with contextlib.suppress(EngineAway):
                    await self.ask("DELETE", f"{pods}?gracePeriodSeconds=0")
        async with asyncio.timeout(300):
            while self.bound:
                self._news.clear()
                await self._news.wait()


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


@contextlib.asynccontextmanager
async def an_admin(kubernetes: Kubernetes) -> AsyncGenerator[Admin]:
    """Connect as the administrator."""
    client = Client(access_of(str(kubernetes.admin)), "default", Contact("Kubernetes", "pods"))
    admin = Admin(client)
    hearing = asyncio.create_task(admin.hear())
    try:
        yield admin
    finally:
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)
        client.close()


def a_folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(
        prefix="allot-bench-", dir="/var/tmp", ignore_cleanup_errors=True
    )


def node(number: int) -> dict[str, Any]:
    """Return a node with eight devices that says it is ready."""
    name = f"node-{number}"
    amounts = {"cpu": "96", "memory": "1000Gi", "ephemeral-storage": "1000Gi", "pods": "110",
               "nvidia.com/gpu": str(GPUS)}  # fmt: skip
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
             "lastHeartbeatTime": now, "lastTransitionTime": now}  # fmt: skip
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
              "kubernetes.io/arch": "amd64", "nvidia.com/gpu.product": "A100"}  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }  # fmt: skip


def pod(name: str, scheduler: str, gpus: int = 1, on: str = "") -> dict[str, Any]:
    """Return a pod of somebody else."""
    amounts = {
        "cpu": "100m",
        "memory": "64Mi",
        **({"nvidia.com/gpu": str(gpus)} if gpus else {}),
    }
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": HERE},
        "spec": {
            "schedulerName": scheduler, "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0, **({"nodeName": on} if on else {}),
            "containers": [
                {"name": "main", "image": IMAGE, "resources": {"limits": amounts}}
            ],
        },
    }  # fmt: skip
