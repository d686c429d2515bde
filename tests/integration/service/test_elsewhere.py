"""Queues whose gangs take turns and migrate, on real processes: one that is suspended goes on
where a device became idle, computes the same, and nothing is lost or run twice."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.service.test_migration import MORE, nodes_of, train
from tests.support.cluster import RealCluster, a_real_cluster, until

CONFIG = """
nodes:
  - {names: [n1, n2], cpu: 4, memory: 2GiB, gpu: {type: V100, count: 1, virtual: true}}
tenants:
  us:
    guaranteed: {gpu: 2}
    queues:
      default: {order: skip, time_slice: 2s, migrate: true}
      fill: {order: skip}
"""


@pytest.fixture
def cluster(reachable: Path) -> Iterator[RealCluster]:
    with a_real_cluster(reachable, CONFIG) as real:
        yield real


class Two:
    """Two jobs that take turns on one node, while another holds the device of the second."""

    def __init__(self, cluster: RealCluster, folder: Path) -> None:
        folder.chmod(0o755)
        self.cluster = cluster
        need = {"gpu": 1, "cpu": 0.1, "memory": "64MiB"}
        spec = {"name": "fill", "tenant": "us", "queue": "fill", "command": "sleep 1000"}
        self.fill = cluster.submit({**spec, "resources": need})
        cluster.wait_for(self.fill, "running")
        self.results = [folder / f"{n}.json" for n in range(2)]
        self.jobs = [train(cluster, result, 1) for result in self.results]

    def one_is_suspended(self) -> bool:
        states = [self.cluster.state_of(job) for job in self.jobs]
        assert "failed" not in states
        return "suspended" in states

    def told(self) -> list[int]:
        """Return the jobs that were told to go for a place of their own."""
        first = {job: self.cluster.get(f"/v1/jobs/{job}")["attempts"][0] for job in self.jobs}
        return [job for job, attempt in first.items() if attempt["wanted_by"] == job]

    def device_is_free(self) -> int:
        """The other ends; return which of the two goes to its device."""
        until(self.one_is_suspended, "one of them to be suspended")
        self.cluster.allot("cancel", str(self.fill))
        until(lambda: bool(self.told()), "a suspended job to be told to go elsewhere")
        return self.told()[0]

    def result_of(self, job: int) -> list[float]:
        return json.loads(self.results[self.jobs.index(job)].read_text())


def test_a_suspended_job_goes_on_elsewhere_and_its_losses_are_the_same(
    cluster: RealCluster, tmp_path: Path
) -> None:
    two = Two(cluster, tmp_path)
    job = two.device_is_free()
    cluster.wait_for(job, "succeeded", "failed")
    assert cluster.state_of(job) == "succeeded"
    assert len(cluster.get(f"/v1/jobs/{job}")["attempts"]) == 2
    assert nodes_of(cluster, job, 0) != nodes_of(cluster, job, 1)
    told = cluster.allot("events", str(job)).stdout
    assert "paused for its turn" in told
    assert "moves to another place" in told
    moved = two.result_of(job)
    assert len(moved) > MORE
    alone = tmp_path / "alone.json"
    other = train(cluster, alone, 1, len(moved))
    cluster.wait_for(other, "succeeded")
    assert moved == json.loads(alone.read_text())


def test_a_service_that_is_killed_meanwhile_loses_nothing(
    cluster: RealCluster, tmp_path: Path
) -> None:
    two = Two(cluster, tmp_path)
    job = two.device_is_free()
    cluster.kill()
    cluster.up()
    cluster.wait_for(job, "succeeded", "failed")
    assert cluster.state_of(job) == "succeeded"
    assert len(two.result_of(job)) > MORE
    assert len(cluster.get(f"/v1/jobs/{job}")["attempts"]) == 2
    (other,) = (each for each in two.jobs if each != job)
    assert cluster.state_of(other) in {"running", "suspended"}
    assert len(cluster.get(f"/v1/jobs/{other}")["attempts"]) == 1
