"""Queues that grow, on real processes: what idles is used, given back, and not in vain."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import RealCluster, a_real_cluster, until
from tests.support.lost_orders import lost_orders

CONFIG = """
nodes:
  - {names: [n1, n2], cpu: 4, memory: 2GiB, gpu: {type: V100, count: 2, virtual: true}}
tenants:
  us:
    guaranteed: {gpu: 4}
    queues:
      default: {order: skip, grow: 2s}
"""
IN_CELLS = """
nodes:
  - {names: [n1, n2], cpu: 4, memory: 2GiB, gpu: {type: V100, count: 2, virtual: true}}
cells:
  types:
    v100-node: {of: V100, count: 2, node: true}
    v100-rack: {of: v100-node, count: 2}
  roots: [{type: v100-rack, name: r1, nodes: [n1, n2]}]
tenants:
  us:
    cells: {v100-node: 2}
    queues:
      default: {order: skip, grow: 2s}
"""
TRAIN = """
import json, os, signal, sys, time
rank, stop = int(os.environ["RANK"]), []
signal.signal(signal.SIGUSR1, lambda *_: stop.append(1))
folder = os.environ["ALLOT_CHECKPOINT_DIR"]
weight, step, losses = 1.0, 0, []
done, of_step = sys.argv[1], json.loads(sys.argv[2])
if os.environ.get("ALLOT_RESUME_FROM"):
    weight, step, losses = json.load(open(os.environ["ALLOT_RESUME_FROM"]))

