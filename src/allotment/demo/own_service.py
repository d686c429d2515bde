"""A service of the demo's own, in a folder that goes away: started and stopped as by hand.

`allot up` and `allot down` do it, in processes of their own, so that a Ctrl-C at this
terminal reaches neither. Nothing that others started is touched.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

import msgspec

from allotment.backends.local.runner.layout import SOCKET
from allotment.model.tenancy import Config
from allotment.service.isolated import isolated
from allotment.wire.config import config_to_wire

ALLOT = isolated("allotment.cli")
UP_S, DOWN_S, LATE_S = 45.0, 60.0, 30.0


class Engine(msgspec.Struct, frozen=True):
    """What runs the jobs of a service."""

    words: tuple[str, ...] = ()
    """Options of `allot up`."""
    beside: str | None = None
    """Where the folder is made; None for temporary files' place."""
    up_s: float = UP_S


HERE = Engine()
"""The service's own machine."""


class NotUp(Exception):
    """The service did not come up; its own words are the message."""


class OwnService:
    """A context: the service runs inside it, and is gone after it, with its folder.

    The folder stays when `keep` was called, or something could not be ended.
    """

    def __init__(self, config: Config, engine: Engine = HERE) -> None:
        self._config = config
        self._engine = engine
        self.folder = Path(tempfile.mkdtemp(prefix="allot-demo-", dir=engine.beside))
        if os.geteuid() == 0:
            self.folder.chmod(0o711)  # or scratch folders, which any user must reach, lie apart
        self.state = self.folder / "state"
        self._keep = False

    def __enter__(self) -> Self:
        file = self.folder / "cluster.yaml"
        file.write_bytes(msgspec.json.format(msgspec.json.encode(config_to_wire(self._config))))
        try:
            self._start(file)
        except BaseException:
            self._clear(ended=self._stop())
            raise
        return self

    def _start(self, file: Path) -> None:
        try:
            words = ("--state", str(self.state), "--config", str(file), *self._engine.words)
            done = _allot("up", *words, limit=self._engine.up_s)
        except subprocess.TimeoutExpired as error:
            raise NotUp(f"`allot up` did not return within {self._engine.up_s:g} s.") from error
        if done.returncode:
            raise NotUp((done.stderr or done.stdout).strip())

    def __exit__(self, *_: object) -> None:
        self._clear(ended=self._stop())

    def keep(self) -> None:
        """Leave the folder for a look inside, once the service has stopped."""
        self._keep = True

    def _stop(self) -> bool:
        """End all jobs, the service, then its launcher; return whether all of it worked."""
        try:
            done = _allot("down", "--state", str(self.state), "--cancel-jobs", limit=DOWN_S)
            cancelled = done.returncode == 0
        except subprocess.TimeoutExpired:
            cancelled = False
        ended, retired = _end_late(self.state), _retire_launcher(self.state)
        return cancelled and ended and retired

    def _clear(self, *, ended: bool) -> None:
        if ended and not self._keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def _allot(*words: str, limit: float) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, also when we are interrupted meanwhile."""
    process = subprocess.Popen(
        [*ALLOT, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=limit)
    except KeyboardInterrupt:
        process.communicate(timeout=limit)
        raise
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _end_late(state: Path) -> bool:
    """End a service that was still starting when it was told to stop: it holds the lock."""
    end = time.monotonic() + LATE_S
    while pid := _holder(state / "lock"):
        if time.monotonic() > end:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        time.sleep(0.2)
    return True


def _holder(lock: Path) -> int:
    """Return which process holds the lock of our own folder; 0 for none."""
    try:
        with lock.open("r") as file:
            holder = file.readline().strip()
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(holder or 0)
    except FileNotFoundError:
        pass
    return 0


def _retire_launcher(state: Path) -> bool:
    """Retire the launcher, which outlives its service: no more will come."""
    # Through /proc: a socket's path may have 107 bytes, a folder more.
    try:
        folder = os.open((state / SOCKET).parent, os.O_PATH | os.O_DIRECTORY)
    except FileNotFoundError:
        return True
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(LATE_S)
        try:
            link.connect(f"/proc/self/fd/{folder}/{Path(SOCKET).name}")
            link.sendall(json.dumps({"op": "retire"}).encode() + b"\n")
            while link.recv(4096):
                pass  # it hangs up when it ends
        except (FileNotFoundError, ConnectionRefusedError):
            return True
        except OSError:
            return False
        finally:
            os.close(folder)
    return True
