"""A thousand jobs of `true` on eight slots, with all the isolation this machine allows.

From the first submission to the end of the last job, one client; then the same figure per
job. What isolation was in force is printed with it.
"""

import time

from bench.cluster import Connection, a_cluster, a_job, allot, until
from bench.figures import Figure

JOBS = 1000


def main() -> list[Figure]:
    with a_cluster(gpus=8, keep=2 * JOBS) as cluster:
        print("  " + allot(cluster.state, "doctor").stdout.strip().replace("\n", "\n  "))
        connection = cluster.connect()
        warm = connection.submit(a_job())
        until(lambda: _finished(connection, warm), "the first job")
        body = a_job()
        began = time.perf_counter()
        for _ in range(JOBS):
            connection.submit(body)
        accepted = time.perf_counter() - began
        until(lambda: _live(connection) == 0, "all jobs to end")
        took = time.perf_counter() - began
        failed = _count(connection, "failed")
        connection.close()
    if failed:
        raise RuntimeError(f"{failed} of {JOBS} jobs failed")
    return [
        Figure("1,000 jobs of `true`, first POST to last finish", took, "s", "lower", 7.0),
        Figure("  of which until all were accepted", accepted, "s", "lower"),
        Figure("per job", took / JOBS * 1e3, "ms", "lower"),
    ]


def _finished(connection: Connection, job: int) -> bool:
    return connection.get(f"/v1/jobs/{job}")["row"]["state"] == "succeeded"


def _live(connection: Connection) -> int:
    time.sleep(0.05)
    states = "&".join(f"state={s}" for s in ("queued", "starting", "running", "stopping"))
    return len(connection.get(f"/v1/jobs?limit=1&{states}")["items"])


def _count(connection: Connection, state: str) -> int:
    return len(connection.get(f"/v1/jobs?finished=true&state={state}&limit=100")["items"])
