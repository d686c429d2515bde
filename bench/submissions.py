"""Durable submissions over HTTP while 10,000 jobs wait and are being scheduled.

Four client threads, each with one connection, submit for ten seconds; two more connections
ask for the job list and for why a job waits. Eight jobs hold the devices and end all the
time, so scheduling passes run throughout. Clients and service share the machine's cores.
"""

import threading
import time

from bench.cluster import BenchCluster, a_cluster, a_job, percentile
from bench.figures import Figure

WAITING = 10_000
THREADS = 4
SECONDS = 10.0


def main() -> list[Figure]:
    with a_cluster(gpus=8) as cluster:
        _fill(cluster)
        stop = threading.Event()
        reads: list[float] = []
        reader = threading.Thread(target=_read, args=(cluster, stop, reads))
        reader.start()
        latencies: list[list[float]] = [[] for _ in range(THREADS)]
        began = time.perf_counter()
        writers = [
            threading.Thread(target=_submit, args=(cluster, began + SECONDS, found))
            for found in latencies
        ]
        for thread in writers:
            thread.start()
        for thread in writers:
            thread.join()
        took = time.perf_counter() - began
        stop.set()
        reader.join()
    writes = [ms for found in latencies for ms in found]
    return [
        Figure("durable submissions, 4 clients", len(writes) / took, "/s", "higher", 1000),
        Figure("submission p99", percentile(writes, 0.99), "ms", "lower", 100),
        Figure("read p99 meanwhile", percentile(reads, 0.99), "ms", "lower", 100),
        Figure("read p50 meanwhile", percentile(reads, 0.5), "ms", "lower"),
    ]


def _fill(cluster: BenchCluster) -> None:
    """Eight jobs at a time run for a fifth of a second, 10,000 wait behind them."""
    connection = cluster.connect()
    body = a_job("sleep 0.2")
    for _ in range(WAITING):
        connection.submit(body)
    connection.close()


def _submit(cluster: BenchCluster, end: float, latencies: list[float]) -> None:
    connection = cluster.connect()
    body = a_job("sleep 0.2")
    while (began := time.perf_counter()) < end:
        connection.submit(body)
        latencies.append((time.perf_counter() - began) * 1e3)
    connection.close()


def _read(cluster: BenchCluster, stop: threading.Event, latencies: list[float]) -> None:
    connection = cluster.connect()
    while not stop.is_set():
        for path in ("/v1/jobs?limit=20", "/v1/jobs/9000/why", "/v1/tenants"):
            began = time.perf_counter()
            connection.get(path)
            latencies.append((time.perf_counter() - began) * 1e3)
        stop.wait(0.02)
    connection.close()
