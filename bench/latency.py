"""What one person at an idle machine feels: submit → running, and `allot ps`.

Submit → running is from sending the request to the start of the process as the process
itself saw it: the job's command writes the clock. `allot ps` is timed as a whole process.
"""

import subprocess
import tempfile
import time
from pathlib import Path

from bench.cluster import ALLOT, BenchCluster, a_cluster, a_job, percentile, until
from bench.figures import Figure

ROUNDS = 40


def main() -> list[Figure]:
    with a_cluster(gpus=8) as cluster, tempfile.TemporaryDirectory() as folder:
        starts = [_start(cluster, Path(folder), number) for number in range(ROUNDS)]
        tables = [_table(cluster) for _ in range(15)]
    return [
        Figure(
            "idle submit → process running, p50", percentile(starts, 0.5), "ms", "lower", 40
        ),
        Figure("idle submit → process running, p90", percentile(starts, 0.9), "ms", "lower"),
        Figure(
            "`allot ps` as a whole process, p50", percentile(tables, 0.5), "ms", "lower", 300
        ),
    ]


def _start(cluster: BenchCluster, folder: Path, number: int) -> float:
    connection = cluster.connect()
    stamp = folder / f"stamp-{number}"
    body = a_job(f"date +%s%N > {stamp}.new; mv {stamp}.new {stamp}", gpu=1)
    began = time.time_ns()
    connection.submit(body)
    until(stamp.exists, "the job to run")
    connection.close()
    return (int(Path(stamp).read_text()) - began) / 1e6


def _table(cluster: BenchCluster) -> float:
    began = time.perf_counter()
    subprocess.run(
        [*ALLOT, "ps", "--state", str(cluster.state)], check=True, capture_output=True
    )
    return (time.perf_counter() - began) * 1e3
