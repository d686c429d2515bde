"""A launcher of its own for a test, driven as the service drives it, without the service."""

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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import allotment
from allotment.backends.local.runner import claim, control, hierarchy, layout, procfs
from allotment.backends.local.runner.hierarchy import short_hash
from allotment.backends.local.runner.launcher import NAME
from tests.support.patience import PATIENCE_S

SOURCES = Path(allotment.__file__).parent.parent
NOBODY = 65534
REPORT_S = 0.1
"""How long to wait for a report before looking without."""
SYSTEM_PYTHON = "/usr/bin/python3"

Status = dict[str, Any]


class Runner:
    """One state folder with its launcher. Tasks are numbered as they are launched."""

    def __init__(
        self,
        state: Path,
        python: Sequence[str],
        sources: Path,
        program: Sequence[str] = ("-m", NAME),
    ) -> None:
        self.state = state
        self._program = program
        self._python = python
        self.sources = sources
        self._connection: socket.socket | None = None
        self._answers: Any = None
        self._count = 0
        self.reports = _listen(state)
        self.start()

    # ── the launcher ────────────────────────────────────────────────────────────────

    def start(self) -> int:
        """Start a launcher if none serves; give the exit code of the attempt."""
        done = subprocess.run(
            [*self._python, *self._program, str(self.state)],
            env={"PYTHONPATH": str(self.sources), "PYTHONDONTWRITEBYTECODE": "1"},
            cwd="/",
            check=False,
        )
        return done.returncode

    def ask(self, message: object) -> dict[str, Any]:
        """Ask the launcher something; connects where necessary."""
        return json.loads(self.exchange(json.dumps(message).encode() + b"\n"))

    def exchange(self, data: bytes) -> bytes:
        if self._connection is None:
            self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._connection.settimeout(PATIENCE_S)
            with in_folder(self.state) as folder:
                self._connection.connect(f"{folder}/{layout.SOCKET}")
            self._answers = self._connection.makefile("rb")
        self._connection.sendall(data)
        return self._answers.readline()

    def hang_up(self) -> None:
        if self._connection is not None:
            self._answers.close()
            self._connection.close()
            self._connection = None

    @property
    def launcher_pid(self) -> int:
        return self.ask({"op": "hello"})["pid"]

    def kill_launcher(self) -> None:
        """Kill it as hard as can be, and wait until it is gone."""
        pid = self.launcher_pid
        os.kill(pid, signal.SIGKILL)
        self.hang_up()
        until(lambda: not procfs.start_time(pid), "the launcher to be gone")

    # ── tasks ───────────────────────────────────────────────────────────────────────

    def request(self, argv: str | list[str], **fields: object) -> dict[str, Any]:
        self._count += 1
        return {
            "key": f"{self._count}.1.worker.0",
            "argv": argv,
            "env": {"PATH": "/usr/bin:/bin"},
            "cwd": "/",
            **fields,
        }

    def launch(self, argv: str | list[str], **fields: object) -> "Task":
        """Launch a task; the launcher must accept it."""
        request = self.request(argv, **fields)
        answer = self.ask({"op": "launch", "request": request})
        assert answer["ok"], answer
        return Task(self, request["key"])

    def run(self, argv: str | list[str], **fields: object) -> Status:
        """Launch a task and give its final status."""
        return self.launch(argv, **fields).ended()

    def clear(self) -> None:
        """End everything this test started, and see that nothing is left of it."""
        live = self.state / layout.LIVE
        for path in live.iterdir():
            Task(self, path.name).control("kill")
        until(lambda: not list(live.iterdir()), "all tasks to end")
        assert (self.state / layout.LOG).read_text() == ""
        self._forget_reports()

    def _forget_reports(self) -> None:
        self.reports.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while self.reports.recv(256):
                pass
        self.reports.settimeout(REPORT_S)

    def close(self) -> None:
        """Clear, and let the launcher retire; see that nothing is left of it either."""
        self.clear()
        pid = self.launcher_pid
        self.ask({"op": "retire"})
        self.hang_up()
        self.reports.close()
        until(lambda: not procfs.start_time(pid), "the launcher to retire")
        assert (self.state / layout.LOG).read_text() == ""
        name = short_hash(str(self.state.resolve()))
        tops = [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir()]
        assert [top for top in tops if (top / "allotment" / name).exists()] == []


