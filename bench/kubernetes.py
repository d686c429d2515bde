"""A service on a real control plane, and kube-scheduler on the same one.

Needs the built programs in ~/.cache/allotment-k8s. The nodes are registered through the API
and have no kubelets, so pods get a node and begin nothing. API server, etcd, what is measured
and what asks for it share the machine. `NODES`, `PODS` and `TASKS` of the environment set how
many nodes there are, how many pods of others that run, and how many tasks at a restart;
`PARTS` names which parts are measured, such as `PARTS=own,gangs`.
"""

import asyncio
import os
import re
import signal
import time
from collections.abc import Awaitable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.cluster import BenchCluster, allot, percentile
from bench.figures import Figure
from bench.machine import cpu_s
from bench.on_kubernetes import (
    HERE,
    Admin,
    Service,
    a_control_plane,
    a_folder,
    a_scheduler,
    an_admin,
    is_possible,
    node,
    pod,
)
from bench.on_slurm import body_of
from tests.support.kubernetes import Kubernetes

NODES = int(os.environ.get("NODES", "5000"))
PODS = int(os.environ.get("PODS", "50000"))
TASKS = int(os.environ.get("TASKS", "6000"))
BURST = min(2000, 4 * NODES)
OWN = BURST // 2
ROUNDS = 2
GANGS = 10
RATE, STEADY_S = 100, 20
IDLE_S = 30
USERS = 4
"""How many submit side by side."""
MADE = f"/api/v1/namespaces/{HERE}/pods"
OURS = "/api/v1/namespaces/allotment/pods"
NEED = {"gpu": 1, "cpu": 0.1, "memory": "64MiB"}
PARTS = os.environ.get("PARTS", "foreign,own,gangs,steady,idle,restart").split(",")


def main() -> list[Figure]:
    """Measure; [] where it is not possible."""
    if not is_possible():
        return []
    with a_folder() as folder:
        return asyncio.run(_all(Path(folder)))


async def _all(folder: Path) -> list[Figure]:
    with a_control_plane(folder) as kubernetes:
        async with an_admin(kubernetes) as admin:
            took = await admin.each(
                NODES, lambda number: admin.ask("POST", "/api/v1/nodes", node(number))
            )
            _say(f"{NODES:,} nodes registered in {took:.1f} s")
            figures = await _scheduler(folder, admin) if "foreign" in PARTS else []
            service = Service(folder, kubernetes)
            try:
                figures += await _service(service, kubernetes, admin)
            finally:
                service.down()
            return figures


async def _scheduler(folder: Path, admin: Admin) -> list[Figure]:
    """Have kube-scheduler place a burst."""
    with a_scheduler(folder) as pid:
        await _warm(admin, "default-scheduler")
        took, used = await _burst(admin, pid, "default-scheduler")
    await admin.clear()
    return [
        Figure("kube-scheduler: pods bound", BURST / took, "/s", "higher"),
        Figure("  its CPU for each", used / BURST * 1e3, "ms", "lower"),
    ]


async def _service(service: Service, kubernetes: Kubernetes, admin: Admin) -> list[Figure]:
    began = time.perf_counter()
    cluster = service.up()
    await _warm(admin, "allotment")
    figures = [Figure("first start → a pod has its place", _since(began), "s", "lower")]
    if "foreign" in PARTS:
        figures += await _foreign(cluster, admin)
    if "own" in PARTS:
        figures += await _own(service, kubernetes, cluster, admin)
    if "gangs" in PARTS:
        figures += await _gangs(service, cluster, admin)
    if "steady" in PARTS:
        figures += await _steady(admin)
    if "idle" in PARTS:
        figures += await _idle(admin)
    figures.append(Figure(f"memory, {NODES:,} nodes", cluster.rss_mib(), "MiB", "lower"))
    if "restart" in PARTS:
        figures += await _restart(service, kubernetes, admin)
    return figures


async def _foreign(cluster: BenchCluster, admin: Admin) -> list[Figure]:
    took, used = await _burst(admin, cluster.pid, "allotment")
    await admin.clear()
    return [
        Figure("pods of others bound", BURST / took, "/s", "higher", 492),
        Figure("  CPU for each", used / BURST * 1e3, "ms", "lower"),
    ]


async def _burst(admin: Admin, pid: int, scheduler: str) -> tuple[float, float]:
    """Make pods while a scheduler is held, and let it go: seconds, and seconds of CPU."""
    os.kill(pid, signal.SIGSTOP)
    try:
        made = await _make(admin, BURST, "b", scheduler)
    finally:
        os.kill(pid, signal.SIGCONT)
    used, began = cpu_s(pid), time.perf_counter()
    await admin.until_bound(BURST)
    took, used = _since(began), cpu_s(pid) - used
    _say(f"{scheduler}: {BURST:,} pods made in {made:.1f} s, bound in {took:.1f} s")
    return took, used


