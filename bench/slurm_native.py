"""One Slurm job for each task, beside Slurm alone: the same daemons in one run.

Four nodes of eight GPUs, all on this machine. A thousand jobs of `true` with one GPU each:
submitted to the service one by one, and by `sbatch` one by one. Then one job at a time: from
before the submission to the first line of the job, which writes the clock.
"""

import os
import time
from pathlib import Path

from bench.cluster import percentile, until
from bench.figures import Figure
from bench.machine import cpu_s
from bench.on_slurm import (
    a_folder,
    a_service,
    is_possible,
    nodes_of,
    start_in_slurm,
    start_of,
    thousand,
)
from tests.support.slurm import Slurm, a_slurm

JOBS = int(os.environ.get("ALLOT_BENCH_JOBS", "1000"))
ROUNDS = 30
NODES, GPUS = 4, 8
MAY_ADD_MS = 150
REST = f"tenants: {{bench: {{}}}}\nlimits: {{keep_finished: {2 * JOBS}}}\n"
NEED = {"gpu": 1, "cpu": 1, "memory": "32MiB"}


def main() -> list[Figure]:
    if not is_possible():
        return []
    with a_folder() as folder, a_slurm(NODES, GPUS) as slurm:
        starts = [start_in_slurm(slurm, folder, number) for number in range(ROUNDS)]
        alone = _thousand_alone(slurm, folder)
        config = nodes_of(slurm) + REST
        with a_service(slurm, folder / "state", config) as cluster:
            connection = cluster.connect()
            ours = [start_of(connection, NEED, folder, number) for number in range(ROUNDS)]
            before_s = cpu_s(cluster.pid)
            took = thousand(connection, NEED, JOBS)
            used = cpu_s(cluster.pid) - before_s
            connection.close()
    theirs, own = percentile(starts, 0.5), percentile(ours, 0.5)
    return [
        Figure(f"Slurm alone: {JOBS:,} × `true`, one sbatch each", alone, "s", "lower"),
        Figure(f"native: {JOBS:,} × `true`, first POST to last finish", took, "s", "lower"),
        Figure("  of Slurm's own time", took / alone, "×", "lower", 1.2),
        Figure("  CPU of the service and its commands of Slurm", used, "s", "lower"),
        Figure("Slurm alone: sbatch → running, p50", theirs, "ms", "lower"),
        Figure("native: submit → running, p50", own, "ms", "lower", theirs + MAY_ADD_MS),
        Figure("native: submit → running, p90", percentile(ours, 0.9), "ms", "lower"),
    ]


def _thousand_alone(slurm: Slurm, folder: Path) -> float:
    script = folder / "true.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    began = time.perf_counter()
    for _ in range(JOBS):
        slurm.say("sbatch", "--gres=gpu:1", "-o", "/dev/null", str(script))
    until(lambda: not slurm.say("squeue", "-h", "-o", "%i"), "all jobs to end", 600)
    return time.perf_counter() - began
