"""Traces played by `allot sim`, each as one whole process: start-up, reading and all.

Inputs are the reference traces beside the repository (../shared); without them only the
generated workloads are played. The peers' figures on the same inputs stand in
docs/guide/simulate.md.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from bench.figures import Figure

SHARED = Path(__file__).parents[2] / "shared"
PHILLY_5K = SHARED / "golden" / "philly5k.csv"
PHILLY = SHARED / "traces" / "philly_sia_82k.csv.zst"
SMALL, LARGE = 100_000, 1_000_000
SHORT, LONG = 9, 2
"""Runs of which the best counts: on a machine that others use too, speed varies by a third."""


class Played(msgspec.Struct, frozen=True):
    """One process: how long it took, and the most memory it held."""

    seconds: float
    mib: float


def main() -> list[Figure]:
    figures: list[Figure] = []
    if PHILLY_5K.exists():
        figures += [
            _lower("philly5k, 64×8, fifo", _best(PHILLY_5K, "fifo", SHORT).seconds, "s", 0.55),
            _lower("philly5k, 64×8, srtf", _best(PHILLY_5K, "srtf", SHORT).seconds, "s", 1.0),
        ]
    if PHILLY.exists():
        for policy, target in (
            ("backfill", 8.0), ("easy", 20.0), ("las2d", 25.0), ("maxmin", 25.0)
        ):  # fmt: skip
            played = _best(PHILLY, policy, LONG)
            name = f"Philly, 82,247 jobs, 64×8, {policy}"
            figures += [
                _lower(name, played.seconds, "s", target),
                _lower(f"{name}: memory", played.mib, "MiB", 400),
            ]
    return figures + _growth()


def _growth() -> list[Figure]:
    """Ten times the jobs at the same load should cost ten times as much."""
    with tempfile.TemporaryDirectory() as folder:
        small = play(_workload(Path(folder), SMALL), "1250x8", "backfill")
        large = play(_workload(Path(folder), LARGE), "1250x8", "backfill")
    per_small, per_large = small.seconds / SMALL * 1e6, large.seconds / LARGE * 1e6
    return [
        _lower("100,000 jobs at load 0.8, 1,250×8, per job", per_small, "us"),
        _lower("1,000,000 jobs at load 0.8, 1,250×8, per job", per_large, "us"),
        _lower("  the second over the first", per_large / per_small, "×", 1.3),
        _lower("  memory of the second", large.mib, "MiB", 1536),
    ]


def _lower(name: str, value: float, unit: str, target: float | None = None) -> Figure:
    return Figure(name, value, unit, "lower", target)


def _best(trace: Path, policy: str, times: int) -> Played:
    played = (play(trace, "64x8", policy) for _ in range(times))
    return min(played, key=lambda each: each.seconds)


def play(trace: Path, cluster: str, policy: str) -> Played:
    """Run `allot sim run` once. Raises CalledProcessError when it fails."""
    command = [
        *_allot(), "sim", "run", "--json", "--trace", str(trace),
        "--cluster", cluster, "--policy", policy,
    ]  # fmt: skip
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Played(seconds, usage.ru_maxrss / 1024)


def _workload(folder: Path, jobs: int) -> Path:
    path = folder / f"{jobs}.csv"
    subprocess.run(
        [*_allot(), "sim", "generate", "--jobs", str(jobs), "--load", "0.8",
         "--cluster", "1250x8", "--out", str(path)],
        check=True,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return path


def _allot() -> list[str]:
    return [sys.executable, "-m", "allotment.cli"]
