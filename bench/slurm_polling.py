"""Two thousand jobs that run in Slurm: what the service asks meanwhile, and what that costs.

Each is submitted by the service, started by Slurm, and has begun. Then its processes are ended,
as two thousand of them do not fit on one machine, in such a way that Slurm does not notice; and
one thread gives for all of them the sign of life that each would. So for the minute of the
measurement all run, for Slurm and for the service.
"""

import contextlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from allotment.backends.slurm.task import BEAT_S
from bench.cluster import BenchCluster, Connection, until
from bench.figures import Figure
from bench.machine import cpu_s
from bench.on_slurm import a_folder, a_service, is_possible, nodes_of
from tests.support.slurm import Slurm, a_slurm
from tests.support.slurm_boot import processes

JOBS = int(os.environ.get("ALLOT_BENCH_JOBS", "2000"))
NODES = 4
MINUTE_S = 60
SETTLED_S = 80
"""By then they are looked at as seldom as all that run for long."""
STARTED_S = 900
NO_PINGS = "SlurmdTimeout=0\n"
"""By which nodes would be found not to run what they did."""
AT_ONCE = 40
"""More would wait for their turn on so few processors, and be given up."""
RPC = re.compile(r"^\s+(\w+)\s*\(\s*\d+\) count:(\d+)", re.MULTILINE)
RUNNING = re.compile(r'^allot_jobs\{.*state="running".*\} (\S+)', re.MULTILINE)
NOT_OURS = {"MESSAGE_NODE_REGISTRATION_STATUS", "REQUEST_STATS_INFO"}


def main() -> list[Figure]:
    if not is_possible():
        return []
    with a_folder() as folder, a_slurm(NODES, 1, NO_PINGS, cpus=JOBS // NODES) as slurm:
        config = (
            nodes_of(slurm) + f"tenants: {{bench: {{}}}}\nlimits: {{keep_finished: {JOBS}}}\n"
        )
        state = folder / "state"
        with a_service(slurm, state, config) as cluster, signs_of_life(state):
            connection = cluster.connect()
            _start_all(slurm, connection)
            try:
                return _minute(slurm, cluster)
            finally:
                connection.close()
                os.kill(cluster.pid, signal.SIGKILL)
                slurm.say("scancel", "--user=root")


@contextlib.contextmanager
def signs_of_life(state: Path) -> Iterator[None]:
    """Touch the claim of every task as often as its first process would."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BEAT_S):
            for claim in state.glob("slurm/tasks/*/*/*/claim"):
                os.utime(claim)

    beating = threading.Thread(target=beat)
    beating.start()
    try:
        yield
    finally:
        over.set()
        beating.join()


def _start_all(slurm: Slurm, connection: Connection) -> None:
    spec = {"name": "bench", "command": "sleep 3600", "resources": {"cpu": 1, "memory": "1MiB"}}
    body = json.dumps(spec).encode()
    until_s, given, ended = time.monotonic() + STARTED_S, 0, 0
    while ended < JOBS:
        while given < min(JOBS, ended + AT_ONCE):
            connection.submit(body)
            given += 1
        ended += _end_processes(slurm)
        if time.monotonic() > until_s:
            raise TimeoutError(f"{ended} of {JOBS} jobs began in {STARTED_S} s")
    until(lambda: len(_running(slurm)) == JOBS, "Slurm to say so", 60)


def _running(slurm: Slurm) -> list[str]:
    return slurm.say("squeue", "-h", "-t", "running", "-o", "%i").split()


def _end_processes(slurm: Slurm) -> int:
    """End the processes of jobs that have begun, and Slurm's own; return of how many."""
    ended = 0
    children: dict[int, list[int]] = {}
    for pid, parent in processes():
        children.setdefault(parent, []).append(pid)
    for step in slurm.steps():
        with contextlib.suppress(OSError, KeyError, ValueError):
            (first,) = children[step]
            (command,) = children[first]
            if os.getsid(command) == command:  # It has begun.
                os.kill(step, signal.SIGSTOP)
                os.kill(first, signal.SIGKILL)
                os.killpg(command, signal.SIGKILL)
                os.kill(step, signal.SIGKILL)
                ended += 1
    return ended


def _minute(slurm: Slurm, cluster: BenchCluster) -> list[Figure]:
    until(lambda: _count(cluster) == JOBS, "the service to say so", 60)
    time.sleep(SETTLED_S)
    asked, used, began = _requests(slurm), cpu_s(cluster.pid), time.monotonic()
    time.sleep(MINUTE_S)
    took = time.monotonic() - began
    used, asked = cpu_s(cluster.pid) - used, _requests(slurm) - asked
    if len(_running(slurm)) != JOBS or _count(cluster) != JOBS:
        raise RuntimeError("not all jobs ran for all of the time")
    return [
        Figure(
            f"{JOBS:,} jobs running: of a core, with commands",
            100 * used / took,
            "%",
            "lower",
            3,
        ),
        Figure("  requests to slurmctld", asked / took, "/s", "lower", 1),
    ]


def _count(cluster: BenchCluster) -> int:
    time.sleep(0.2)
    connection = cluster.connect()  # One that is idle for long is closed.
    _, said = connection.ask("GET", "/metrics")
    connection.close()
    return sum(int(float(found)) for found in RUNNING.findall(said.decode()))


def _requests(slurm: Slurm) -> int:
    said = slurm.say("sdiag").partition("by message type")[2].partition("by user")[0]
    return sum(int(count) for name, count in RPC.findall(said) if name not in NOT_OURS)