class Task:
    """One task of a runner, seen through its files."""

    def __init__(self, runner: Runner, key: str) -> None:
        self.runner = runner
        self.key = key
        self.folder = runner.state / layout.task_dir(key)

    def status(self) -> Status:
        """Return its status, empty before the first; from the claim if the disk was full."""
        for name in (layout.CLAIM, layout.STATUS):
            with contextlib.suppress(FileNotFoundError, ValueError):
                return json.loads((self.folder / name).read_text())
        return {}

    def is_held(self) -> bool:
        return claim.is_held(str(self.folder / layout.CLAIM))

    def control(self, line: str) -> None:
        """Write a line of control, as anybody can who may write to the pipe."""
        path = self.folder / layout.CONTROL
        until(path.exists, "the control pipe")
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        os.write(fd, line.encode() + b"\n")
        os.close(fd)

    def reaches(self, check: Callable[[Status], bool], what: str) -> Status:
        """Wait until its status is as wanted: looks after every report."""
        end = time.monotonic() + PATIENCE_S
        while True:
            status = self.status()
            if status and check(status):
                return status
            assert status.get("phase") != "ended", f"ended before {what}: {status}"
            assert time.monotonic() < end, f"waited for {what}; now {status}"
            with contextlib.suppress(TimeoutError):
                self.runner.reports.recv(256)

    def phase(self, phase: str) -> Status:
        return self.reaches(lambda status: status["phase"] == phase, f"phase {phase}")

    def ended(self) -> Status:
        return self.phase("ended")

    def output(self, stream: str = "stdout") -> str:
        path = self.folder / f"{stream}.log"
        return path.read_text() if path.exists() else ""

    def says(self, text: str) -> None:
        """Wait until its output has a text."""
        until(lambda: text in self.output(), f"the output {text!r} of {self.key}")

    def lines(self) -> dict[str, str]:
        """Read an output of NAME=VALUE lines."""
        return dict(line.split("=", 1) for line in self.output().splitlines() if "=" in line)


def until(check: Callable[[], object], what: str, seconds: float = PATIENCE_S) -> None:
    """Wait for what sends no report: looks often, fails naming what was waited for."""
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.005)


def alive(marker: str) -> list[int]:
    """Find the processes that have a word on their command line."""
    found: list[int] = []
    for pid in procfs.pids():
        try:
            words = procfs.read(f"/proc/{pid}/cmdline").split("\0")
        except OSError:
            continue
        if marker in words and procfs.start_time(pid):
            found.append(pid)
    return found


@contextlib.contextmanager
def in_folder(path: Path) -> Iterator[str]:
    """Return a short name for a folder whose own may be too long for a socket's."""
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


def _listen(state: Path) -> socket.socket:
    (state / layout.RUN).mkdir(mode=0o700, exist_ok=True)
    reports = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with in_folder(state) as folder:
        reports.bind(f"{folder}/{layout.REPORT}")
    (state / layout.REPORT).chmod(0o666)  # for a launcher that runs as another user
    reports.settimeout(REPORT_S)
    return reports


@contextlib.contextmanager
def a_runner(
    folder: Path | None = None, *wrapper: str, program: Sequence[str] = ("-m", NAME)
) -> Iterator[Runner]:
    """Start a launcher in a folder of its own, and end it after the test."""
    state = folder or Path(tempfile.mkdtemp(prefix="allot-"))
    state.chmod(0o711)
    runner = Runner(state, [*wrapper, sys.executable], SOURCES, program)
    try:
        yield runner
    finally:
        runner.close()
        remove_groups(state)
        shutil.rmtree(state)


@contextlib.contextmanager
def an_unprivileged_runner(*wrapper: str) -> Iterator[Runner]:
    """The same as a user who is not root. The sources are copied where he may read them.

    As root, `wrapper` runs before it becomes that user.
    """
    home = Path(tempfile.mkdtemp(prefix="allot-"))
    home.chmod(0o755)
    for name in ("backends", "rights"):
        shutil.copytree(SOURCES / "allotment" / name, home / "src/allotment" / name)
    for name in ("__init__.py", "pausing.py"):
        shutil.copy(SOURCES / "allotment" / name, home / "src/allotment" / name)
    state = home / "state"
    state.mkdir(mode=0o700)
    python = [sys.executable]
    if os.geteuid() == 0:
        ids = "--reuid=65534", "--regid=65534"
        python = [*wrapper, "setpriv", *ids, "--clear-groups", SYSTEM_PYTHON]
        shutil.chown(state, NOBODY, NOBODY)
        (state / layout.RUN).mkdir(mode=0o700)
        shutil.chown(state / layout.RUN, NOBODY, NOBODY)
    runner = Runner(state, python, home / "src")
    try:
        yield runner
    finally:
        runner.close()
        shutil.rmtree(home)


def _bases(state: Path) -> list[Path]:
    """List the folders of all control groups made for a state folder."""
    name = hierarchy.short_hash(str(state.resolve()))
    mounts = hierarchy.find_mounts(procfs.read("/proc/self/mountinfo"))
    places = {Path(mount.path) / "allotment" / name for mount in mounts}
    return [place for place in places if place.is_dir()]


def groups_of(state: Path) -> list[Path]:
    """List the folders of tasks' control groups that are left."""
    below = [path for base in _bases(state) for path in base.iterdir() if path.is_dir()]
    return [path for path in below if path.name not in ("runner", "no-devices")]


def remove_groups(state: Path) -> None:
    """Remove the control groups made for a state folder; none of a task may be left."""
    left = groups_of(state)
    for base in _bases(state):
        below = [path for path in base.iterdir() if path.is_dir()]
        for path in (*below, base):
            until(lambda path=path: remove_group(path), f"{path} to be empty")
    assert left == []


def remove_group(path: Path) -> bool:
    try:
        path.rmdir()
    except OSError:
        return not path.exists()
    return True


__all__ = ["Runner", "Status", "Task", "a_runner", "control", "until"]
