"""What it costs to take code along that did not change, and an environment that is there.

Code: 10,000 files of 2 KiB in a git repository; `allot run --detach --code` as a whole process,
until the job is accepted, when all was sent before; beside it the same without code, and the
`git ls-files` that it has to wait for. An environment: of one package, from an index of the
benchmark's own; how much later the second job with it starts than one without.
"""

import os
import subprocess
import tempfile
import time
from pathlib import Path

from bench.cluster import ALLOT, BenchCluster, a_cluster, percentile, start_ms, until
from bench.figures import Figure
from tests.support.package_index import a_package_index

FILES, FOLDERS = 10_000, 100
ROUNDS = 15
STARTS = 20
_LIST = ("git", "ls-files", "-z", "-t", "-c", "-o", "--exclude-standard")


def main() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="allot-bench-") as name:
        folder = Path(name)
        os.environ["HOME"] = str(folder)  # The service asks the index that is named there.
        with a_package_index(folder) as index:
            index.wheel("framework", "1.0", "version = '1.0'\n")
            with a_cluster() as cluster:
                taken = _code(cluster, folder / "code")
                added = _environment(cluster)
    return [
        Figure("10,000 unchanged files, run → accepted", taken["code"], "ms", "lower", 300),
        Figure("  the same without code", taken["without"], "ms", "lower"),
        Figure("  `git ls-files` of them", taken["git"], "ms", "lower"),
        Figure(
            "submit → running: what a known environment adds, p50", added, "ms", "lower", 20
        ),
    ]


def _code(cluster: BenchCluster, folder: Path) -> dict[str, float]:
    for number in range(FOLDERS):
        below = folder / f"package{number}"
        below.mkdir(parents=True)
        for file in range(FILES // FOLDERS):
            (below / f"module{file}.py").write_bytes(os.urandom(1024).hex().encode())
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "all")):
        who = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
        subprocess.run(["git", *who, *words], cwd=folder, check=True)
    small = ("--cpus", "0.1", "--memory", "32MiB")
    run = (*ALLOT, "run", "--state", str(cluster.state), "--detach", *small)
    asked = {"code": (*run, "--code", ".", "--", "true"), "without": (*run, "--", "true"),
             "git": _LIST}  # fmt: skip
    subprocess.run(asked["code"], cwd=folder, check=True, capture_output=True)
    time.sleep(2.1)  # Files count as settled two seconds after their last change.
    ran = subprocess.run(asked["code"], cwd=folder, check=True, capture_output=True)
    _until_over(cluster, int(ran.stdout))
    took: dict[str, list[float]] = {what: [] for what in asked}
    for _ in range(ROUNDS):
        for what, words in asked.items():
            began = time.perf_counter()
            ran = subprocess.run(words, cwd=folder, check=True, capture_output=True)
            took[what].append((time.perf_counter() - began) * 1e3)
            if what != "git":  # Its folder is being made, which is not what is measured.
                _until_over(cluster, int(ran.stdout))
    return {what: percentile(times, 0.5) for what, times in took.items()}


def _until_over(cluster: BenchCluster, job: int) -> None:
    """Wait until a job has succeeded."""
    connection = cluster.connect()
    until(lambda: connection.get(f"/v1/jobs/{job}")["row"]["state"] == "succeeded", "the job")
    connection.close()


def _environment(cluster: BenchCluster) -> float:
    wanted = {"requirements": ["framework"]}
    start_ms(cluster, environment=wanted)  # It is built.
    pairs = [(start_ms(cluster), start_ms(cluster, environment=wanted)) for _ in range(STARTS)]
    return percentile([b - a for a, b in pairs], 0.5)
