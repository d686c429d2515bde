"""Guarantees of the sharing-anomaly experiment, and what must hold of its results."""

import pytest
from msgspec.structs import replace

from allotment.model.quantity import DEVICE, MINUTE, Resources
from allotment.sim.trace import Trace, TraceJob
from bench.anomaly.arms import Arm, Kind
from bench.anomaly.measure import Delay, Result, play
from bench.anomaly.verdict import broken
from bench.anomaly.waiting import Idle
from bench.anomaly.workload import (
    as_tasks,
    compressed,
    devices_of,
    read,
    redrawn,
    shares_of,
    time_of_large,
)


def a_job(tenant: str, devices: int, run: int, at: int = 0) -> TraceJob:
    need = Resources(gpu_milli=DEVICE)
    return as_tasks(TraceJob(f"{tenant}{at}", at, run, 1, need, tenant), devices)


def a_trace(jobs: list[TraceJob]) -> Trace:
    return Trace("drawn", "simple", "", tuple(jobs))


def many(tenant: str, devices: int, run: int) -> list[TraceJob]:
    return [a_job(tenant, devices, run, at) for at in range(10)]


def test_nodes_go_by_load_and_to_the_largest_job() -> None:
    jobs = [*many("a", 8, 600), *many("b", 8, 300), *many("c", 8, 50), a_job("c", 32, 1)]
    # c needs 4 for its largest job; what is left goes 2 to 1.
    assert shares_of(jobs, 16, {}) == {"a": 8, "b": 4, "c": 4}
    assert shares_of(jobs, 17, {"b": 1}) == {"a": 12, "b": 1, "c": 4}
    with pytest.raises(ValueError, match="too few"):
        shares_of(jobs, 5, {})


def test_tenants_with_few_jobs_are_merged_and_large_jobs_left_out() -> None:
    trace = a_trace([*many("a", 8, 600), a_job("x", 4, 9), a_job("y", 2, 9), a_job("a", 64, 9)])
    workload = read(trace, 4)
    assert workload.shares == {"a": 3, "tiny": 1}
    assert [devices_of(job) for job in workload.left_out] == [64]
    assert {job.tenant for job in workload.trace.jobs} == {"a", "tiny"}


def test_jobs_come_faster_and_run_as_long() -> None:
    faster = compressed(read(a_trace(many("a", 8, 600)), 4), 3)
    assert [job.submit_ms for job in faster.trace.jobs] == [0, 0, 1, 1, 1, 2, 2, 2, 3, 3]
    assert [job.run_ms for job in faster.trace.jobs] == [600] * 10


def test_sizes_are_drawn_by_the_seed_to_the_load_asked_for() -> None:
    trace = a_trace([a_job("a", 1, 5_000_000, at * 60_000) for at in range(400)])
    one, two = redrawn(trace, 40, 0.8, seed=1), redrawn(trace, 40, 0.8, seed=1)
    assert one == two
    assert one != redrawn(trace, 40, 0.8, seed=2)
    assert one.offered() == pytest.approx(0.8, rel=0.01)
    assert time_of_large(one.trace.jobs) > 0.6
    assert {job.need.gpu_milli for job in one.trace.jobs if devices_of(job) > 8} == {8 * DEVICE}


def a_result(kind: Kind, mean_min: float) -> Result:
    delay = Delay(1, mean_min * MINUTE, 0, 0, 0)
    return Result(Arm(kind, "FIFO"), {"a": delay}, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("quota", "cells", "wrong"),
    [(20, 10.05, ""), (20, 10.2, "a waits 10.2 min"), (10, 10, "no tenant with a quota")],
)
def test_what_must_hold_is_checked(quota: float, cells: float, wrong: str) -> None:
    results = [a_result("private", 10), a_result("quota", quota), a_result("cells", cells)]
    told = broken(results)
    assert (wrong in told[0]) if wrong else (told == [])


def test_arms_in_which_first_come_is_not_first_served_do_not_compare() -> None:
    passes = replace(a_result("private", 10), idle={"a": Idle(overtakers=2)})
    told = broken([passes, a_result("quota", 20), a_result("cells", 10)])
    assert told == [" private, FIFO: 2 jobs passed earlier ones of their tenant"]


def test_a_share_in_cells_is_a_private_cluster() -> None:
    rows = [a_job(who, 1, 100, at) for at in range(12) for who in ("a", "b")]
    rows += [a_job("a", 8, 10, 300), *(a_job("b", 1, 10_000, 12 + at) for at in range(2))]
    workload = read(a_trace(sorted(rows, key=lambda job: job.submit_ms)), 4)
    private, cells = (play(Arm(kind, "FIFO"), workload, 0) for kind in ("private", "cells"))
    assert cells.delays == private.delays


def test_borrowers_are_counted_and_what_their_evictions_undo() -> None:
    hour = 60 * MINUTE
    rows = [a_job("b", 8, 10 * hour, at) for at in range(10)]
    rows += [a_job("a", 8, hour, 2 * hour + at) for at in range(10)]
    workload = read(a_trace(rows), 4)
    result = play(Arm("cells", "packing", borrow=True), workload, 0)
    assert result.evictions > 0
    assert result.borrowed_ms > result.lost_ms > 0
    assert result.unfinished == 0
