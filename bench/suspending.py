"""How soon a suspended job stands still, so that another may have its devices.

A real job writes the time into a page of a file, as often as it can. What stands there once it
is frozen is when it ran last. The time is from the request to that moment, through the API, the
engine, the runner and the kernel's freezer; and from the request until it runs again.
"""

import json
import mmap
import struct
import sys
import tempfile
import time
from pathlib import Path

from bench.cluster import Connection, a_cluster, percentile, until
from bench.figures import Figure

ROUNDS = 40
STILL_MS = 50.0
"""A job that did not write for so long stands still."""
WRITES = """
import mmap, struct, sys, time
with open(sys.argv[1], "r+b") as file:
    page = mmap.mmap(file.fileno(), 8)
    while True:
        struct.pack_into("q", page, 0, time.monotonic_ns())
"""


def main() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="allot-bench-") as folder, a_cluster(1) as cluster:
        file = Path(folder) / "page"
        file.write_bytes(bytes(8))
        with file.open("r+b") as opened:
            page = mmap.mmap(opened.fileno(), 8)
        connection = cluster.connect()
        need = {"gpu": 1, "cpu": 0.5, "memory": "64MiB"}
        argv = [sys.executable, "-c", WRITES, str(file)]
        spec = {"name": "ticks", "tenant": "bench", "command": argv, "resources": need}
        job = connection.submit(json.dumps(spec).encode())
        until(lambda: _last_ns(page), "the job to run")
        stops: list[float] = []
        goes: list[float] = []
        for _ in range(ROUNDS):
            asked = _ask(connection, job, "suspend")
            until(lambda: _since_ms(page) > STILL_MS, "the job to stand still")
            stops.append(max(0, _last_ns(page) - asked) / 1e6)
            still = _last_ns(page)
            asked = _ask(connection, job, "resume")
            until(lambda still=still: _last_ns(page) > still, "the job to run again")
            goes.append((_last_ns(page) - asked) / 1e6)
        connection.close()
    return [
        Figure(
            "suspend → the job stands still, p50", percentile(stops, 0.5), "ms", "lower", 10
        ),
        Figure(
            "suspend → the job stands still, p90", percentile(stops, 0.9), "ms", "lower", 100
        ),
        Figure("resume → it runs again, p50", percentile(goes, 0.5), "ms", "lower"),
    ]


def _ask(connection: Connection, job: int, verb: str) -> int:
    """Suspend or resume; return when that was asked for."""
    asked = time.monotonic_ns()
    status, body = connection.ask("POST", f"/v1/jobs/{job}:{verb}")
    if status >= 400:
        raise RuntimeError(f"{verb}: {status} {body[:300]!r}")
    return asked


def _last_ns(page: mmap.mmap) -> int:
    return struct.unpack_from("q", page, 0)[0]


def _since_ms(page: mmap.mmap) -> float:
    return (time.monotonic_ns() - _last_ns(page)) / 1e6
