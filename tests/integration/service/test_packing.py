"""Jobs at once on one device, on real processes: kept for a pair that gains, undone for one
that loses, and nothing lost or run twice when the service is killed while they are tried."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import RealCluster, a_real_cluster, until

CONFIG = """
virtual_gpus: {type: virtual, count: 2, memory: 16GiB}
tenants:
  gains:
    guaranteed: {gpu: 1}
    borrow: false
    queues: {default: {order: skip, time_slice: 7s, pack: true}}
  loses:
    guaranteed: {gpu: 1}
    borrow: false
    queues: {default: {order: skip, time_slice: 7s, pack: true}}
"""
WAITS = """
import os, sys, time
from allotment import progress
name, folder = sys.argv[1], sys.argv[2]
with open(f"{folder}/{name}.starts", "a") as file:
    file.write(".")
step = 0
while True:
    while os.path.exists(f"{folder}/{name}.stalls"):
        time.sleep(0.1)
    time.sleep(0.03)
    step += 1
    progress(step)
"""
"""A job that waits for its data: another can work meanwhile."""
RELOADS = """
import fcntl, sys, time
from allotment import progress
name, folder = sys.argv[1], sys.argv[2]
with open(f"{folder}/{name}.starts", "a") as file:
    file.write(".")
step = 0
with open(f"{folder}/model", "a+") as model:
    while True:
        fcntl.flock(model, fcntl.LOCK_EX)
        model.seek(0)
        if model.read() != name:
            time.sleep(0.15)
            model.truncate(0)
            model.write(name)
            model.flush()
        time.sleep(0.02)
        fcntl.flock(model, fcntl.LOCK_UN)
        time.sleep(0.01)
        step += 1
        progress(step)
"""
"""A job that fills a cache with what it needs, where another's is: at once both do it again
and again."""


class Pair:
    """Two jobs on one device."""

    def __init__(self, cluster: RealCluster, folder: Path, tenant: str, source: str) -> None:
        self.cluster, self.folder, self.tenant = cluster, folder, tenant
        self.jobs = [self._submit(f"{tenant}-{n}", source) for n in range(2)]

    def _submit(self, name: str, source: str) -> int:
        argv = [sys.executable, "-c", source, name, str(self.folder)]
        need = {"gpu": 1, "cpu": 0.1, "memory": "64MiB"}
        spec: dict[str, object] = {"name": name, "command": argv, "tenant": self.tenant}
        return self.cluster.submit({**spec, "resources": need})

    def events(self, kind: str) -> list[dict[str, Any]]:
        found = [self.cluster.get(f"/v1/jobs/{job}/events") for job in self.jobs]
        return [each for page in found for each in page if each["kind"] == kind]

    def starts(self) -> list[int]:
        files = [self.folder / f"{self.tenant}-{n}.starts" for n in range(2)]
        return [file.stat().st_size if file.exists() else 0 for file in files]

    def attempts(self) -> list[int]:
        return [self.cluster.get(f"/v1/jobs/{job}")["row"]["attempt"] for job in self.jobs]


@pytest.fixture(scope="module")
def cluster(reachable_once: Path) -> Iterator[RealCluster]:
    (reachable_once / "counts").mkdir()
    with a_real_cluster(reachable_once, CONFIG) as cluster:
        yield cluster


def test_a_pair_that_gains_is_kept_and_one_that_loses_is_undone_also_after_a_kill(
    cluster: RealCluster,
) -> None:
    folder = cluster.state.parent / "counts"
    gains = Pair(cluster, folder, "gains", WAITS)
    loses = Pair(cluster, folder, "loses", RELOADS)
    until(lambda: bool(gains.events("Packed")), "a pair to be tried")
    cluster.kill()
    cluster.up()
    until(lambda: bool(gains.events("PackingMeasured")), "the pair that gains to be measured")
    until(lambda: bool(loses.events("Unpacked")), "the pair that loses to be parted")

    (kept,) = gains.events("PackingMeasured")
    (undone,) = loses.events("PackingMeasured")
    assert (kept["detail"]["kept"], undone["detail"]["kept"]) == (True, False)
    assert kept["detail"]["gain_milli"] > 1_050
    assert undone["detail"]["gain_milli"] < 900
    assert not gains.events("Unpacked")
    beside = kept["job"]
    assert cluster.state_of(beside) == "suspended"
    assert "Together they do" in cluster.allot("why", str(beside)).stdout
    assert "It runs beside job" in cluster.allot("show", str(beside)).stdout
    assert f"beside {kept['detail']['beside']}" in cluster.allot("ps").stdout
    running = {task["job"] for task in cluster.get("/v1/usage/now")}
    assert set(gains.jobs) <= running
    assert (gains.starts(), loses.starts()) == ([1, 1], [1, 1])
    assert (gains.attempts(), loses.attempts()) == ([1, 1], [1, 1])

    (folder / f"gains-{gains.jobs.index(beside)}.stalls").touch()
    until(lambda: bool(gains.events("Unpacked")), "a pair of which one makes no step any more")
    assert gains.events("Unpacked")[0]["detail"]["cause"] == "worse"
    assert (gains.starts(), gains.attempts()) == ([1, 1], [1, 1])
