"""How soon a job's first line comes on a real kubelet, beside a bare pod of the same image.

Needs the built programs in ~/.cache/allotment-k8s, and root's rights. From when a pod has its
node to when containerd writes down its first line: a bare pod as `kubectl run` makes it, and a
job of ours, by turns; then the same where the first process of a pod is ours (`fence_after`).
A kubelet waits 300 ms, and again 300 ms, for any volumes of a pod: both have some, a bare one
its account's token.
"""

import asyncio
import os
import time
from datetime import datetime
from pathlib import Path
from statistics import median

from bench.cluster import BenchCluster, allot
from bench.figures import Figure
from bench.on_kubernetes import Admin, Service, a_folder, an_admin
from bench.on_slurm import body_of
from tests.support.kubernetes import BIN, IMAGE, PROGRAMS, Kubernetes

TIMES = 7
SPACE = "allotment"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
COMMAND = "echo begun; sleep 2"
NODE = "n1"


def main() -> list[Figure]:
    """Measure; [] where it is not possible."""
    missing = [name for name in PROGRAMS if not (BIN / name).exists()]
    if missing or os.geteuid():
        print(f"  left out: needs root's rights, and {BIN} with {', '.join(PROGRAMS)}")
        return []
    with a_folder() as folder:
        return asyncio.run(_all(Path(folder)))


async def _all(folder: Path) -> list[Figure]:
    kubernetes = Kubernetes(folder, (NODE,))
    try:
        await asyncio.to_thread(kubernetes.start_all)
        async with an_admin(kubernetes) as admin:
            return [
                *await _with(folder / "plain", kubernetes, admin, "a job", ""),
                *await _with(
                    folder / "fenced",
                    kubernetes,
                    admin,
                    "with `fence_after`",
                    "fence_after: 1h",
                ),
            ]
    finally:
        kubernetes.stop_all()


async def _with(
    folder: Path, kubernetes: Kubernetes, admin: Admin, name: str, rule: str
) -> list[Figure]:
    """Measure with a service whose engine has a further rule."""
    folder.mkdir()
    service = Service(folder, kubernetes, rule)
    bare: list[float] = []
    own: list[float] = []
    try:
        cluster = await asyncio.to_thread(service.up)
        for number in range(TIMES):
            bare.append(await _bare(admin, f"{folder.name}-{number}"))
            own.append(await _job(cluster, admin, service))
    finally:
        await asyncio.to_thread(service.down)
    print(f"  {name}: bare pods {_ms(bare)} ms, ours {_ms(own)} ms", flush=True)
    return [
        Figure(f"bound → first line, {name}", median(own), "ms", "lower"),
        Figure("  above that of a bare pod", median(own) - median(bare), "ms", "lower", 150),
    ]


def _ms(found: list[float]) -> str:
    return ", ".join(f"{each:.0f}" for each in sorted(found))


async def _bare(admin: Admin, name: str) -> float:
    """Have a pod run that nobody placed; return after how many ms its first line came."""
    amounts = {"cpu": "100m", "memory": "64Mi"}
    container = {"name": "task", "image": IMAGE, "command": ["/bin/sh", "-c", COMMAND],
                 "resources": {"limits": amounts}}  # fmt: skip
    spec = {"nodeName": NODE, "restartPolicy": "Never", "hostNetwork": True,
            "terminationGracePeriodSeconds": 0, "containers": [container]}  # fmt: skip
    meta = {"name": name, "namespace": SPACE}
    await admin.ask(
        "POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    )
    return await _first_line(admin, f"{SPACE}/{name}")


async def _job(cluster: BenchCluster, admin: Admin, service: Service) -> float:
    """Have a job run; return after how many ms from when it had its node its line came."""
    connection = cluster.connect()
    connection.submit(body_of(COMMAND, {"cpu": 0.1, "memory": "64MiB"}))
    connection.close()
    await admin.until_bound(1)
    took = await _first_line(admin, next(iter(admin.bound)))
    await asyncio.to_thread(allot, service.state, "cancel", "--all", "--yes")
    return took


async def _first_line(admin: Admin, name: str) -> float:
    """Return how many ms after it had its node a pod wrote; it is gone then."""
    await admin.until(name)
    bound = admin.bound[name] + time.time() - time.perf_counter()
    path = f"{PODS}/{name.partition('/')[2]}"
    async with asyncio.timeout(60):
        while not (stamp := await admin.text(f"{path}/log?timestamps=true")):
            await asyncio.sleep(0.1)
    await admin.clear()
    return (_seconds(stamp.split()[0]) - bound) * 1e3


def _seconds(stamp: str) -> float:
    """Return a time as the API writes it, to a billionth, as seconds since 1970."""
    whole, _, rest = stamp.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{rest or 0}")