async def _make(admin: Admin, count: int, name: str, scheduler: str, gpus: int = 1) -> float:
    return await admin.each(
        count, lambda n: admin.ask("POST", MADE, pod(f"{name}-{n}", scheduler, gpus))
    )


async def _warm(admin: Admin, scheduler: str) -> None:
    """Wait until a first pod got its place."""
    await admin.ask("POST", MADE, pod("warm", scheduler))
    await admin.until_bound(1)
    await admin.clear()


class _Cost(NamedTuple):
    """What so many pods took: seconds, and seconds of CPU of us, and of API server and etcd."""

    wall_s: float
    own_s: float
    server_s: float


async def _own(
    service: Service, kubernetes: Kubernetes, cluster: BenchCluster, admin: Admin
) -> list[Figure]:
    """Have jobs of one pod made and bound, by turns with a bare loop that makes such pods."""
    bodies = {
        "own": body_of("true", NEED),
        "named": b'{"env": {"A": "1"}, ' + body_of("true", NEED)[1:],
    }
    costs: dict[str, list[_Cost]] = {"own": [], "named": [], "bare": []}
    for number in range(ROUNDS):
        for name, body in bodies.items():
            made = _submitted(cluster, admin, body, OWN, OWN)
            costs[name].append(await _cost(kubernetes, cluster, made))
            if name == "own":
                like = (await admin.ask("GET", f"{OURS}?limit=1"))["items"][0]
            await _cancelled(service, admin)
        bare = _bare(admin, like, f"bare-{number}")
        costs["bare"].append(await _cost(kubernetes, cluster, bare))
        await admin.clear()
    own, named, bare = (_Cost(*map(median, zip(*each, strict=True))) for each in costs.values())
    return [
        Figure("own pods made and bound", OWN / own.wall_s, "/s", "higher", 350),
        Figure("  our CPU for each", own.own_s / OWN * 1e3, "ms", "lower"),
        Figure(
            "  CPU of API server and etcd for each", own.server_s / OWN * 1e3, "ms", "lower"
        ),
        Figure("  the same pods made by a bare loop", OWN / bare.wall_s, "/s", "higher"),
        Figure("  CPU of API server and etcd then", bare.server_s / OWN * 1e3, "ms", "lower"),
        Figure("own pods with variables of their user", OWN / named.wall_s, "/s", "higher"),
        Figure("  our CPU for each", named.own_s / OWN * 1e3, "ms", "lower"),
        Figure(
            "  CPU of API server and etcd for each", named.server_s / OWN * 1e3, "ms", "lower"
        ),
    ]


async def _cost(kubernetes: Kubernetes, cluster: BenchCluster, made: Awaitable[float]) -> _Cost:
    servers = [kubernetes.pid(name) for name in ("apiserver", "etcd")]
    own, server = cpu_s(cluster.pid), sum(map(cpu_s, servers))
    wall = await made
    return _Cost(wall, cpu_s(cluster.pid) - own, sum(map(cpu_s, servers)) - server)


