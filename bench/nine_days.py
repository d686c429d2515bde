"""`python -m bench.nine_days`: days of a shared cluster, by turns and first-come.

Gandiva's second cluster experiment (Xiao et al., OSDI 2018, section 6.4), rebuilt from what is
said of it there: 100 devices on nodes of 4, and 8,800 jobs. Sizes of jobs, when they come, and
how their run times are spread are not published: docs/experiments/nine-days.md says what is
assumed, and is made of the table that this prints.
"""

import argparse
import sys
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from allotment.metrics.numbers import mean
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.quantity import DAY, DEVICE, MINUTE, SECOND, Instant, Resources
from allotment.sim.cluster import cluster_of
from allotment.sim.scenario import Scenario
from allotment.sim.settings import Settings
from allotment.sim.simulation import Simulation
from allotment.sim.trace import Trace, TraceJob
from bench.anomaly.tables import table

NODES, EACH = 25, 4
JOBS = 8_800
OVER_MS = 7 * DAY
SIZES = {1: 0.82, 2: 0.06, 4: 0.06, 8: 0.06}
"""How many devices jobs ask for, roughly as in the Philly trace."""
LOAD = 1.1
"""What the jobs ask for, as a part of all device-time of the days in which they come."""


class Arm(NamedTuple):
    """A policy, and whether running gangs are brought together."""

    name: str
    policy: str
    migrates: bool = False


ARMS = (
    Arm("fifo", "fifo"),
    Arm("backfill", "backfill"),
    Arm("turns", "round_robin"),
    Arm("gandiva", "gandiva"),
    Arm("gandiva, migrating", "gandiva", migrates=True),
)


BOUND = "no schedule ends before"


