"""Gangs over several pilots: all ranks stop after one step, on whatever nodes they are."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import allotment
from tests.support.cluster import until
from tests.support.on_pilots import NODES, Piloted, runners
from tests.support.on_slurm import a_shared_folder, shell
from tests.support.slurm import TOOLS, a_slurm

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS, "openssl")]

PROGRAM = Path(__file__).parents[1] / "local/paused_program.py"
SRC = Path(allotment.__file__).parents[1]
CONFIG = f"""\
{NODES}tenants:
  lab:
    guaranteed: {{gpu: 8}}
    queues:
      default: {{}}
      turns: {{order: skip, time_slice: 1s}}
"""
RANKS, STILL_S = 2, 0.3


class Gangs(Piloted):
    """Jobs of two ranks, each on all devices of a node, that add up numbers at each step."""

    def gang(self, kind: str, queue: str = "default") -> int:
        command = f'exec {sys.executable} {PROGRAM} "$ALLOT_OUTPUT_DIR" {kind}'
        env = {"PYTHONPATH": str(SRC), "PYTHONDONTWRITEBYTECODE": "1"}
        more = {"count": RANKS, "resources": {"gpu": 4}, "env": env}
        return self.submit(shell(command, tenant="lab", queue=queue, **more))

    def file(self, job: int, name: str) -> Path:
        return self.state / "outputs" / str(job) / "attempt-1" / name

    def steps(self, job: int, rank: int) -> list[str]:
        path = self.file(job, f"sums-{rank}")
        return path.read_text().splitlines() if path.exists() else []

    def until_it_goes_on(self, job: int) -> None:
        before = [len(self.steps(job, rank)) for rank in range(RANKS)]

        def both_go_on() -> bool:
            now = [len(self.steps(job, rank)) for rank in range(RANKS)]
            return all(n > had + 5 for n, had in zip(now, before, strict=True))

        until(both_go_on, "both ranks to make steps")

    def until_suspended(self, job: int, words: str) -> None:
        until(lambda: words in self.allot("show", str(job)).stdout, f"{words!r} of job {job}")

    def see_it_still(self, job: int) -> None:
        """See that no rank makes a step, that all made the same, and none is in a sum."""
        before = [len(self.steps(job, rank)) for rank in range(RANKS)]
        time.sleep(STILL_S)
        assert [len(self.steps(job, rank)) for rank in range(RANKS)] == before
        assert len(set(before)) == 1, before
        inside = [self.file(job, f"inside-{rank}").read_bytes() for rank in range(RANKS)]
        assert inside == [b"0"] * RANKS


@pytest.fixture(scope="module")
def service() -> Iterator[Gangs]:
    with a_slurm() as slurm, a_shared_folder() as made:
        running = Gangs(made / "state", slurm, CONFIG)
        running.up()
        try:
            yield running
        finally:
            running.down()
            slurm.clear()


OFFLOADED = "it moved its device memory to the host"
FROZEN = "frozen, with all its device memory"


@pytest.mark.parametrize(("kind", "how"), [("offloads", OFFLOADED), ("plain", FROZEN)])
def test_a_gang_over_two_nodes_stops_after_one_step(
    cluster: Gangs, kind: str, how: str
) -> None:
    job = cluster.gang(kind)
    cluster.until_it_goes_on(job)
    assert len(set(cluster.get(f"/v1/jobs/{job}")["row"]["nodes"])) == 2
    for _ in range(3):
        assert cluster.allot("suspend", str(job)).returncode == 0
        cluster.until_suspended(job, how)
        cluster.see_it_still(job)
        assert cluster.allot("resume", str(job)).returncode == 0
        cluster.until_it_goes_on(job)
    ranks = [[line.split()[1] for line in cluster.steps(job, n)] for n in range(RANKS)]
    shortest = min(map(len, ranks))
    assert ranks[0][:shortest] == ranks[1][:shortest]


def test_two_gangs_take_turns_on_two_pilots(cluster: Gangs) -> None:
    jobs = [cluster.gang("offloads", "turns") for _ in range(2)]
    seen: dict[int, int] = dict.fromkeys(jobs, 0)

    def have_had_turns() -> bool:
        for job in jobs:
            if (
                cluster.state_of(job) == "suspended"
                and OFFLOADED in cluster.allot("show", str(job)).stdout
            ):
                made = [len(cluster.steps(job, rank)) for rank in range(RANKS)]
                if cluster.state_of(job) == "suspended":
                    assert len(set(made)) == 1, made
                    seen[job] += 1
        return min(seen.values()) >= 2

    until(have_had_turns, "both to have been paused twice")
    for job in jobs:
        assert len(cluster.job(job)["attempts"]) == 1, "none was started again for a turn"


def test_a_gang_is_suspended_whole_though_service_and_runners_die_amid_it(
    cluster: Gangs,
) -> None:
    job = cluster.gang("slow-last")
    cluster.until_it_goes_on(job)
    assert cluster.allot("suspend", str(job)).returncode == 0
    cluster.kill()
    for pid in runners(cluster.state)[:1]:
        os.kill(pid, signal.SIGKILL)
    cluster.up()
    cluster.until_suspended(job, "Suspended: ")
    cluster.see_it_still(job)
    assert cluster.allot("resume", str(job)).returncode == 0
    cluster.until_it_goes_on(job)
    assert len(cluster.job(job)["attempts"]) == 1


def test_a_suspended_gang_over_two_nodes_can_be_cancelled(cluster: Gangs) -> None:
    job = cluster.gang("saves")
    cluster.until_it_goes_on(job)
    assert cluster.allot("suspend", str(job)).returncode == 0
    cluster.until_suspended(job, OFFLOADED)
    assert cluster.allot("cancel", str(job)).returncode == 0
    cluster.wait_for(job, "cancelled")
    saved = [cluster.file(job, f"saved-{rank}").read_text() for rank in range(RANKS)]
    assert saved == ["1"] * RANKS, "MiB that each had when it saved"
