"""A real service of the test's own: real processes and sockets in a folder of its own."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.invoke import allot
from tests.support.patience import PATIENCE_S

ALLOT = [sys.executable, "-m", "allotment.cli"]
IN_PROCESS = {
    *("cancel", "down", "eta", "events", "hold", "import", "logs", "nodes", "ps", "release"),
    *("resume", "show", "submit", "suspend", "sweep", "top", "up", "wait", "why"),
}
"""Verbs that ask a service and end: a process more would show no more."""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float = PATIENCE_S) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class RealCluster:
    """One state folder and the service that uses it."""

    def __init__(self, state: Path, config: str) -> None:
        self.state = state
        self.config = state.parent / f"{state.name}.yaml"
        self.config.write_text(config)

    # ── life ────────────────────────────────────────────────────────────────────────────

    def allot(self, *words: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        """Run the command line as a user would, in this process where that shows the same."""
        if words[0] in IN_PROCESS and not kwargs:
            return self._allot_here(words)
        env = {**os.environ, "ALLOT_STATE": str(self.state), **kwargs.pop("env", {})}
        kwargs.setdefault("timeout", PATIENCE_S)
        return subprocess.run(
            [*ALLOT, *words], env=env, text=True, capture_output=True, check=False, **kwargs
        )

    def said(self, *words: str) -> str:
        """Return in one line what a command prints."""
        return " ".join(self.allot(*words).stdout.split())

    def _allot_here(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ALLOT_STATE", str(self.state))
            ran = allot(*words)
        return subprocess.CompletedProcess(words, ran.code, ran.out, ran.err)

    def up(self) -> None:
        self.until_up(self.allot("up", "--config", str(self.config)))

    def until_up(self, done: subprocess.CompletedProcess[str]) -> None:
        """Wait for a service that `allot up` started; fail if it did not start, leaving none.

        On a very busy machine it may not be ready when `allot up` stops waiting.
        """
        if done.returncode != 0:
            try:
                assert "is not ready after" in done.stderr, done.stdout + done.stderr
                until((self.state / "address.json").exists, "the service to be ready")
            except BaseException:
                self.down()
                raise

    def down(self) -> None:
        self.allot("down", "--cancel-jobs")
        end_launchers(self.state)

    @property
    def address(self) -> dict[str, Any]:
        return json.loads((self.state / "address.json").read_text())

    def kill(self) -> None:
        """End the service as a power cut would."""
        pid = self.address["pid"]
        os.kill(pid, signal.SIGKILL)
        until(lambda: gone(pid), "the service to be gone")

    # ── talk ────────────────────────────────────────────────────────────────────────────

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        connection = UnixConnection(self.address["socket"])
        try:
            data = json.dumps(body).encode() if body is not None else None
            kind = {"Content-Type": "application/json"} if data else {}
            connection.request(method, path, data, {**kind, **(headers or {})})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        is_json = "json" in (answer.getheader("content-type") or "")
        return answer.status, json.loads(text) if is_json and text else text

    def get(self, path: str) -> Any:
        status, body = self.ask("GET", path)
        assert status == 200, (status, body)
        return body

    def submit(self, spec: dict[str, object], key: str = "") -> int:
        headers = {"Idempotency-Key": key} if key else {}
        status, body = self.ask("POST", "/v1/jobs", spec, headers)
        assert status in (200, 201), (status, body)
        return body["id"]

    def state_of(self, job: int) -> str:
        return self.get(f"/v1/jobs/{job}")["row"]["state"]

    def wait_for(self, job: int, *states: str, seconds: float = PATIENCE_S) -> None:
        until(lambda: self.state_of(job) in states, f"job {job} to be {states}", seconds)


@contextmanager
def a_real_cluster(folder: Path, config: str) -> Iterator[RealCluster]:
    """Start a service; stop it, its jobs and its launcher at the end."""
    state = folder / "state"
    state.mkdir(exist_ok=True)
    cluster = RealCluster(state, config)
    cluster.up()
    try:
        yield cluster
    finally:
        cluster.down()


def gone(pid: int) -> bool:
    """Whether a process is gone; a zombie is, whoever forgot to wait for it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def until(check: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
    """Wait until a check holds. Fails naming what was waited for.

    It looks often at first, then ten times a second, and for at most half of the time: a check
    may start a process, and what it waits for wants the processor, too.
    """
    start = time.monotonic()
    while True:
        began = time.monotonic()
        if check():
            return
        looked = time.monotonic()
        assert looked < start + seconds, f"waited {seconds} s for {what}"
        time.sleep(max(0.01, looked - began, min(0.1, (looked - start) / 20)))


def end_launchers(state: Path) -> None:
    """End what outlives a service that left tasks, or was killed."""
    for pid in launchers(state):
        os.kill(pid, signal.SIGTERM)


def launchers(state: Path) -> list[int]:
    """Return the launchers of this state folder."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            name = (entry / "comm").read_text().strip()
            folder = (entry / "cwd").readlink()
        except OSError:
            continue
        if name == "allot-launcher" and folder == state.resolve():
            found.append(int(entry.name))
    return found