def workload(seed: int, jobs: int = JOBS, load: float = LOAD) -> list[TraceJob]:
    """Draw the jobs of a seed: in fewer days if they are fewer."""
    rng = Random(seed)
    over_ms = OVER_MS * jobs // JOBS
    sizes = rng.choices(list(SIZES), list(SIZES.values()), k=jobs)
    draws = [rng.random() for _ in range(jobs)]
    longest = _longest(sizes, draws, load * NODES * EACH * over_ms / MINUTE)
    comes = sorted(rng.randrange(over_ms) for _ in range(jobs))
    made: list[TraceJob] = []
    for number, (at, size, draw) in enumerate(zip(comes, sizes, draws, strict=True)):
        run_ms = round(longest**draw * MINUTE)
        tasks, each = max(1, size // EACH), min(size, EACH)
        need = Resources(gpu_milli=each * DEVICE)
        made.append(TraceJob(str(number), DAY + at, run_ms, tasks, need))
    return made


def _longest(sizes: Sequence[int], draws: Sequence[float], device_min: float) -> float:
    """Return how many minutes the longest job runs, if all ask for so much device-time."""
    low, high = 1.0, 10_000.0
    for _ in range(50):
        longest = (low + high) / 2
        asked = sum(size * longest**draw for size, draw in zip(sizes, draws, strict=True))
        low, high = (longest, high) if asked < device_min else (low, longest)
    return low


def soonest(jobs: Sequence[TraceJob]) -> int:
    """Return how long after the first day begins all jobs have ended at the earliest, in ms.

    No job ends before it came and ran for its length, and all of them need the devices for so
    long together.
    """
    last = max(job.submit_ms + job.run_ms for job in jobs)
    work = sum(job.run_ms * job.gpu_milli for job in jobs) // (NODES * EACH * DEVICE)
    return max(last, min(job.submit_ms for job in jobs) + work) - DAY


class Course:
    """When jobs came and ended, told by the events of a run."""

    def __init__(self) -> None:
        self._came: dict[JobId, Instant] = {}
        self.took_ms: list[int] = []
        self.ended = Instant(0)
        self.suspended = self.moved = 0

    def look(self, records: Sequence[e.Record]) -> None:
        """Take note of what happened."""
        for record in records:
            match record.event:
                case e.JobSubmitted(job=job):
                    self._came[job] = record.at
                case e.JobSucceeded(job=job):
                    self.took_ms.append(record.at - self._came[job])
                    self.ended = record.at
                case e.AttemptSuspended():
                    self.suspended += 1
                case e.StopRequested(job=job, wanted_by=by) if by == job:
                    self.moved += 1
                case _:
                    pass


def play(
    jobs: Sequence[TraceJob],
    arm: Arm,
    start_ms: int = 10 * SECOND,
    switch_ms: int = SECOND,
) -> Course:
    """Play the jobs under a policy; a gang on two nodes has 0.85 of its speed.

    A start takes `start_ms`, also that of a gang elsewhere; a suspension costs `switch_ms`.
    """
    settings = Settings(
        round_ms=60 * SECOND,
        across_nodes=0.85,
        start_ms=start_ms,
        resume_ms=start_ms,
        switch_ms=switch_ms,
        migrate="yes" if arm.migrates else "no",
    )
    course = Course()
    trace = Trace("nine.csv", "simple", "0" * 16, tuple(jobs))
    scenario = Scenario(trace, cluster_of(f"{NODES}x{EACH}"), arm.policy, settings)
    for _ in Simulation(scenario, course.look).run(trace.jobs):
        pass
    return course


def by_costs(jobs: Sequence[TraceJob]) -> str:
    """Compare what turns by affinity give if their means cost more, or less."""
    arm = next(arm for arm in ARMS if arm.policy == "gandiva")
    rows: list[list[str]] = []
    for start_ms in (SECOND, 10 * SECOND, 62 * SECOND):
        for switch_ms in (SECOND // 10, SECOND, 5 * SECOND):
            course = play(jobs, arm, start_ms, switch_ms)
            rows.append(
                [
                    f"{start_ms / SECOND:g} s",
                    f"{switch_ms / SECOND:g} s",
                    f"{mean(course.took_ms) / MINUTE:,.0f}",
                    f"{(course.ended - DAY) / MINUTE:,.0f}",
                    f"{course.moved:,}",
                ]
            )
    heads = "a start", "a suspension", "completion, mean, min", "all ended, min", "moves"
    return table(heads, rows)


def main(words: Sequence[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.nine_days")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--load", type=float, default=LOAD)
    parser.add_argument("--costs", action="store_true", help="of starts and suspensions")
    chosen = parser.parse_args(words)
    if chosen.costs:
        print(by_costs(workload(chosen.seeds[0], chosen.jobs, chosen.load)))
        return
    rows: list[list[str]] = []
    for seed in chosen.seeds:
        jobs = workload(seed, chosen.jobs, chosen.load)
        usual: Course | None = None
        least = soonest(jobs)
        for arm in ARMS:
            course = play(jobs, arm)
            usual = usual or course
            spent, before = mean(course.took_ms), mean(usual.took_ms)
            end, end_before = course.ended - DAY, usual.ended - DAY
            middle = sorted(course.took_ms)[len(course.took_ms) // 2]
            rows.append(
                [
                    str(seed),
                    arm.name,
                    f"{spent / MINUTE:,.0f}",
                    f"{100 * (spent / before - 1):+.0f} %",
                    f"{middle / MINUTE:,.0f}",
                    f"{end / MINUTE:,.0f}",
                    f"{100 * (end / end_before - 1):+.0f} %",
                    f"{course.suspended:,}",
                    f"{course.moved:,}",
                ]
            )
        assert usual is not None, "there are arms"
        part = f"{100 * (least / (usual.ended - DAY) - 1):+.0f} %"
        rows.append([str(seed), BOUND, "", "", "", f"{least / MINUTE:,.0f}", part, "", ""])
    heads = (
        "seed", "policy", "completion, mean, min", "against fifo", "median, min",
        "all ended, min", "against fifo", "suspensions", "moves",
    )  # fmt: skip
    print(table(heads, rows))


if __name__ == "__main__":
    main(sys.argv[1:])
