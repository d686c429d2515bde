"""`python -m bench.sharing TRACE`: who waits how long under which way to share, on one trace.

Eleven tenants and the rest of the Philly trace on 64 nodes of 8 devices, each guaranteed
whole nodes by its load; under every arm the same order within a tenant: first come, first
served, and whoever fits passes. Prints Markdown tables; docs/experiments/sharing.md is made
of them.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import Pool
from pathlib import Path

import msgspec
from msgspec.structs import replace

from allotment.metrics.jobs import Fate, JobOutcome
from allotment.metrics.numbers import jain, mean
from allotment.metrics.summary import Summary
from allotment.model.quantity import DEVICE, Resources
from allotment.model.tenancy import Queue, ShareBy, Tenant
from allotment.sim.cluster import CPUS_A_DEVICE, MEMORY_A_DEVICE, cluster_of
from allotment.sim.run import simulate
from allotment.sim.scenario import Owners, Scenario
from allotment.sim.settings import Settings
from allotment.wiring.sim import open_trace
from bench.anomaly.tables import minutes, table
from bench.anomaly.workload import WIDTH, Workload, compressed, read

NODES = 64
FACULTIES = 3
"""Into how many groups tenants are put, for the arm with two levels."""

ARMS = ("static", "borrow", "max_min", "drf", "fair_share", "hierarchical")
SAYS = {
    "static": "static quota: nothing is lent",
    "borrow": "borrow and return: what is idle goes to whoever asked first",
    "max_min": "the same, to whoever has the fewest devices for its share",
    "drf": "the same, to the smallest dominant share",
    "fair_share": "the same, to whoever used least of late (half-life of a week)",
    "hierarchical": "the same in two levels: three faculties, and the tenants of each",
}


def owners_of(arm: str, shares: dict[str, int]) -> Owners:
    """Return what each tenant is guaranteed, and how what is idle is divided."""
    if arm == "hierarchical":
        return Owners(tuple(_faculties(shares)), share=ShareBy.FAIR_SHARE)
    tenants = tuple(
        Tenant(name, _worth(nodes), borrow=arm != "static", weight_milli=1000 * nodes)
        for name, nodes in shares.items()
    )
    share = ShareBy.FIRST_COME if arm in ("static", "borrow") else ShareBy(arm)
    return Owners(tenants, share=share)


def _faculties(shares: dict[str, int]) -> Iterator[Tenant]:
    for number, members in enumerate(_groups(shares)):
        nodes = sum(shares[name] for name in members)
        queues = tuple(Queue(name, weight_milli=1000 * shares[name]) for name in members)
        yield Tenant(
            f"faculty{number}",
            _worth(nodes),
            queues,
            share=ShareBy.FAIR_SHARE,
            weight_milli=1000 * nodes,
        )


def _groups(shares: dict[str, int]) -> list[list[str]]:
    """Deal tenants out to faculties, the largest first, so that these are about as large."""
    groups: list[list[str]] = [[] for _ in range(FACULTIES)]
    for name in sorted(shares, key=lambda name: (-shares[name], name)):
        min(groups, key=lambda group: sum(shares[each] for each in group)).append(name)
    return groups


def _worth(nodes: int) -> Resources:
    devices = nodes * WIDTH
    return Resources(devices * DEVICE, devices * CPUS_A_DEVICE, devices * MEMORY_A_DEVICE)


class Result(msgspec.Struct, frozen=True):
    """What one arm gave."""

    arm: str
    load: float
    rows: Mapping[str, tuple[float, int, int]]
    """Of each tenant: mean delay and its 90th percentile, in milliseconds; evictions."""
    all_ms: float
    jain: float
    busy: float
    evictions: int
    unfinished: int


def play(task: tuple[str, float, Workload]) -> Result:
    """Play one arm; its rows are tenants, whatever they were put into."""
    arm, load, workload = task
    shares = dict(workload.shares)
    jobs = workload.trace.jobs
    names = {job.id: job.tenant for job in jobs}
    if arm == "hierarchical":
        faculty = {
            name: f"faculty{number}"
            for number, members in enumerate(_groups(shares))
            for name in members
        }
        jobs = tuple(replace(job, tenant=faculty[job.tenant], queue=job.tenant) for job in jobs)
    run = simulate(
        Scenario(
            replace(workload.trace, jobs=jobs),
            cluster_of(f"{NODES}x{WIDTH}"),
            "backfill",
            Settings(tasks="node"),
            owners=owners_of(arm, shares),
        )
    )
    assert run.summary is not None
    return _result(arm, load, [(names[job.id], job) for job in run.jobs], run.summary)


def _result(
    arm: str, load: float, jobs: Sequence[tuple[str, JobOutcome]], summary: Summary
) -> Result:
    delays: dict[str, list[int]] = {}
    ideal: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    evictions: Counter[str] = Counter()
    for name, job in jobs:
        evictions[name] += job.preemptions
        if job.fate is not Fate.COMPLETED:
            continue
        ran, took = job.run_ms, job.end_ms - job.submit_ms
        delays.setdefault(name, []).append(took - ran)
        ideal[name] += ran
        taken[name] += took
    every = [delay for each in delays.values() for delay in each]
    return Result(
        arm,
        load,
        {name: (mean(each), _p90(each), evictions[name]) for name, each in delays.items()},
        mean(every),
        jain([ideal[name] / taken[name] for name in sorted(taken)]),
        summary.utilization,
        sum(evictions.values()),
        len(jobs) - len(every),
    )


def _p90(values: list[int]) -> int:
    values.sort()
    return values[max(0, -(-len(values) * 90 // 100) - 1)]


# ── as Markdown ─────────────────────────────────────────────────────────────────────────


def in_all(results: Sequence[Result]) -> str:
    rows = [
        [
            f"×{each.load:g} {each.arm}",
            minutes(each.all_ms),
            f"{each.jain:.3f}",
            f"{each.busy:.1%}",
            f"{each.evictions:,}",
            str(each.unfinished),
        ]
        for each in results
    ]
    head = ["arm", "mean delay, min", "Jain's index", "devices busy", "evictions", "not ended"]
    return table(head, rows)


def by_tenant(results: Sequence[Result], shares: Mapping[str, int]) -> str:
    """Return mean delay / 90th percentile / evictions of each tenant under each arm."""
    rows = [
        [
            f"{name} ({nodes})",
            *(
                f"{minutes(row[0])} / {minutes(row[1])} / {row[2]:,}"
                if (row := each.rows.get(name))
                else "—"
                for each in results
            ),
        ]
        for name, nodes in sorted(shares.items(), key=lambda item: (-item[1], item[0]))
    ]
    return table(["tenant (nodes)", *(each.arm for each in results)], rows)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.sharing", description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--jobs", type=int, default=0, help="only the first so many; 0: all")
    parser.add_argument("--loads", type=float, nargs="+", default=[1.0, 1.5])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(argv)
    plain = read(open_trace(options.trace, tasks="node"), NODES, options.jobs)
    tasks = [
        (arm, load, compressed(plain, load)) for load in options.loads for arm in options.arms
    ]
    with Pool(options.processes) as pool:
        results = pool.map(play, tasks, chunksize=1)
    print(in_all(results))
    for load in options.loads:
        print(f"Load ×{load:g}: mean delay / 90th percentile, minutes / evictions\n")
        print(by_tenant([each for each in results if each.load == load], plain.shares))
    return 1 if any(each.unfinished for each in results) else 0


if __name__ == "__main__":
    sys.exit(main())
