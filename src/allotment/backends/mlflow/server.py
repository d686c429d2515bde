"""An MLflow server that the service starts: on loopback, as a user of its own, ended with it.

What it says is kept while it runs, and written down when it ends. A shell stands beside it, and
ends all of it when the service is gone, however that went: its input is a pipe of ours.
"""

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from allotment.model.tracking import MlflowSetup
from allotment.service.isolated import PLAIN

RUNNER: Final = 2_147_459_345
"""Whom a service of root's has it run as: no account has this number, and nothing else."""
FOLDER, LOG = "mlflow", "mlflow.log"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
LEFT_FREE: Final = 20
"""One part in so many of the disk is left to the service."""
_STEADY_S: Final = 60.0
"""After so long its next start is not put off for the ends before."""
_END_S: Final = 5.0
_TOLD: Final = 2_000
_GUARD: Final = """\
("$@" 2>&1 | tail -c 65536; kill -KILL 0) &
read -r _
kill -KILL 0
"""
"""The server is in the background, where it has no standard input; 0 is all of its group."""

log = structlog.get_logger("allot.mlflow")


class MlflowServer:
    """The server as it is configured: none, or one that is started again where it ends."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.monotonic) -> None:
        """Make it; `folder` is the state folder, `now` tells the time in seconds."""
        self._now = now
        self._folder = folder
        self._setup: MlflowSetup | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._began = self._next = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._is_full = False

    def keep(self, setup: MlflowSetup | None) -> None:
        """See Tracker."""
        wanted = setup if setup is not None and not setup.url else None
        if wanted != self._setup:
            self.end()
            self._setup, self._pause_s, self._next = wanted, FIRST_PAUSE_S, 0.0
        if wanted is None or self._gives_way():
            return
        if self._process is not None and self._process.poll() is None:
            return
        now = self._now()
        if self._process is not None:
            self.end()
            if now - self._began > _STEADY_S:
                self._pause_s = FIRST_PAUSE_S
            self._put_off(self._last_words() or "it ended without a message", now)
        elif now >= self._next:
            self._start(wanted, now)

    def _gives_way(self) -> bool:
        """End it while the disk is nearly full: anybody may upload files to it."""
        disk = shutil.disk_usage(self._folder)
        is_full = disk.free < disk.total // LEFT_FREE
        if is_full and not self._is_full:
            part = f"less than 1/{LEFT_FREE} of the disk is free"
            log.warning("MLflow does not run until there is room", why=part)
            self.end()
        self._is_full = is_full
        return is_full

    def _put_off(self, why: str, now: float) -> None:
        log.warning("MLflow does not run; it is tried again", why=why, in_s=self._pause_s)
        self._next = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _start(self, setup: MlflowSetup, now: float) -> None:
        program = setup.program or installed()
        if trouble := self._trouble(program):
            self._put_off(trouble, now)
            return
        try:
            self._process = self._started(program, setup.port)
        except OSError as error:
            self._put_off(f"{error.filename or program}: {error.strerror}", now)
            return
        self._began = now
        log.info("MLflow is started", program=program, port=setup.port)

    def _trouble(self, program: str) -> str:
        """Return what keeps it from being started; '' for nothing that is known."""
        if not program:
            return "no mlflow is installed here: pip install 'allotment[mlflow]'"
        if os.geteuid() != 0:
            return ""
        places = (self._folder.resolve() / FOLDER, Path(program))
        above = (folder for place in places for folder in reversed(place.parents))
        closed = next((each for each in above if not _may_pass(each)), None)
        if closed is None:
            return ""
        return f"{closed} is closed to the user that it runs as, who is not root (chmod o+x)"

    def _started(self, program: str, port: int) -> "subprocess.Popen[bytes]":
        home, as_root = self._folder / FOLDER, os.geteuid() == 0
        home.mkdir(mode=0o700, exist_ok=True)
        if as_root:
            os.chown(home, RUNNER, RUNNER, follow_symlinks=False)
        quiet = ["setpriv", "--no-new-privs"] if shutil.which("setpriv") else []
        server = (
            program, "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
            "--backend-store-uri", "sqlite:///mlflow.db", "--artifacts-destination",
            "./artifacts", "--uvicorn-opts", "--log-level warning",
        )  # fmt: skip
        with (self._folder / LOG).open("wb") as said:
            os.fchmod(said.fileno(), 0o600)
            return subprocess.Popen(
                [*quiet, "/bin/sh", "-c", _GUARD, "sh", *server],
                env=_environment(home, program),
                cwd=home,
                umask=0o077,
                user=RUNNER if as_root else None,
                group=RUNNER if as_root else None,
                extra_groups=[] if as_root else None,
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _last_words(self) -> str:
        """Return the last line of what it said."""
        try:
            said = (self._folder / LOG).read_bytes()[-_TOLD:].decode(errors="replace")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "")

    def end(self) -> None:
        """See Tracker."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def installed() -> str:
    """Return where MLflow's program is: beside our Python, else on the path; '' for nowhere."""
    beside = Path(sys.executable).with_name("mlflow")
    return str(beside) if beside.exists() else shutil.which("mlflow") or ""


def _may_pass(folder: Path) -> bool:
    try:
        return bool(folder.stat().st_mode & stat.S_IXOTH)
    except OSError:
        return True  # What is not there is told by whoever looks for it.


def _environment(home: Path, program: str) -> dict[str, str]:
    return {
        **PLAIN,
        "PATH": f"{Path(program).parent}:{PLAIN['PATH']}",
        "HOME": str(home),
        "USER": "mlflow",
        "LOGNAME": "mlflow",
        "PYTHONSAFEPATH": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
