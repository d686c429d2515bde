"""Play the sharing-anomaly experiment, and say whether its promise holds.

    python -m bench.anomaly TRACE [--part main|why|borrow|binding|levels|large …] [--jobs N]
        [--nodes 64] [--schedulers FIFO,2D-LAS,packing] [--loads 1,1.5] [--workers 2]
        [--seed 0] [--json FILE] [--known FILE …]

Prints the tables of docs/experiments/sharing-anomaly.md. `--json` keeps the figures, each arm's
as soon as it ends; arms whose figures are in a `--known` file are not played again: it must be
of the same trace, cut, sizes and seed. Exits 1 when a tenant in cells, without borrowing, waits
longer than on its private cluster by more than 1 % on average, when a quota of devices shows no
anomaly, when a job does not end, or when one passes another of its tenant under FIFO.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import msgspec

from allotment.wiring.sim import open_trace
from bench.anomaly import tables
from bench.anomaly.arms import SCHEDULERS, Arm, Kind
from bench.anomaly.measure import Result, play
from bench.anomaly.verdict import broken
from bench.anomaly.workload import Workload, compressed, devices_of, read, redrawn

BASIC: tuple[Kind, ...] = ("private", "cells")
COUNTED: tuple[Kind, ...] = ("owned", "counted", "spread")
PARTS: dict[str, tuple[tuple[Kind, bool], ...]] = {
    "main": tuple((kind, False) for kind in (*BASIC, *COUNTED)),
    "why": tuple((kind, False) for kind in ("private", "plain", "loose", "quota", "cells")),
    "borrow": (("cells", False), ("cells", True)),
    "binding": (("cells", True), ("static", True)),
    "levels": (("cells", False), ("flat", False)),
    "large": (*((kind, False) for kind in (*BASIC, *COUNTED)), ("cells", True)),
}
"""Which ways to share a part compares, and whether tenants borrow."""
LARGE_NODES, LARGE_LOAD = 279, 0.85
"""The paper's cluster; and how much of it the jobs redrawn ask for."""
_workloads: dict[str, Workload] = {}
"""Filled before processes are forked, so that they need not be sent."""


def main(arguments: Sequence[str] | None = None) -> int:
    wish = _parser().parse_args(arguments)
    parts = wish.part or list(PARTS)
    trace = open_trace(wish.trace, tasks="node")
    first = read(trace, wish.nodes, wish.jobs)
    _workloads.clear()
    for load in wish.loads.split(","):
        _workloads[f"×{load}"] = compressed(first, float(load))
    if "large" in parts:
        _workloads["large"] = redrawn(trace, wish.large_nodes, LARGE_LOAD, wish.seed, wish.jobs)
    arms = list(dict.fromkeys(_arms(parts, wish.schedulers.split(","), wish.loads.split(","))))
    known = _known(wish.known)
    results = _played(arms, known, wish.seed, wish.workers, wish.json)
    _print(results)
    wrong = broken(results)
    for line in wrong:
        print(f"NOT SO: {line}", file=sys.stderr)
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.anomaly", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("trace", type=Path)
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--jobs", type=int, default=0, help="only the first so many")
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--large-nodes", type=int, default=LARGE_NODES)
    parser.add_argument("--schedulers", default=",".join(SCHEDULERS))
    parser.add_argument("--loads", default="1,1.5")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--known", type=Path, action="append", default=[])
    return parser


def _arms(
    parts: Sequence[str], schedulers: Sequence[str], loads: Sequence[str]
) -> Iterator[Arm]:
    """Return what to play; parts may share some of it."""
    for load in (f"×{load}" for load in loads):
        for name in schedulers:
            for part in parts:
                if part != "large" and (part != "why" or name == "FIFO"):
                    yield from _of_part(part, name, load)
    for name in schedulers if "large" in parts else ():
        yield from _of_part("large", name, "large")


def _of_part(part: str, scheduler: str, load: str) -> Iterator[Arm]:
    """Return a part's arms with one scheduler.

    Where shares are counted 2D-LAS does not come to an end. Nobody holds up anybody in it,
    so that the quota with leaf cells is of the same order as the rest.
    """
    for kind, borrow in PARTS[part]:
        if scheduler != "2D-LAS" or kind not in COUNTED:
            yield Arm(kind, scheduler, borrow=borrow, load=load)
    if scheduler == "2D-LAS" and part in ("main", "large"):
        yield Arm("quota", scheduler, load=load)


def _known(files: Sequence[Path]) -> dict[Arm, Result]:
    """Read figures of arms that were played before."""
    found = (msgspec.json.decode(file.read_bytes(), type=list[Result]) for file in files)
    return {result.arm: result for results in found for result in results}


def _played(
    arms: list[Arm], known: dict[Arm, Result], seed: int, workers: int, file: Path | None
) -> list[Result]:
    """Play all arms, so many at a time; results stand as the arms do."""
    done = {arm: known[arm] for arm in arms if arm in known}
    with ProcessPoolExecutor(workers, get_context("fork")) as pool:
        waiting = {pool.submit(_timed, arm, seed): arm for arm in arms if arm not in done}
        for future in as_completed(waiting):
            arm = waiting[future]
            done[arm], seconds = future.result()
            print(f"{arm}: {seconds:.0f} s", file=sys.stderr, flush=True)
            if file:
                file.write_bytes(msgspec.json.format(msgspec.json.encode([*done.values()])))
    return [done[arm] for arm in arms]


def _timed(arm: Arm, seed: int) -> tuple[Result, float]:
    begun = time.perf_counter()
    return play(arm, _workloads[arm.load], seed), time.perf_counter() - begun


def _print(results: list[Result]) -> None:
    for name, workload in _workloads.items():
        print(f"\n### Workload {name}: {workload.nodes} nodes, load {workload.offered():.2f}\n")
        print(tables.shares(workload))
        if left := workload.left_out:
            listed = ", ".join(f"{job.id} ({job.tenant}, {devices_of(job)})" for job in left)
            print(f"Left out, being larger than 32 devices: {listed}.\n")
    print("\n### Beside a private cluster\n")
    print(tables.beside_private(results))
    for load in dict.fromkeys(result.arm.load for result in results):
        print(f"\n### {load}: mean delay in minutes\n")
        print(tables.means(results, load))
    seen = dict.fromkeys((r.arm.load, r.arm.scheduler) for r in results if not r.arm.borrow)
    for load, scheduler in seen:
        print(f"\n### {load} {scheduler}: delay in minutes\n")
        print(tables.delays(results, load, scheduler))
    for load in _workloads:
        if why := tables.why(results, load):
            print(f"\n### {load} FIFO: idle while somebody of the tenant waits\n")
            print(why)
    print("\n### Borrowing\n")
    print(tables.borrowing(results))
    for load in _workloads:
        print(f"\n### {load}: mean delay in minutes, without and with borrowing\n")
        print(tables.by_borrowing_tenant(results, load))
    print("\n### Distance\n")
    print(tables.distance(results))


if __name__ == "__main__":
    sys.exit(main())
