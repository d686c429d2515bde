"""Services, and commands of users, forked from a process that has imported what they import.

To import it takes most of the processor time of a start, and tests start hundreds. What is
forked is a process of its own in all else: in a session of its own, with the words, the files,
the folder, the environment and the rights that it would have. Services of tests in tests/e2e
are started for real, but those that are killed again and again.
"""

import atexit
import ctypes
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock

from allotment.backends.local.runner import libc
from allotment.cli import daemon, main
from allotment.service.isolated import plain_with
from tests.support.patience import PATIENCE_S

IMPORTED = (
    "api.app", "api.listening", "api.logbook", "api.server", "api.tidying",
    "backends.local.backend", "backends.local.machine", "backends.mlflow.tracker",
    "backends.optuna", "cli.app", "cli.up", "service.clock", "store.sqlite", "wire.config",
    "wire.job", "wiring.forecast", "wiring.policies", "wiring.service", "wiring.slurm",
)  # fmt: skip
USERS_IN = "ALLOT_TEST_USERS"
"""A variable that names a file: what is forked finds it in place of /etc/passwd."""
MOST_BYTES = 1 << 20
LOOK_S = 0.01
DUMPABLE = 4
"""prctl's number for whether a process's own files in /proc are its user's."""
FOR_REAL = daemon.begin
OFTEN = "tests/e2e/test_chaos"
"""Tests that start a service dozens of times."""


def begin(words: Sequence[str], log: int, tell: int) -> "subprocess.Popen[bytes]":
    """Start a process as `daemon.begin` does, by a fork."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    if test.startswith("tests/e2e/") and not test.startswith(OFTEN):
        return FOR_REAL(words, log, tell)
    return Forked(words, (log, log, tell), plain_with(os.environ), last=tell)


def run(
    words: Sequence[str],
    env: Mapping[str, str],
    user: int,
    cwd: Path | None = None,
    timeout: float = PATIENCE_S,
    input: str = "",
) -> "subprocess.CompletedProcess[str]":
    """Run `allot` with these words to its end, as a user."""
    with TemporaryFile() as out, TemporaryFile() as err, TemporaryFile() as typed:
        typed.write(input.encode())
        typed.seek(0)
        files, there = (out.fileno(), err.fileno(), typed.fileno()), str(cwd or Path.cwd())
        process = Forked(words, files, env, last=0, cwd=there, user=user)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            raise
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(
            words, code, out.read().decode(), err.read().decode()
        )


class Forked(subprocess.Popen[bytes]):
    """A process whose parent is another one, which is asked how it ended."""

    def __init__(
        self, words: Sequence[str], files: Sequence[int], env: Mapping[str, str], **more: object
    ) -> None:
        self.args, self.returncode = words, None
        wanted = {"words": words, "env": dict(env), **more}
        self.pid = parent().ask(wanted, *files) or 0

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = parent().ask({"ended": self.pid})
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        start = time.monotonic()
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() > start + timeout:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(LOOK_S)
        return code

    def __del__(self) -> None:
        """Leave it alone: it outlives us."""


class Parent:
    """The process that forks; it ends when we do."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", BOOT, Path(__file__).parents[2], str(number)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd="/",
                env=plain_with(os.environ), start_new_session=True, pass_fds=(number,),
            )  # fmt: skip
        self._process.returncode = 0  # Nobody waits for it.

    def ask(self, wanted: dict[str, object], *files: int) -> int | None:
        with self._lock:
            socket.send_fds(self._door, [json.dumps(wanted).encode()], files)
            return json.loads(self._door.recv(MOST_BYTES))

    def end(self) -> None:
        self._door.close()


@cache
def parent() -> Parent:
    """Return the process that forks, one for all that this process starts."""
    made = Parent()
    atexit.register(made.end)
    return made


# ── in that process ─────────────────────────────────────────────────────────────────────

BOOT = """\
import sys
sys.path.append(sys.argv[1])
from tests.support.forked import serve
sys.path.pop()
serve(int(sys.argv[2]))
"""


def serve(number: int) -> None:
    """Fork what is asked for; end when nobody can ask any more."""
    for name in IMPORTED:
        import_module(f"allotment.{name}")
    gc.freeze()
    with socket.socket(fileno=number) as door:
        while True:
            data, files, _, _ = socket.recv_fds(door, MOST_BYTES, 3)
            if not data:
                return
            wanted = json.loads(data)
            if "ended" in wanted:
                pid, status = os.waitpid(wanted["ended"], os.WNOHANG)
                answer = os.waitstatus_to_exitcode(status) if pid else None
            elif not (answer := os.fork()):
                break
            for file in files:
                os.close(file)
            door.send(json.dumps(answer).encode())
    _become(files, **wanted)


def _become(
    files: list[int],
    words: list[str],
    env: dict[str, str],
    cwd: str = "/",
    user: int = 0,
    *,
    last: int,
) -> None:
    """Be what `allot` with these words would be, and run it.

    Two files are its outputs, and the last one has the number `last`.
    """
    os.setsid()
    kept = max(*files, last, 2) + 1
    for file, number in zip(files, (1, 2, kept), strict=True):
        os.dup2(file, number)
    os.closerange(3, kept)
    os.closerange(kept + 1, 1 << 16)
    os.dup2(kept, last)
    os.close(kept)
    if users := env.pop(USERS_IN, ""):
        libc.unshare(libc.CLONE_NEWNS)
        libc.mount("none", "/", "", libc.MS_REC | libc.MS_SLAVE)
        libc.mount(users, "/etc/passwd", "", libc.MS_BIND)
    os.chdir(cwd)
    if user:
        os.setgroups(())
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        ctypes.CDLL(None).prctl(DUMPABLE, 1, 0, 0, 0)  # as what is executed is
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.argv = ["-c", *words]
    main()
