"""What remains of many jobs: memory after 10,000, and a restart with a long history.

The history of 1,000,000 events is made by the production engine and store, offline: the
same events that jobs of one task leave, archived as the service archives them.
"""

import tempfile
import time
from pathlib import Path

from bench.cluster import a_cluster, a_job, until
from bench.figures import Figure
from bench.history import write_history

JOBS = 10_000
EVENTS = 1_000_000


def main() -> list[Figure]:
    return [*_memory(), *_restart()]


def _memory() -> list[Figure]:
    with a_cluster(gpus=8) as cluster:
        empty = cluster.rss_mib()
        connection = cluster.connect()
        body = a_job()
        for _ in range(JOBS):
            connection.submit(body)
        last = connection.submit(body)

        def done() -> bool:
            time.sleep(0.2)
            states = "state=queued&state=starting&state=running"
            return not connection.get(f"/v1/jobs?limit=1&{states}")["items"]

        until(done, f"job {last} to end", 300)
        full = cluster.rss_mib()
        connection.close()
    return [
        Figure("service memory, empty", empty, "MiB", "lower"),
        Figure("service memory after 10,000 finished jobs", full, "MiB", "lower", 150),
    ]


def _restart() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="allot-bench-") as folder:
        state = Path(folder)
        write_history(state, EVENTS)
        size = sum(path.stat().st_size for path in state.rglob("*") if path.is_file())
        began = time.perf_counter()
        with a_cluster(state=state) as cluster:
            took = time.perf_counter() - began
            connection = cluster.connect()
            health = connection.get("/v1/service")
            connection.close()
        if health["events"] < EVENTS:
            raise RuntimeError(f"only {health['events']} events were there after the restart")
    return [
        Figure("restart with 1,000,000 events (`allot up`)", took, "s", "lower", 2.0),
        Figure("size of that history", size / 2**20, "MiB", "lower"),
    ]
