"""Services forked from a process that has imported what every start of one imports.

To import it takes most of the processor time of a start, and tests start hundreds. What is
forked is a process of its own in all else: in a session of its own, in `/`, with the words,
the files and the environment that `allot up` gives it. Tests in tests/e2e start theirs for
real.
"""

import gc
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock

from allotment.backends.local.runner import libc
from allotment.cli import daemon, main
from allotment.service.isolated import plain_with

IMPORTED = (
    "api.app", "api.listening", "api.logbook", "api.server", "api.tidying",
    "backends.local.backend", "backends.local.machine", "backends.mlflow.tracker",
    "backends.optuna", "cli.app", "cli.up", "service.clock", "store.sqlite", "wire.config",
    "wire.job", "wiring.forecast", "wiring.policies", "wiring.service", "wiring.slurm",
)  # fmt: skip
USERS_IN = "ALLOT_TEST_USERS"
"""A variable that names a file: a service finds it in place of /etc/passwd."""
MOST_BYTES = 1 << 20
LOOK_S = 0.01
FOR_REAL = daemon.begin


def begin(words: Sequence[str], log: int, tell: int) -> "subprocess.Popen[bytes]":
    """Start a process as `daemon.begin` does, by a fork."""
    if os.environ.get("PYTEST_CURRENT_TEST", "").startswith("tests/e2e/"):
        return FOR_REAL(words, log, tell)
    return Forked(words, log, tell)


class Forked(subprocess.Popen[bytes]):
    """A process whose parent is another one, which is asked how it ended."""

    def __init__(self, words: Sequence[str], log: int, tell: int) -> None:
        wanted = {"words": words, "env": plain_with(os.environ), "tell": tell}
        self.args, self.returncode = words, None
        self.pid = parent().ask(wanted, log, tell) or 0

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


@cache
def parent() -> Parent:
    """Return the process that forks, one for all that this process starts."""
    return Parent()


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
            data, files, _, _ = socket.recv_fds(door, MOST_BYTES, 2)
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
    _become(*files, **wanted)


def _become(log: int, told: int, *, words: list[str], env: dict[str, str], tell: int) -> None:
    """Be what `allot` with these words would be, and run it."""
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    kept = os.dup2(told, max(log, told, tell) + 1)
    os.closerange(3, kept)
    os.closerange(kept + 1, 1 << 16)
    os.dup2(kept, tell)
    os.close(kept)
    if users := env.pop(USERS_IN, ""):
        libc.unshare(libc.CLONE_NEWNS)
        libc.mount("none", "/", "", libc.MS_REC | libc.MS_SLAVE)
        libc.mount(users, "/etc/passwd", "", libc.MS_BIND)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.argv = ["-c", *words]
    main()
