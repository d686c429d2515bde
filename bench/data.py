"""How fast data come into a dataset, beside `cp`; and what a dataset costs a task that starts.

1 GiB of random bytes in eight files, read from memory. `allot data put` as a whole sends,
digests and keeps them, and has them on the disk when it returns. `cp -r` leaves them in memory;
so there is `cp -r` with `sync -f` besides. All on one file system, in turns, the best of each.
A GiB takes 0.13 s of a processor to be read, 0.6 s to be digested, once, and 0.25 s to be
written. Two files are taken at a time, and the rest is the disk's. `cp` alone takes 0.4 s.
"""

import os
import subprocess
import tempfile
import time
from pathlib import Path

from bench.cluster import ALLOT, BenchCluster, a_cluster, allot, percentile, start_ms
from bench.figures import Figure

SIZE, FILES = 1 << 30, 8
ROUNDS = 5
STARTS = 20


def main() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="allot-bench-") as name, a_cluster() as cluster:
        folder = Path(name)
        data = folder / "data"
        data.mkdir()
        for number in range(FILES):
            (data / f"{number}.bin").write_bytes(os.urandom(SIZE // FILES))
        subprocess.run(["sync", "-f", data], check=True)
        took: dict[str, list[float]] = {"put": [], "cp": [], "cp, sync": [], "again": []}
        for number in range(ROUNDS):
            _round(cluster, data, folder, number, took)
        best = {what: min(times) for what, times in took.items()}
        pairs = [
            (start_ms(cluster), start_ms(cluster, data={"d0": "/data/x"}))
            for _ in range(STARTS)
        ]
    added = percentile([b - a for a, b in pairs], 0.5)
    rate = SIZE / (1 << 20)
    return [
        Figure("put 1 GiB", rate / best["put"], "MiB/s", "higher"),
        Figure("  to `cp -r` and `sync`", best["cp, sync"] / best["put"], "×", "higher", 0.7),
        Figure(
            "  to `cp -r`, which leaves it in memory", best["cp"] / best["put"], "×", "higher"
        ),
        Figure("put it again, unchanged", best["again"] * 1e3, "ms", "lower"),
        Figure("submit → running: what a dataset adds, p50", added, "ms", "lower"),
    ]


def _round(
    cluster: BenchCluster, data: Path, folder: Path, number: int, took: dict[str, list[float]]
) -> None:
    copy = folder / "copy"
    for what, tail in (("cp", ""), ("cp, sync", f" && sync -f {copy}")):
        began = time.perf_counter()
        subprocess.run(["sh", "-c", f"cp -r {data} {copy}{tail}"], check=True)
        took[what].append(time.perf_counter() - began)
        subprocess.run(["sh", "-c", f"sync -f {copy}; rm -r {copy}"], check=True)
    env = {
        **os.environ,
        "ALLOT_STATE": str(cluster.state),
        "XDG_CACHE_HOME": f"{folder}/c{number}",
    }
    allot(cluster.state, "data", "create", f"d{number}")
    for what in ("put", "again"):
        time.sleep(2.1)  # Files count as settled two seconds after their last change.
        began = time.perf_counter()
        words = [*ALLOT, "data", "put", f"d{number}", str(data)]
        subprocess.run(words, env=env, check=True, capture_output=True)
        took[what].append(time.perf_counter() - began)
    if number:
        allot(cluster.state, "data", "rm", f"d{number}")
    subprocess.run(["sync", "-f", data], check=True)
