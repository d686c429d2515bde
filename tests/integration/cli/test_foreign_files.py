"""Files written for operators of Kubernetes, submitted to a service on this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import RealCluster, a_real_cluster

EXAMPLES = Path(__file__).parents[2] / "fixtures" / "foreign"
CONFIG = """
nodes:
  - {names: [n1, n2], cpu: 4, memory: 2GiB, gpu: {type: V100, count: 2, virtual: true}}
tenants: {us: {}}
"""


@pytest.fixture(scope="module")
def cluster(reachable_once: Path) -> Iterator[RealCluster]:
    with a_real_cluster(reachable_once, CONFIG) as made:
        yield made


def said(cluster: RealCluster, name: str) -> list[str]:
    """Submit an example, without its image; return the lines of its tasks, without whose."""
    done = cluster.allot("submit", str(EXAMPLES / f"{name}.yaml"), "--set", "image=")
    assert done.returncode == 0, done.stderr
    job = int(done.stdout.split()[0])
    cluster.wait_for(job, "succeeded")
    lines = cluster.allot("logs", str(job)).stdout.splitlines()
    return sorted(line.rpartition("| ")[2] for line in lines)


def test_the_pods_of_a_job_set_find_each_other(cluster: RealCluster) -> None:
    at = "127.0.0.1"
    # Its workers may still be at work when the leader has succeeded, and the job with it.
    everybody = {
        f"leader 0.0 of 3, 0, from {at}, ring-leader-0-0, address, {at}",
        f"workers 0.0 of 3, 1, from {at}, ring-workers-0-0, address, {at}",
        f"workers 0.1 of 3, 1, from {at}, ring-workers-0-1, address, {at}",
        f"workers 1.0 of 3, 2, from {at}, ring-workers-1-0, address, {at}",
        f"workers 1.1 of 3, 2, from {at}, ring-workers-1-1, address, {at}",
    }
    found = set(said(cluster, "jobset"))
    assert min(everybody) in found
    assert found <= everybody


def test_the_nodes_of_a_train_job_are_told_of_each_other(cluster: RealCluster) -> None:
    assert said(cluster, "trainjob") == [
        "0/2 x 2, index 0, lr 0.1, address:port, rank 0",
        "1/2 x 2, index 1, lr 0.1, address:port, rank 1",
    ]


def test_a_train_job_runs_by_the_runtime_in_its_file(cluster: RealCluster) -> None:
    assert said(cluster, "runtime") == [
        "0 of 2 at address, seed 7",
        "1 of 2 at address, seed 7",
    ]


def test_the_tasks_of_a_framework_know_their_devices(cluster: RealCluster) -> None:
    found = said(cluster, "framework")
    assert found[-3:] == [f"worker {n} of hives sees devices" for n in range(3)]
