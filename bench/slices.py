"""`python -m bench.slices`: six one-device jobs on four devices, by turns: what turns cost.

Each job counts steps of pure waiting (5 ms), so that the machine's CPUs are no bound. Four of
the jobs run first on the four devices without turns: that rate is the ideal. Then six take
turns. Prints the aggregate rate of both.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.cluster import RealCluster, a_real_cluster, until

CONFIG = """
virtual_gpus: {type: virtual, count: 4}
tenants:
  us:
    guaranteed: {gpu: 4}
    queues:
      default: {order: skip, time_slice: SLICE}
"""
STEPS = """
import sys, time
with open(sys.argv[1], "wb", buffering=0) as file:
    while True:
        time.sleep(0.005)
        file.write(b".")
"""


def submit(cluster: RealCluster, folder: Path, number: int) -> int:
    """Submit a job that counts its steps in a file."""
    argv = [sys.executable, "-c", STEPS, str(folder / f"{number}")]
    need = {"gpu": 1, "cpu": 0.1, "memory": "64MiB"}
    return cluster.submit(
        {"name": f"j{number}", "command": argv, "resources": need, "tenant": "us"}
    )


def steps(folder: Path) -> int:
    """Return how many steps all jobs have done."""
    return sum(each.stat().st_size for each in folder.iterdir())


def rate(folder: Path, seconds: float) -> float:
    """Measure the steps a second of all jobs together."""
    before, began = steps(folder), time.perf_counter()
    time.sleep(seconds)
    return (steps(folder) - before) / (time.perf_counter() - began)


def main(words: Sequence[str]) -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(prog="python -m bench.slices")
    parser.add_argument("--slice", default="2s")
    parser.add_argument("--seconds", type=float, default=24.0)
    chosen = parser.parse_args(words)
    with (
        tempfile.TemporaryDirectory(prefix="allot-") as name,
        a_real_cluster(Path(name), CONFIG.replace("SLICE", chosen.slice)) as cluster,
    ):
        folder = Path(name) / "steps"
        folder.mkdir()
        jobs = [submit(cluster, folder, number) for number in range(4)]
        until(lambda: len(list(folder.iterdir())) == 4, "four jobs to run")
        ideal = rate(folder, chosen.seconds)
        jobs += [submit(cluster, folder, number) for number in range(4, 6)]
        until(lambda: len(list(folder.iterdir())) == 6, "all jobs to have had a turn")
        turns = rate(folder, chosen.seconds)
        again = [cluster.state_of(job) for job in jobs]
    print(f"four jobs, no turns: {ideal:,.1f} steps/s")
    print(f"six jobs, turns of {chosen.slice}: {turns:,.1f} steps/s, {turns / ideal - 1:+.2%}")
    print(f"then {again.count('running')} ran and {again.count('suspended')} were suspended")


if __name__ == "__main__":
    main(sys.argv[1:])
