"""Gangs that migrate, on real processes: they go on elsewhere, and compute the same."""

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
      default: {order: skip, migrate: true}
"""
LENT = """
nodes:
  - {name: n1, cpu: 4, memory: 2GiB, gpu: {type: V100, count: 1, virtual: true}}
  - {name: n2, cpu: 4, memory: 2GiB, gpu: {type: A100, count: 1, virtual: true}}
tenants:
  owner: {guaranteed: {gpu: 2}}
  us: {on_eviction: migrate}
"""
MORE = 50
"""A gang that was moved does so many steps more."""
TRAIN = """
import json, os, signal, sys, time
rank, stop = int(os.environ["RANK"]), []
signal.signal(signal.SIGUSR1, lambda *_: stop.append(1))
folder = os.environ["ALLOT_CHECKPOINT_DIR"]
weight, step, losses = 1.0, 0, []
last = int(sys.argv[2])
if os.environ.get("ALLOT_RESUME_FROM"):
    weight, step, losses = json.load(open(os.environ["ALLOT_RESUME_FROM"]))
    last = step + MORE

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

while step < last:
    time.sleep(0.01)
    step += 1
    losses.append((weight * 0.3 - 1.7) ** 2 / step)
    weight -= 0.01 * 2 * (weight * 0.3 - 1.7) * 0.3
    if step % 10 == 0:
        save()
    if stop:
        save()
        sys.exit(85)
if rank == 0:
    put(sys.argv[1], losses)
""".replace("MORE", str(MORE))


@pytest.fixture
def cluster(request: pytest.FixtureRequest, reachable: Path) -> Iterator[RealCluster]:
    with a_real_cluster(reachable, getattr(request, "param", CONFIG)) as real:
        yield real


def train(cluster: RealCluster, result: Path, tasks: int, steps: int = 10**9) -> int:
    return cluster.submit(
        {
            "name": "train",
            "tenant": "us",
            "command": [sys.executable, "-c", TRAIN, str(result), str(steps)],
            "count": tasks,
            "resources": {"gpu": 1, "cpu": 0.1, "memory": "64MiB"},
            "checkpoint": {"signal": "USR1", "grace": "10s"},
        }
    )


def fill(cluster: RealCluster) -> int:
    need = {"gpu": 1, "cpu": 0.1, "memory": "64MiB"}
    job = cluster.submit(
        {"name": "fill", "tenant": "us", "command": "sleep 1000", "resources": need}
    )
    cluster.wait_for(job, "running")
    return job


def nodes_of(cluster: RealCluster, job: int, attempt: int) -> list[str]:
    tasks = cluster.get(f"/v1/jobs/{job}")["attempts"][attempt]["tasks"]
    return sorted({task["node"] for task in tasks})


def check_losses(cluster: RealCluster, result: Path) -> None:
    """Compare the losses of a gang that moved with those of one that does not."""
    moved, alone = json.loads(result.read_text()), result.with_name("alone.json")
    assert len(moved) > MORE
    other = train(cluster, alone, 1, len(moved))
    cluster.wait_for(other, "succeeded")
    assert moved == json.loads(alone.read_text())


def test_a_gang_is_brought_together_and_its_losses_are_the_same(
    cluster: RealCluster, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    fillers = [fill(cluster) for _ in range(3)]
    cluster.allot("cancel", str(fillers[0]))
    cluster.wait_for(fillers[0], "cancelled")
    result = tmp_path / "moved.json"
    job = train(cluster, result, 2)
    cluster.wait_for(job, "running")
    assert nodes_of(cluster, job, 0) == ["n1", "n2"]
    cluster.allot("cancel", str(fillers[1]))
    cluster.wait_for(job, "succeeded", "failed")
    assert cluster.state_of(job) == "succeeded"
    assert len(nodes_of(cluster, job, 1)) == 1
    told = cluster.allot("events", str(job)).stdout
    assert "moves to another place" in told
    shown = cluster.allot("show", str(job)).stdout
    assert "moved to another place" in shown
    check_losses(cluster, result)


def test_a_service_that_is_killed_amid_a_move_loses_nothing(
    cluster: RealCluster, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    fillers = [fill(cluster) for _ in range(3)]
    cluster.allot("cancel", str(fillers[0]))
    cluster.wait_for(fillers[0], "cancelled")
    job = train(cluster, tmp_path / "moved.json", 2)
    cluster.wait_for(job, "running")
    cluster.allot("cancel", str(fillers[1]))

    def told() -> bool:
        assert cluster.state_of(job) != "failed"
        attempt = cluster.get(f"/v1/jobs/{job}")["attempts"][0]
        return attempt["wanted_by"] == job

    until(told, "the gang to be told")
    cluster.kill()
    cluster.up()
    cluster.wait_for(job, "succeeded", "failed")
    assert cluster.state_of(job) == "succeeded"
    assert len(json.loads((tmp_path / "moved.json").read_text())) > MORE
    assert len(cluster.get(f"/v1/jobs/{job}")["attempts"]) == 2


@pytest.mark.parametrize("cluster", [LENT], ids=["lent"], indirect=True)
def test_a_service_that_is_killed_while_lent_devices_go_back_loses_nothing(
    cluster: RealCluster, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    job = train(cluster, tmp_path / "moved.json", 1)
    cluster.wait_for(job, "running")
    saved = cluster.state / "checkpoints" / str(job) / "10.json"
    until(saved.exists, "a checkpoint")
    lent = nodes_of(cluster, job, 0)
    need = {"gpu": 1, "gpu_type": {"n1": "V100", "n2": "A100"}[lent[0]], "memory": "64MiB"}
    spec = {"name": "own", "tenant": "owner", "command": "sleep 1000", "resources": need}
    with lost_orders(cluster, job, 0) as until_given:
        owner = cluster.submit(spec)
        until_given()
        cluster.kill()
    cluster.up()
    cluster.wait_for(owner, "running")
    assert nodes_of(cluster, owner, 0) == lent
    cluster.wait_for(job, "succeeded", "failed")
    assert cluster.state_of(job) == "succeeded"
    assert len(cluster.get(f"/v1/jobs/{job}")["attempts"]) == 2
    assert nodes_of(cluster, job, 1) != lent
    check_losses(cluster, tmp_path / "moved.json")
