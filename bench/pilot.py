"""Whole Slurm nodes held by Allotment, beside Slurm alone: the same daemons in one run.

Four nodes of eight GPUs, all on this machine. A thousand jobs of `true` with one GPU each:
through the service, and as an array of Slurm. Then one job at a time: from before the
submission to the first line of the job, which writes the clock.
"""

import time
from pathlib import Path

from bench.cluster import Connection, percentile, until
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

JOBS = 1000
ROUNDS = 30
NODES, GPUS = 4, 8
REST = f"tenants: {{bench: {{}}}}\nlimits: {{keep_finished: {2 * JOBS}}}\n"
NEED = {"gpu": 1, "cpu": 0.1, "memory": "32MiB"}


def main() -> list[Figure]:
    if not is_possible():
        return []
    with a_folder() as folder, a_slurm(NODES, GPUS) as slurm:
        alone = _array(slurm, folder)
        theirs = [start_in_slurm(slurm, folder, number) for number in range(ROUNDS)]
        began = time.perf_counter()
        config = nodes_of(slurm) + REST
        with a_service(slurm, folder / "state", config, ["--pilot"]) as cluster:
            connection = cluster.connect()
            until(lambda: _held(connection), "the nodes to be held")
            held = time.perf_counter() - began
            before_s = cpu_s(cluster.pid)
            took = thousand(connection, NEED, JOBS)
            used = cpu_s(cluster.pid) - before_s
            ours = [start_of(connection, NEED, folder, number) for number in range(ROUNDS)]
            connection.close()
    return [
        Figure("Slurm alone: array of 1,000 × `true`, 32 GPUs", alone, "s", "lower"),
        Figure("Slurm alone: sbatch → running, p50", percentile(theirs, 0.5), "ms", "lower"),
        Figure("pilots: `allot up` → four nodes held", held, "s", "lower"),
        Figure("pilots: 1,000 × `true`, first POST to last finish", took, "s", "lower", 8.0),
        Figure("  of Slurm's own time", took / alone, "×", "lower", 0.1),
        Figure("  CPU of the service", used, "s", "lower"),
        Figure("pilots: submit → running, p50", percentile(ours, 0.5), "ms", "lower", 30),
        Figure("pilots: submit → running, p90", percentile(ours, 0.9), "ms", "lower"),
    ]


def _array(slurm: Slurm, folder: Path) -> float:
    script = folder / "true.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    began = time.perf_counter()
    slurm.say("sbatch", f"--array=1-{JOBS}", "--gres=gpu:1", "-o", "/dev/null", str(script))
    until(lambda: not slurm.say("squeue", "-h", "-o", "%i"), "the array to end", 600)
    return time.perf_counter() - began


def _held(connection: Connection) -> bool:
    return all(node["state"] == "ready" for node in connection.get("/v1/nodes"))
