"""What it costs to watch 1,000 running jobs, and a job to tell how far it is.

The jobs are processes that sleep on virtual devices. This program writes their files of
progress in their stead, so what is counted is the service's CPU time alone: first while none
reports, then while each reports a new step every five seconds.
"""

import json
import tempfile
import time
from pathlib import Path

from allotment.job import Progress
from bench.cluster import Connection, a_cluster, until
from bench.figures import Figure
from bench.machine import TICKS

JOBS = 1_000
SPAN_S = 30.0
EVERY_S = 5.0
CALLS = 200_000
WRITES = 2_000
COMMAND = 'echo "{}" > "$ALLOT_PROGRESS_FILE"; exec sleep 900'


def main() -> list[Figure]:
    return [*_jobs(), *_call()]


def _jobs() -> list[Figure]:
    with a_cluster(gpus=JOBS) as cluster:
        connection = cluster.connect()
        need = {"gpu": 1, "cpu": 0.001, "memory": "10MiB"}
        role = {"command": COMMAND, "resources": need}
        spec = {"name": "watched", "tenant": "bench", "roles": {"main": role}}
        body = json.dumps(spec).encode()
        for _ in range(JOBS):
            connection.submit(body)
        until(lambda: _running(connection) == JOBS, "all jobs to run", 300)
        until(lambda: len(_files(cluster.state)) == JOBS, "all jobs to have begun", 300)
        files = _files(cluster.state)
        time.sleep(SPAN_S / 2)  # What came of their start is over by then.
        quiet = _share(cluster.pid, [])
        telling = _share(cluster.pid, files)
        connection.close()
        connection = cluster.connect()  # It closes one on which nobody asks for long.
        first = connection.get("/v1/jobs?limit=1&state=running")["items"][0]["id"]
        step = connection.get(f"/v1/jobs/{first}")["progress"]["step"]
        connection.close()
    if step < SPAN_S / EVERY_S - 1:
        raise RuntimeError(f"only step {step} was seen")
    return [
        Figure("1,000 running jobs, each reports every 5 s: CPU of the service", telling, "%",
               "lower", 2.0),
        Figure("  none reports", quiet, "%", "lower"),
    ]  # fmt: skip


def _running(connection: Connection) -> int:
    time.sleep(0.5)
    left = connection.get("/v1/jobs?limit=1&state=queued&state=starting")["items"]
    return 0 if left else JOBS


def _files(state: Path) -> list[Path]:
    return sorted(state.glob("checkpoints/*/.allot-progress-*.json"))


def _share(pid: int, files: list[Path]) -> float:
    """Return the CPU that a process takes while files are written, in % of one."""
    before, began = _cpu_s(pid), time.monotonic()
    for step in range(1, round(SPAN_S / EVERY_S) + 1):
        for file in files:
            file.write_text(f'{{"step": {step}, "total": 1000, "metrics": {{"loss": 0.5}}}}\n')
        time.sleep(max(0.0, began + step * EVERY_S - time.monotonic()))
    return 100 * (_cpu_s(pid) - before) / (time.monotonic() - began)


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process, without that of those it waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _call() -> list[Figure]:
    """Measure `allotment.progress`: most calls, and those that write."""
    with tempfile.TemporaryDirectory() as folder:
        tell = Progress(f"{folder}/progress.json")
        began = time.perf_counter()
        for step in range(CALLS):
            tell(step, CALLS, loss=0.5)
        each = (time.perf_counter() - began) / CALLS
        eager = Progress(f"{folder}/eager.json")
        began = time.perf_counter()
        for step in range(WRITES):
            eager(step, WRITES, loss=0.5)
            eager._next = 0.0  # noqa: SLF001 - each call writes
        written = (time.perf_counter() - began) / WRITES
    return [
        Figure("`allotment.progress`, a call", each * 1e6, "us", "lower", 20),
        Figure("  one that writes", written * 1e6, "us", "lower"),
    ]
