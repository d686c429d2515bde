"""`python -m bench.sweeps`: what halving saves, on real processes.

A line is fitted by gradient descent with random learning rates, first each to its end, then
with halving. Prints the device-seconds of both, and which trial was the best. A step waits
for 10 ms, so that the machine's CPUs are no bound.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.cluster import RealCluster, a_real_cluster, until
from tests.support.training import training

CONFIG = """
virtual_gpus: {type: virtual, count: 4}
tenants: {us: {guaranteed: {gpu: 4}}}
"""
SPACE = {"lr": {"log": [1e-6, 1e-1]}}
PATIENCE_S = 1_800


def sweep(cluster: RealCluster, steps: int, count: int, halving: object) -> dict[str, Any]:
    """Run one sweep to its end; return what `allot sweep show --json` does."""
    asked = {
        "parameters": SPACE,
        "random": {"count": count, "seed": 7},
        "metric": "loss",
        **({"halving": halving} if halving else {}),
    }
    made = cluster.submit({**training(steps), "sweep": asked})
    path = f"/v1/sweeps/{made}"
    until(lambda: cluster.get(path)["row"]["finished_at"] > 0, "the sweep", PATIENCE_S)
    return cluster.get(path)


def main(words: Sequence[str]) -> None:
    """Print both sweeps."""
    parser = argparse.ArgumentParser(prog="python -m bench.sweeps")
    parser.add_argument("--steps", type=int, default=2_700)
    parser.add_argument("--trials", type=int, default=12)
    chosen = parser.parse_args(words)
    rungs = [chosen.steps // 27, chosen.steps // 9, chosen.steps // 3]
    with (
        tempfile.TemporaryDirectory(prefix="allot-") as folder,
        a_real_cluster(Path(folder), CONFIG) as cluster,
    ):
        print(f"{chosen.trials} trials of {chosen.steps:,} steps on 4 virtual devices")
        for name, halving in (("all to the end", None), ("halving", {"rungs": rungs})):
            found = sweep(cluster, chosen.steps, chosen.trials, halving)
            row, best = found["row"], found["trials"][0]
            took = (row["finished_at"] - row["submitted_at"]) / 1000
            print(
                f"{name}: {row['gpu_ms'] / 1e6:,.1f} device-seconds in {took:,.1f} s, "
                f"{row['stopped']} stopped; best lr={best['params']['lr']} "
                f"({best['state']}, loss {best['value']:.3g})"
            )
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")


if __name__ == "__main__":
    main(sys.argv[1:])