async def _bare(admin: Admin, like: dict[str, Any], name: str) -> float:
    """Make pods like one of ours, each on a node; return after how many seconds all were heard
    of."""
    kept = {"labels": like["metadata"]["labels"]}

    def made(number: int) -> dict[str, Any]:
        meta = {**kept, "name": f"{name}-{number}"}
        spec = {**like["spec"], "nodeName": f"node-{number % NODES}"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

    began = time.perf_counter()
    await admin.each(OWN, lambda number: admin.ask("POST", OURS, made(number)))
    return (await admin.until_bound(OWN))[-1] - began


async def _gangs(service: Service, cluster: BenchCluster, admin: Admin) -> list[Figure]:
    """Have gangs of eight whole nodes bound, one by one."""
    gang = b'{"count": 8, ' + body_of("true", NEED | {"gpu": 8})[1:]
    spans: list[float] = []
    for _ in range(GANGS):
        await _submitted(cluster, admin, gang, 1, 8)
        times = sorted(admin.bound.values())
        spans.append(times[-1] - times[0])
        await _cancelled(service, admin)
    return [Figure("gang of 8 × 8 GPUs, first bind → last, worst", max(spans), "s", "lower", 1)]


async def _submitted(
    cluster: BenchCluster, admin: Admin, body: bytes, jobs: int, pods: int
) -> float:
    """Submit jobs, as some users do; return after how many seconds all pods had a node."""
    numbers = iter(range(jobs))

    def submit() -> None:
        connection = cluster.connect()
        for _ in numbers:
            connection.submit(body)
        connection.close()

    began = time.perf_counter()
    users = [asyncio.to_thread(submit) for _ in range(min(USERS, jobs))]
    submitting = asyncio.gather(*users)
    times = await admin.until_bound(pods)
    await submitting
    return times[-1] - began


async def _cancelled(service: Service, admin: Admin) -> None:
    await asyncio.to_thread(allot, service.state, "cancel", "--all", "--yes")
    await admin.clear()


async def _steady(admin: Admin) -> list[Figure]:
    """Make pods at an even rate; from each one's making to its place."""
    made: dict[str, float] = {}

    async def one(number: int) -> None:
        name = f"{HERE}/s-{number}"
        made[name] = time.perf_counter()
        await admin.ask("POST", MADE, pod(f"s-{number}", "allotment"))

    count, began = RATE * STEADY_S, time.perf_counter()
    making: list[asyncio.Task[None]] = []
    for number in range(count):
        await asyncio.sleep(began + number / RATE - time.perf_counter())
        making.append(asyncio.create_task(one(number)))
    await asyncio.gather(*making)
    await admin.until_bound(count)
    waits = [at - made[name] for name, at in admin.bound.items()]
    await admin.clear()
    what = f"made → bound at {RATE} pods a second"
    return [
        Figure(f"{what}, p50", percentile(waits, 0.5), "s", "lower"),
        Figure(f"{what}, p99", percentile(waits, 0.99), "s", "lower", 1),
    ]


async def _idle(admin: Admin) -> list[Figure]:
    """Count what a service asks that has nothing to do."""
    await asyncio.sleep(10)  # the words about what just ended are told by then
    before = await _asked(admin)
    await asyncio.sleep(IDLE_S)
    asked = (await _asked(admin) - before) / IDLE_S
    return [Figure("requests while idle", asked, "/s", "lower", 2)]


async def _asked(admin: Admin) -> int:
    """Return how many requests of service accounts were answered; watches are not counted."""
    name = "apiserver_flowcontrol_dispatched_requests_total"
    found = re.findall(
        rf'^{name}{{.*"service-accounts".*}} (\d+)$', await admin.text("/metrics"), re.M
    )
    return sum(map(int, found))


async def _restart(service: Service, kubernetes: Kubernetes, admin: Admin) -> list[Figure]:
    """Start again with many tasks, once more beside very many pods of others, and list all
    anew."""
    await _make(admin, TASKS, "t", "allotment")
    await admin.until_bound(TASKS)
    with_tasks, _ = await _again(service, admin, "one")
    room = 110 * NODES - TASKS
    others = min(PODS, room) - TASKS
    took = await admin.each(
        others,
        lambda n: admin.ask("POST", MADE, pod(f"o-{n}", "none", 0, f"node-{n % NODES}")),
    )
    _say(f"{others:,} pods of others made in {took:.0f} s")
    with_all, cluster = await _again(service, admin, "two")
    anew = await _resynced(kubernetes, cluster, admin)
    what = f"{NODES:,} nodes, {TASKS + others:,} pods"
    return [
        Figure(
            f"start → a new pod has its place, {TASKS:,} tasks", with_tasks, "s", "lower", 10
        ),
        Figure(f"start → a new pod has its place, {what}", with_all, "s", "lower", 10),
        Figure(f"resync → a new pod has its place, {what}", anew, "s", "lower", 10),
        Figure(f"memory, {what}", cluster.rss_mib(), "MiB", "lower", 400),
    ]


async def _again(service: Service, admin: Admin, name: str) -> tuple[float, BenchCluster]:
    """Start a service anew; return after how long a pod that waited has its place."""
    await asyncio.to_thread(service.down)
    await admin.ask("POST", MADE, pod(name, "allotment"))
    began = time.perf_counter()
    starting = asyncio.create_task(asyncio.to_thread(service.up))
    took = await admin.until(f"{HERE}/{name}") - began
    return took, await starting


async def _resynced(kubernetes: Kubernetes, cluster: BenchCluster, admin: Admin) -> float:
    """Hold the service until no watch can go on where it was, and let it go; return after how
    long a pod that was made meanwhile has its place."""
    os.kill(cluster.pid, signal.SIGSTOP)
    try:
        await _new_server(kubernetes, admin)  # the watches end
        await admin.ask("POST", MADE, pod("anew", "allotment"))
        await asyncio.to_thread(kubernetes.compact)
        await _new_server(kubernetes, admin)  # it remembers nothing before the pod
        kubernetes.revive()  # the controllers end for want of an API server
    finally:
        os.kill(cluster.pid, signal.SIGCONT)
    began = time.perf_counter()
    return await admin.until(f"{HERE}/anew") - began


async def _new_server(kubernetes: Kubernetes, admin: Admin) -> None:
    kubernetes.kill("apiserver")
    kubernetes.again("apiserver")
    await admin.until_answered()


def _since(began: float) -> float:
    return time.perf_counter() - began


def _say(words: str) -> None:
    print(f"  {words}; load {os.getloadavg()[0]:.1f}", flush=True)
