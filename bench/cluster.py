"""A service of the benchmark's own: real processes, real sockets, a folder that goes away."""

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
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ALLOT = [str(Path(sys.executable).parent / "allot")]
CONFIG = """
virtual_gpus: {{type: virtual, count: {gpus}}}
tenants:
  bench: {{guaranteed: {{gpu: {gpus}}}, queues: {{default: {{order: skip}}}}}}
limits: {{keep_finished: {keep}}}
"""


class Connection:
    """One keep-alive connection over the Unix socket; as little Python as can be."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._file = self._socket.makefile("rb")

    def ask(
        self, method: str, path: str, body: bytes = b"", kind: str = "application/json"
    ) -> tuple[int, bytes]:
        """Send one request; give the status and the body."""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._socket.sendall(head.encode() + body)
        status = int(self._file.readline().split()[1])
        length = 0
        while (line := self._file.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return status, self._file.read(length)

    def get(self, path: str) -> Any:
        status, body = self.ask("GET", path)
        if status >= 400:
            raise RuntimeError(f"GET {path}: {status} {body[:300]!r}")
        return json.loads(body)

    def submit(self, body: bytes) -> int:
        """Submit a job; give its id."""
        status, answer = self.ask("POST", "/v1/jobs", body)
        if status not in (200, 201):
            raise RuntimeError(f"submit: {status} {answer[:300]!r}")
        return json.loads(answer)["id"]

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class BenchCluster:
    """A started service."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.address = json.loads((state / "address.json").read_text())

    @property
    def pid(self) -> int:
        return self.address["pid"]

    def connect(self) -> Connection:
        return Connection(self.address["socket"])

    def rss_mib(self) -> float:
        fields = Path(f"/proc/{self.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def allot(state: Path, *words: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user would."""
    env = {**os.environ, "ALLOT_STATE": str(state)}
    return subprocess.run(
        [*ALLOT, *words], env=env, text=True, capture_output=True, check=False, **kwargs
    )


@contextmanager
def a_cluster(
    gpus: int = 8, keep: int = 1000, state: Path | None = None
) -> Iterator[BenchCluster]:
    """Start a service with virtual devices; stop it and remove its folder at the end."""
    folder = state or Path(tempfile.mkdtemp(prefix="allot-bench-"))
    config = folder / "bench.yaml"
    config.write_text(CONFIG.format(gpus=gpus, keep=keep))
    started = allot(folder, "up", "--config", str(config))
    if started.returncode:
        raise RuntimeError(f"the service did not start:\n{started.stdout}{started.stderr}")
    try:
        yield BenchCluster(folder)
    finally:
        allot(folder, "down", "--cancel-jobs")
        if state is None:
            end_launchers(folder)
            shutil.rmtree(folder, ignore_errors=True)


def end_launchers(state: Path) -> None:
    """End what outlives the service on purpose: the launcher of this state folder."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            name = (entry / "comm").read_text().strip()
            folder = (entry / "cwd").readlink()
        except OSError:
            continue
        if name == "allot-launcher" and folder == state.resolve():
            os.kill(int(entry.name), signal.SIGTERM)


def a_job(command: str = "true", gpu: float = 1, **more: object) -> bytes:
    """Make the body of a submission."""
    role = {"command": command, "resources": {"gpu": gpu, "cpu": 0.1, "memory": "32MiB"}}
    spec = {"name": "bench", "tenant": "bench", "roles": {"main": role}, **more}
    return json.dumps(spec).encode()


def start_ms(cluster: "BenchCluster", **more: Any) -> float:
    """Return how long after its submission the task of a job runs, in ms; the job ends then."""
    connection = cluster.connect()
    began = time.time_ns()
    job = connection.submit(a_job("/bin/true", **more))
    until(lambda: connection.get(f"/v1/jobs/{job}")["row"]["state"] == "succeeded", "the job")
    task = connection.get(f"/v1/jobs/{job}")["attempts"][0]["tasks"][0]
    connection.close()
    return task["started_at"] - began / 1e6


def percentile(values: list[float], share: float) -> float:
    """Return the value below which that share lies; 0 for none."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else 0.0


def until(check: Any, what: str, seconds: float = 120) -> None:
    """Wait until a check holds, looking often."""
    end = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(0.005)
