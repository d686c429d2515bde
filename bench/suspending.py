"""How soon a suspended job stands still, so that another may have its devices.

A real job writes the time into a page of a file, as often as it can. What stands there once it
is frozen is when it ran last. The time is from the request to that moment, through the API, the
engine, the runner and the kernel's freezer; and from the request until it runs again.

Another job gives device memory back between two steps of a millisecond: it writes when it did.
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


GIVES_BACK = """
import mmap, struct, sys, time
import allotment
with open(sys.argv[1], "r+b") as file:
    page = mmap.mmap(file.fileno(), 8)
    write = lambda: struct.pack_into("q", page, 0, time.monotonic_ns())
    allotment.on_pause(write)
    allotment.on_resume(write)
    write()
    for step in range(1_000_000_000):
        time.sleep(0.001)
        allotment.progress(step)
"""


def main() -> list[Figure]:
    return [*_at_will(), *_between_steps()]


def _between_steps() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="allot-bench-") as folder, a_cluster(1) as cluster:
        file = Path(folder) / "page"
        file.write_bytes(bytes(8))
        with file.open("r+b") as opened:
            page = mmap.mmap(opened.fileno(), 8)
        connection = cluster.connect()
        job = _submit(connection, GIVES_BACK, file)
        until(lambda: _last_ns(page), "the job to run")
        gives: list[float] = []
        takes: list[float] = []
        for _ in range(ROUNDS):
            for verb, times in (("suspend", gives), ("resume", takes)):
                time.sleep(STILL_MS / 1000)
                before = _last_ns(page)
                asked = _ask(connection, job, verb)
                until(lambda before=before: _last_ns(page) > before, f"the job to {verb}")
                times.append((_last_ns(page) - asked) / 1e6)
        connection.close()
    return [
        Figure("suspend → memory given back, p50", percentile(gives, 0.5), "ms", "lower", 100),
        Figure("suspend → memory given back, p90", percentile(gives, 0.9), "ms", "lower"),
        Figure("resume → memory taken again, p50", percentile(takes, 0.5), "ms", "lower"),
    ]


def _submit(connection: Connection, program: str, file: Path) -> int:
    need = {"gpu": 1, "cpu": 0.5, "memory": "64MiB"}
    argv = [sys.executable, "-c", program, str(file)]
    spec = {"name": "ticks", "tenant": "bench", "command": argv, "resources": need}
    return connection.submit(json.dumps(spec).encode())


def _at_will() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="allot-bench-") as folder, a_cluster(1) as cluster:
        file = Path(folder) / "page"
        file.write_bytes(bytes(8))
        with file.open("r+b") as opened:
            page = mmap.mmap(opened.fileno(), 8)
        connection = cluster.connect()
        job = _submit(connection, WRITES, file)
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
