"""How long a service is away after kill -9: until the next one answers that it is ready.

It has 2,100 jobs in its books: 100 wait, some run, the rest is over. A restart is `allot up`
and everything that it does.
"""

import os
import signal
import subprocess
import time

from bench.cluster import ALLOT, BenchCluster, a_cluster, a_job
from bench.figures import Figure

FINISHED, WAITING = 2_000, 100
KILLS = int(os.environ.get("ALLOT_KILLS", "20"))


def main() -> list[Figure]:
    with a_cluster(gpus=8, keep=FINISHED) as cluster:
        _fill(cluster)
        seconds = sorted(_restart(cluster) for _ in range(KILLS))
    return [
        Figure("restart after kill -9, median", seconds[len(seconds) // 2], "s", "lower"),
        Figure(f"restart after kill -9, worst of {KILLS}", seconds[-1], "s", "lower", 2),
    ]


def _fill(cluster: BenchCluster) -> None:
    connection = cluster.connect()
    for _ in range(FINISHED):
        connection.submit(a_job("true"))
    while connection.get("/v1/jobs?state=queued&state=running&state=starting&limit=1")["items"]:
        time.sleep(0.2)
    for _ in range(WAITING):
        connection.submit(a_job("sleep 3600"))
    connection.close()


def _restart(cluster: BenchCluster) -> float:
    """End the service as a power cut would; give how long the next takes to be ready."""
    pid = BenchCluster(cluster.state).pid
    os.kill(pid, signal.SIGKILL)
    began = time.perf_counter()
    subprocess.run(
        [*ALLOT, "up", "--state", str(cluster.state)], check=True, capture_output=True
    )
    return time.perf_counter() - began