def put(path, what):
    with open(f"{path}.{rank}.new", "w") as file:
        json.dump(what, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.{rank}.new", path)

def save():
    if rank == 0:
        path = f"{folder}/{step}.json"
        put(path, [weight, step, losses])
        put(os.environ["ALLOT_CHECKPOINT_FILE"], {"path": path, "step": step})

while not os.path.exists(done):
    time.sleep(of_step[open(os.environ["ALLOT_TASKS_FILE"]).read().strip()])
    step += 1
    losses.append((weight * 0.3 - 1.7) ** 2 / step)
    weight -= 0.01 * 2 * (weight * 0.3 - 1.7) * 0.3
    if rank == 0:
        put(os.environ["ALLOT_PROGRESS_FILE"], {"step": step, "total": 10**6})
    if step % 10 == 0:
        save()
    if stop:
        save()
        sys.exit(85)
if rank == 0:
    put(done, losses)
"""
SCALES = {"1": 0.1, "2": 0.05, "3": 0.04, "4": 0.025}
"""How long a step takes with so many tasks."""
GETS_SLOWER = {"1": 0.1, "2": 0.05, "3": 0.1, "4": 0.2}
BOTH = pytest.mark.parametrize(
    "cluster", [CONFIG, IN_CELLS], ids=["counted", "cells"], indirect=True
)


@pytest.fixture
def cluster(request: pytest.FixtureRequest, reachable: Path) -> Iterator[RealCluster]:
    with a_real_cluster(reachable, getattr(request, "param", CONFIG)) as real:
        yield real


def train(cluster: RealCluster, done: Path, of_step: dict[str, float]) -> int:
    return cluster.submit(
        {
            "name": "train",
            "tenant": "us",
            "command": [sys.executable, "-c", TRAIN, str(done), json.dumps(of_step)],
            "count": {"min": 1, "max": 4, "elastic": True},
            "resources": {"gpu": 1, "cpu": 0.1, "memory": "64MiB"},
            "checkpoint": {"signal": "USR1", "grace": "10s"},
        }
    )


def fill(cluster: RealCluster, devices: int = 1) -> int:
    job = cluster.submit(a_filler(devices))
    cluster.wait_for(job, "running")
    return job


def a_filler(devices: int) -> dict[str, object]:
    need = {"gpu": devices, "cpu": 0.1, "memory": "64MiB"}
    return {"name": "fill", "tenant": "us", "command": "sleep 1000", "resources": need}


def grown(cluster: RealCluster, tmp_path: Path, of_step: dict[str, float]) -> int:
    """Return a job that has two tasks, and has got four since the others are free."""
    tmp_path.chmod(0o755)
    other = fill(cluster, 2)
    job = train(cluster, tmp_path / "done.json", of_step)
    cluster.wait_for(job, "running")
    assert tasks_of(cluster, job) == 2
    cluster.allot("cancel", str(other))
    until(lambda: len(attempts(cluster, job)) == 2, "the job to start anew", 60)
    cluster.wait_for(job, "running")
    assert tasks_of(cluster, job) == 4
    return job


def attempts(cluster: RealCluster, job: int) -> list[dict[str, object]]:
    return cluster.get(f"/v1/jobs/{job}")["attempts"]


def tasks_of(cluster: RealCluster, job: int) -> int:
    return cluster.get(f"/v1/jobs/{job}")["row"]["tasks"]


def checkpoints(cluster: RealCluster, job: int) -> int:
    return len(list(cluster.state.glob(f"checkpoints/{job}/*0.json")))


def check_losses(done: Path) -> None:
    losses, weight = json.loads(done.read_text()), 1.0
    for step, loss in enumerate(losses, start=1):
        assert loss == (weight * 0.3 - 1.7) ** 2 / step, "as if it had run undisturbed"
        weight -= 0.01 * 2 * (weight * 0.3 - 1.7) * 0.3


@BOTH
def test_a_job_grows_is_found_to_gain_and_shrinks_for_one_that_waits(
    cluster: RealCluster, tmp_path: Path
) -> None:
    job = grown(cluster, tmp_path, SCALES)
    assert "grows to 4 task(s)" in cluster.allot("events", str(job)).stdout
    until(lambda: bool(attempts(cluster, job)[1]["gained"]), "the gain to be measured", 60)
    gained = attempts(cluster, job)[1]["gained"]
    assert isinstance(gained, dict)
    assert gained["kept"]
    assert gained["rate"] > 1.3 * gained["before"]
    shown = cluster.allot("show", str(job)).stdout
    assert "(left to grow)" in shown
    assert "steps an hour since it moved" in shown
    fill(cluster)
    until(lambda: tasks_of(cluster, job) == 3, "the job to give a task up")
    (tmp_path / "done.json").touch()
    cluster.wait_for(job, "succeeded", "failed")
    assert cluster.state_of(job) == "succeeded"
    check_losses(tmp_path / "done.json")


def test_a_job_that_is_slower_with_more_tasks_gets_its_old_size_back(
    cluster: RealCluster, tmp_path: Path
) -> None:
    job = grown(cluster, tmp_path, GETS_SLOWER)
    until(lambda: tasks_of(cluster, job) == 2, "the growth to be undone", 60)
    gained = attempts(cluster, job)[1]["gained"]
    assert isinstance(gained, dict)
    assert not gained["kept"]
    assert cluster.state_of(job) == "running"
    assert len(attempts(cluster, job)) == 2
    assert "it is not moved for more speed again" in cluster.allot("events", str(job)).stdout


def test_a_service_that_is_killed_while_a_job_starts_anew_loses_nothing(
    cluster: RealCluster, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    other = fill(cluster, 2)
    job = train(cluster, tmp_path / "done.json", SCALES)
    cluster.wait_for(job, "running")
    cluster.allot("cancel", str(other))
    until(lambda: attempts(cluster, job)[0]["wanted_by"] == job, "the job to be told", 60)
    cluster.kill()
    cluster.up()
    until(lambda: len(attempts(cluster, job)) == 2, "the job to start anew", 60)
    cluster.wait_for(job, "running")
    assert tasks_of(cluster, job) == 4
    (tmp_path / "done.json").touch()
    cluster.wait_for(job, "succeeded", "failed")
    assert cluster.state_of(job) == "succeeded"
    assert [attempt["outcome"] for attempt in attempts(cluster, job)] == [
        "evicted",
        "succeeded",
    ]


@BOTH
def test_a_service_that_is_killed_while_a_job_shrinks_loses_nothing(
    cluster: RealCluster, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    job = train(cluster, tmp_path / "done.json", SCALES)
    cluster.wait_for(job, "running")
    assert tasks_of(cluster, job) == 4
    with lost_orders(cluster, job, 1, 2, 3) as until_given:
        other = cluster.submit({**a_filler(1), "count": 3})
        until_given()
        cluster.kill()
    cluster.up()
    cluster.wait_for(other, "running")
    assert tasks_of(cluster, job) == 1
    before = checkpoints(cluster, job)
    until(lambda: checkpoints(cluster, job) > before, "the steps to go on")
    (tmp_path / "done.json").touch()
    cluster.wait_for(job, "succeeded", "failed")
    assert cluster.state_of(job) == "succeeded"
    assert len(attempts(cluster, job)) == 1
    told = cluster.allot("events", str(job)).stdout
    assert told.count("shrinks to 1 task(s)") == told.count("continues with 1 task(s)") == 1
    check_losses(tmp_path / "done.json")
