"""Three teams share 32 GPUs: under Allotment in both ways, and under Slurm in both.

300 jobs of 1 to 8 GPUs, with run times like those of clusters: many short, few long. Each team
has a burst of its own, and half, a quarter and a quarter of the nodes: as its guarantee under
Allotment, as its partition under Slurm. Slurm's other way is one partition for all, with
backfill. Jobs write the clock when they end. What a job waited is all of the time from its
submission to its end but its run time, so what an eviction costs is counted.
"""

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench.cluster import Connection, percentile, until
from bench.figures import Figure
from bench.on_slurm import a_folder, a_service, is_possible, nodes_of
from tests.support.slurm import Slurm, a_slurm

JOBS = int(os.environ.get("ALLOT_BENCH_JOBS", "300"))
NODES, GPUS = 4, 8
SHARES = {"a": 2, "b": 1, "c": 1}
BURSTS = {"a": (0, 18), "b": (6, 24), "c": (12, 30)}
"""When each team submits, in seconds, for 300 jobs."""
SETTINGS = """
PartitionName=a Nodes=n[1-2] State=UP
PartitionName=b Nodes=n3 State=UP
PartitionName=c Nodes=n4 State=UP
"""
QUEUES = "{default: {order: easy}}"
Submit = Callable[["Job", Path], None]


class Job(msgspec.Struct, frozen=True):
    """What is submitted, and when."""

    number: int
    team: str
    at: float
    gpus: int
    seconds: float

    def script(self, folder: Path) -> str:
        stamp, end = folder / f"{self.number}.end", "date +%s%N"
        return f"sleep {self.seconds}; {end} > {stamp}.new; mv {stamp}.new {stamp}"


class Run(msgspec.Struct, frozen=True):
    """What came of all jobs."""

    makespan: float
    waits: dict[str, list[float]]


def main() -> list[Figure]:
    if not is_possible():
        return []
    jobs = workload()
    work = sum(job.gpus * job.seconds for job in jobs) / (NODES * GPUS)
    print(f"  {len(jobs)} jobs, {work:.0f} s of all GPUs", flush=True)
    with a_folder() as folder, a_slurm(NODES, GPUS, SETTINGS) as slurm:
        runs = {
            "Slurm, one partition": play(
                jobs, folder / "shared", by_sbatch(slurm, lambda _: "main")
            ),
            "Slurm, a partition each": play(
                jobs, folder / "own", by_sbatch(slurm, lambda job: job.team)
            ),
            "native": _allotment(slurm, jobs, folder, "native"),
            "pilots": _allotment(slurm, jobs, folder, "pilots", "--pilot"),
        }
    return figures_of(runs)


def workload() -> list[Job]:
    rng = random.Random(2026)
    jobs: list[Job] = []
    for number in range(JOBS):
        team = rng.choices(list(SHARES), list(SHARES.values()))[0]
        first, last = BURSTS[team]
        at = rng.uniform(first, last) * JOBS / 300
        gpus = rng.choices([1, 2, 4, 8], [60, 15, 15, 10])[0]
        seconds = round(min(20.0, max(0.3, rng.lognormvariate(0.35, 1.1))), 1)
        jobs.append(Job(number, team, at, gpus, seconds))
    return sorted(jobs, key=lambda job: job.at)


def play(jobs: list[Job], folder: Path, submit: Submit) -> Run:
    """Submit each job at its time; return when all had ended, and what each waited."""
    folder.mkdir()
    began, submitted = time.time(), dict[int, float]()
    for job in jobs:
        time.sleep(max(0.0, began + job.at - time.time()))
        submitted[job.number] = time.time()
        submit(job, folder)
    until(lambda: len(list(folder.glob("*.end"))) == len(jobs), "all jobs to end", 600)
    ends = {job.number: int((folder / f"{job.number}.end").read_text()) / 1e9 for job in jobs}
    waits: dict[str, list[float]] = {team: [] for team in SHARES}
    for job in jobs:
        waits[job.team].append(ends[job.number] - submitted[job.number] - job.seconds)
    return Run(max(ends.values()) - began, waits)


def by_sbatch(slurm: Slurm, partition: Callable[[Job], str]) -> Submit:
    def submit(job: Job, folder: Path) -> None:
        script = folder / f"{job.number}.sh"
        script.write_text(f"#!/bin/sh\n{job.script(folder)}\n")
        slurm.say(
            "sbatch", f"--partition={partition(job)}", f"--gres=gpu:{job.gpus}", "--mem=32M",
            "--nodes=1", "--time=1", "-o", "/dev/null", str(script),
        )  # fmt: skip

    return submit


def _allotment(slurm: Slurm, jobs: list[Job], folder: Path, name: str, *options: str) -> Run:
    tenants = "".join(
        f"  {team}: {{guaranteed: {{gpu: {share * GPUS}}}, queues: {QUEUES}}}\n"
        for team, share in SHARES.items()
    )
    config = f"{nodes_of(slurm)}tenants:\n{tenants}limits: {{keep_finished: {2 * len(jobs)}}}\n"
    with a_service(slurm, folder / f"state-{name}", config, options) as cluster:
        connection = cluster.connect()
        until(lambda: _ready(connection), "the nodes to be there")

        def submit(job: Job, to: Path) -> None:
            need = {"gpu": job.gpus, "cpu": 1, "memory": "32MiB"}
            spec = {
                "name": "bench", "tenant": job.team, "command": job.script(to),
                "resources": need, "max_run_time": "1m",
            }  # fmt: skip
            connection.submit(json.dumps(spec).encode())

        run = play(jobs, folder / name, submit)
        connection.close()
        return run


def _ready(connection: Connection) -> bool:
    return all(node["state"] == "ready" for node in connection.get("/v1/nodes"))


def figures_of(runs: dict[str, Run]) -> list[Figure]:
    shared, own = runs["Slurm, one partition"], runs["Slurm, a partition each"]
    found: list[Figure] = []
    for name, run in runs.items():
        is_ours = name in ("native", "pilots")
        most = shared.makespan if is_ours else None
        found.append(Figure(f"{name}: {JOBS} jobs, makespan", run.makespan, "s", "lower", most))
        for team, waits in run.waits.items():
            mean = sum(waits) / len(waits)
            theirs = own.waits[team]
            most = sum(theirs) / len(theirs) if is_ours else None
            found.append(Figure(f"  team {team}: wait, mean", mean, "s", "lower", most))
            found.append(
                Figure(f"  team {team}: wait, p90", percentile(waits, 0.9), "s", "lower")
            )
    return found
