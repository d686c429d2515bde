"""The local runner alone, without the service: tasks of `true`, from request to final status.

Eight tasks at a time, with every limit set, by each means of isolation that works here. CPU
is that of launcher, supervisors and tasks together, as a control group of their own counts
it (root only). The start of a task is the moment when it runs, by its own clock.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure

TASKS = 1000
SLOTS = 8
WARM = 20
STARTS = 40
NAME = "allotment.backends.local.runner.launcher"
CPUACCT = Path("/sys/fs/cgroup/cpuacct")
KINDS = ("own", "bwrap", "none")


class Runner:
    """A launcher in a folder of its own, and a socket that hears of every change."""

    def __init__(self, state: Path, group: Path | None) -> None:
        self.state = state
        self._count = 0
        self._live: set[str] = set()
        (state / "run").mkdir()
        self._reports = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._reports.bind(str(state / "run/report.sock"))
        self._reports.settimeout(30)
        join = f"echo $$ > {group}/cgroup.procs; " if group else ""
        command = f"{join}exec {sys.executable} -m {NAME} {state}"
        subprocess.run(["/bin/sh", "-c", command], check=True)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(state / "run/launcher.sock"))
        self._answers = self._socket.makefile("rb")
        self.hello = self.ask({"op": "hello"})

    def ask(self, message: object) -> dict[str, object]:
        self._socket.sendall(json.dumps(message).encode() + b"\n")
        return json.loads(self._answers.readline())

    def launch(self, argv: list[str], kind: str) -> str:
        self._count += 1
        request = {
            "key": f"{self._count}.1.bench.0",
            "argv": argv,
            "env": {"PATH": "/usr/bin:/bin"},
            "cwd": "/",
            "namespaces": kind,
            "read_only": ["/usr"],
            "cpu_milli": 1000,
            "cpu_ceiling": True,
            "memory_bytes": 100 << 20,
            "pids": 50,
        }
        self._live.add(str(request["key"]))
        answer = self.ask({"op": "launch", "request": request})
        if not answer["ok"]:
            raise RuntimeError(f"the launcher refuses: {answer}")
        return str(request["key"])

    def await_end(self) -> None:
        """Wait until some task is over. Raises when it did not end well."""
        while True:
            key = self._reports.recv(256).decode()
            job, attempt, rest = key.split(".", 2)
            path = self.state / "tasks" / job / attempt / rest / "status.json"
            status = json.loads(path.read_bytes())
            if status["phase"] == "ended" and key in self._live:
                self._live.remove(key)
                if status["exit_code"] != 0:
                    raise RuntimeError(f"a task failed: {status}")
                return

    def run(self, tasks: int, kind: str) -> None:
        """Run tasks of `true`, `SLOTS` at a time."""
        launched = ended = 0
        while ended < tasks:
            while launched < tasks and launched - ended < SLOTS:
                self.launch(["/bin/true"], kind)
                launched += 1
            self.await_end()
            ended += 1

    def start_ms(self, kind: str) -> float:
        """Time one start on the idle machine: the task says what time it is."""
        began = time.time_ns()
        key = self.launch(["/bin/date", "+%s%N"], kind)
        self.await_end()
        job = key.split(".")[0]
        said = (self.state / "tasks" / job / "1/bench.0/stdout.log").read_text()
        return (int(said) - began) / 1e6

    def close(self) -> None:
        self._answers.close()
        self._socket.close()
        self._reports.close()
        os.kill(int(str(self.hello["pid"])), signal.SIGTERM)


@contextlib.contextmanager
def a_runner() -> Iterator[tuple[Runner, Path | None]]:
    state = Path(tempfile.mkdtemp(prefix="allot-bench-", dir="/var/tmp"))
    group = CPUACCT / state.name if os.access(CPUACCT, os.W_OK) else None
    if group:
        group.mkdir()
    runner = Runner(state, group)
    try:
        yield runner, group
    finally:
        runner.close()
        shutil.rmtree(state)
        if group:
            _remove(group)


def _remove(group: Path) -> None:
    """Remove a control group when the last of its processes is gone."""
    for _ in range(200):
        try:
            group.rmdir()
        except OSError:
            time.sleep(0.01)
        else:
            return


def main() -> list[Figure]:
    figures: list[Figure] = []
    with a_runner() as (runner, group):
        best = runner.hello["namespaces"]
        print(f"  namespaces: {best}, control groups: {runner.hello['controllers']}")
        for kind in KINDS[KINDS.index(str(best)) :]:
            figures += _measure(runner, group, kind)
    return figures


def _measure(runner: Runner, group: Path | None, kind: str) -> list[Figure]:
    runner.run(WARM, kind)
    before, began = _cpu_ms(group), time.perf_counter()
    runner.run(TASKS, kind)
    took = time.perf_counter() - began
    cpu = (_cpu_ms(group) - before) / TASKS
    starts = sorted(_idle_start(runner, kind) for _ in range(STARTS))
    is_best = kind == runner.hello["namespaces"]
    found = [
        Figure(f"{kind}: CPU per task of `true`", cpu, "ms", "lower", 5.0 if is_best else None),
        Figure(f"{kind}: wall per task, {SLOTS} at a time", took / TASKS * 1e3, "ms", "lower"),
        Figure(
            f"{kind}: idle launch → task runs, p50",
            starts[STARTS // 2],
            "ms",
            "lower",
            15.0 if is_best else None,
        ),
    ]
    return found if group else found[1:]


def _idle_start(runner: Runner, kind: str) -> float:
    time.sleep(0.02)
    return runner.start_ms(kind)


def _cpu_ms(group: Path | None) -> float:
    return int((group / "cpuacct.usage").read_text()) / 1e6 if group else 0.0


if __name__ == "__main__":
    for figure in main():
        print(f"  {figure.name}: {figure.value:.2f} {figure.unit}")
