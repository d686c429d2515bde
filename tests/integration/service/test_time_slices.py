"""Gangs that are suspended and go on, in turns or for their users, on real processes: nothing
is lost or twice."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import RealCluster, a_real_cluster, until
from tests.support.lost_orders import lost_orders, status_of

CONFIG = """
virtual_gpus: {type: virtual, count: 4, memory: 16GiB}
tenants:
  us:
    guaranteed: {gpu: 4}
    queues:
      default: {order: skip, time_slice: 1s}
"""
STEPS = """
import os, sys, time
name, steps, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
with open(f"{folder}/{name}.starts", "a") as file:
    file.write(".")
with open(f"{folder}/{name}.steps", "a") as file:
    for _ in range(steps):
        time.sleep(0.01)
        file.write(".")
        file.flush()
"""


class Turns:
    """A service with four devices, and jobs that count their steps."""

    def __init__(self, cluster: RealCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder

    def submit(self, name: str, steps: int, **more: Any) -> int:
        argv = [sys.executable, "-c", STEPS, name, str(steps), str(self.folder)]
        need = {"gpu": 1, "cpu": 0.1, "memory": "64MiB"}
        return self.cluster.submit(
            {"name": name, "command": argv, "resources": need, "tenant": "us", **more}
        )

    def size(self, name: str, what: str) -> int:
        file = self.folder / f"{name}.{what}"
        return file.stat().st_size if file.exists() else 0

    def states(self, jobs: list[int]) -> list[str]:
        return [self.cluster.state_of(job) for job in jobs]

    def suspended(self, jobs: list[int]) -> list[int]:
        return [job for job in jobs if self.cluster.state_of(job) == "suspended"]


@pytest.fixture
def turns(reachable: Path) -> Iterator[Turns]:
    counts = reachable / "counts"
    counts.mkdir()
    with a_real_cluster(reachable, CONFIG) as cluster:
        yield Turns(cluster, counts)


def test_six_jobs_take_turns_on_four_devices(turns: Turns) -> None:
    cluster = turns.cluster
    jobs = [turns.submit(f"j{n}", 250) for n in range(6)]
    until(lambda: bool(turns.suspended(jobs)), "a job to be paused")
    until(lambda: all(turns.size(f"j{n}", "starts") for n in range(6)), "all to have begun")
    assert turns.states(jobs).count("running") <= 4
    for job in jobs:
        cluster.wait_for(job, "succeeded", "failed")
    assert turns.states(jobs) == ["succeeded"] * 6
    assert [turns.size(f"j{n}", "starts") for n in range(6)] == [1] * 6
    assert [turns.size(f"j{n}", "steps") for n in range(6)] == [250] * 6
    told = cluster.allot("events").stdout
    assert "paused for its turn: job" in told
    assert "borrows now: it is the turn of job" in told


def test_two_jobs_share_a_device_in_proportion_to_their_weights(turns: Turns) -> None:
    cluster = turns.cluster
    four = {"gpu": 4, "cpu": 0.1, "memory": "64MiB"}
    heavy, light = (
        turns.submit(f"w{weight}", 100_000, weight=weight, resources=four) for weight in (2, 1)
    )

    def ran() -> tuple[int, int]:
        mine, theirs = (
            cluster.get(f"/v1/jobs/{job}")["row"]["ran_ms"] for job in (heavy, light)
        )
        return mine, theirs

    said: set[str] = set()

    def enough() -> bool:
        why = cluster.get(f"/v1/jobs/{light}/why")
        said.add(why["message"] if why is not None else "")
        return sum(ran()) >= 15_000

    until(enough, "five rounds")
    mine, theirs = ran()
    late_ms = 1_500  # What the service is late in ten switches, on a busy machine.
    assert abs(mine - 2 * theirs) <= 2_000 + late_ms, "by no more than one turn"
    assert any("times their weight (its own: 1)" in each for each in said)
    top = cluster.allot("top", "--once").stdout
    assert "TURN" in top
    assert "weight 2" in cluster.allot("show", str(heavy)).stdout


def test_why_says_when_a_paused_job_runs_again(turns: Turns) -> None:
    cluster = turns.cluster
    jobs = [turns.submit(f"j{n}", 100_000) for n in range(5)]

    def said() -> bool:
        found = [cluster.get(f"/v1/jobs/{job}/why") for job in turns.suspended(jobs)]
        words = [why["message"] for why in found if why is not None]
        return any("turns of 1.0 s" in each and "runs again in about" in each for each in words)

    until(said, "a paused job to say so")


def test_a_service_that_is_killed_amid_a_turn_loses_nothing(turns: Turns) -> None:
    cluster = turns.cluster
    jobs = [turns.submit(f"j{n}", 300) for n in range(6)]
    until(lambda: bool(turns.suspended(jobs)), "a job to be paused")
    cluster.kill()
    cluster.up()
    for job in jobs:
        cluster.wait_for(job, "succeeded", "failed")
    assert turns.states(jobs) == ["succeeded"] * 6
    assert [turns.size(f"j{n}", "starts") for n in range(6)] == [1] * 6
    assert [turns.size(f"j{n}", "steps") for n in range(6)] == [300] * 6


def test_a_service_that_is_killed_before_a_resumed_job_goes_on_loses_nothing(
    turns: Turns,
) -> None:
    cluster, job = turns.cluster, turns.submit("j0", 300)
    until(lambda: turns.size("j0", "steps") > 0, "a step")
    cluster.allot("suspend", str(job))
    until(lambda: status_of(cluster, job)["frozen"], "the job to be frozen")
    done = turns.size("j0", "steps")
    with lost_orders(cluster, job, 0) as until_given:
        cluster.allot("resume", str(job))
        until_given()
        cluster.kill()
        assert turns.size("j0", "steps") == done < 300
    cluster.up()
    cluster.wait_for(job, "succeeded", "failed")
    assert cluster.state_of(job) == "succeeded"
    assert len(cluster.get(f"/v1/jobs/{job}")["attempts"]) == 1
    assert (turns.size("j0", "starts"), turns.size("j0", "steps")) == (1, 300)


def test_a_paused_job_may_be_cancelled_or_die_and_the_others_go_on(turns: Turns) -> None:
    cluster = turns.cluster
    jobs = [turns.submit(f"j{n}", 100_000) for n in range(6)]
    until(lambda: len(turns.suspended(jobs)) >= 2, "two jobs to be paused")
    ended = turns.suspended(jobs)[:1]
    cluster.allot("cancel", str(ended[0]))
    cluster.wait_for(ended[0], "cancelled")
    rest = [job for job in jobs if job not in ended]
    until(lambda: bool(turns.suspended(rest)), "another to be paused")
    dead = turns.suspended(rest)[0]
    pid = cluster.get(f"/v1/jobs/{dead}")["attempts"][-1]["tasks"][0]["pid"]
    os.kill(pid, signal.SIGKILL)
    cluster.wait_for(dead, "failed")
    rest = [job for job in rest if job != dead]
    until(lambda: turns.states(rest) == ["running"] * 4, "the others to run")
