"""How fast what is in an object store comes to a task, beside `rclone copy`.

512 MiB of random bytes in eight objects, and 2,000 objects of 4 KiB, in `rclone serve s3` on
this machine. Of a job that names them, the time from its submission until its task runs, less
that of the same job when all is here; with `rclone copy`, until a `sync` returns. In turns, the
best of each.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.cluster import BenchCluster, a_cluster, a_job, allot, until
from bench.figures import Figure
from tests.support.served import free_ports

SIZE, LARGE, SMALL = 512 << 20, 8, 2_000
ROUNDS = 3
RCLONE = str(Path(sys.executable).parent / "rclone")
BUCKET = "bench"


def main() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="allot-bench-") as name, a_cluster() as cluster:
        folder = Path(name)
        _fill(folder / "objects" / BUCKET)
        (port,) = free_ports(1)
        serving = subprocess.Popen(
            [RCLONE, "serve", "s3", "--addr", f"127.0.0.1:{port}", "--config", "",
             str(folder / "objects")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            until(lambda: _answers(port), "the object store")
            best: dict[str, float] = {}
            for number in range(ROUNDS):
                for what in ("large", "small"):
                    for tool, work in (("allot", _by_us), ("rclone", _by_rclone)):
                        took = work(cluster, folder, port, what, number)
                        key = f"{tool} {what}"
                        best[key] = min(took, best.get(key, took))
        finally:
            serving.kill()
            serving.wait()
    rate = SIZE / (1 << 20)
    return [
        Figure("fetch 512 MiB in 8 objects", rate / best["allot large"], "MiB/s", "higher"),
        Figure("  to `rclone copy`", best["rclone large"] / best["allot large"], "×", "higher"),
        Figure("fetch 2,000 objects", SMALL / best["allot small"], "/s", "higher"),
        Figure("  to `rclone copy`", best["rclone small"] / best["allot small"], "×", "higher"),
    ]


def _fill(bucket: Path) -> None:
    for what, count, size in (("large", LARGE, SIZE // LARGE), ("small", SMALL, 4 << 10)):
        (bucket / what).mkdir(parents=True)
        for number in range(count):
            (bucket / what / str(number)).write_bytes(os.urandom(size))


def _by_us(cluster: BenchCluster, folder: Path, port: int, what: str, number: int) -> float:
    """Return the seconds that a fetch adds to the start of a job."""
    name = f"{what}{number}"
    where = ("--s3", f"s3://{BUCKET}/{what}", "--endpoint", f"http://127.0.0.1:{port}")
    allot(cluster.state, "data", "create", name, *where, "--public")
    first, again = (_started_in(cluster, name) for _ in range(2))
    allot(cluster.state, "data", "rm", name)
    return first - again


def _started_in(cluster: BenchCluster, name: str) -> float:
    connection = cluster.connect()
    began = time.time()
    job = connection.submit(a_job("/bin/true", data={name: "/data/x"}))
    until(lambda: connection.get(f"/v1/jobs/{job}")["row"]["state"] == "succeeded", "the job")
    task = connection.get(f"/v1/jobs/{job}")["attempts"][0]["tasks"][0]
    connection.close()
    return task["started_at"] / 1e3 - began


def _by_rclone(cluster: BenchCluster, folder: Path, port: int, what: str, number: int) -> float:
    copy = folder / "copy"
    store = f":s3,provider=Rclone,endpoint='http://127.0.0.1:{port}':{BUCKET}/{what}"
    words = [RCLONE, "copy", "--config", "", "--transfers", "8", store, str(copy)]
    began = time.perf_counter()
    subprocess.run(words, check=True)
    subprocess.run(["sync", "-f", copy], check=True)
    took = time.perf_counter() - began
    subprocess.run(["rm", "-r", copy], check=True)
    return took


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
