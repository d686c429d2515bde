"""A run in numbers, worked out by hand."""

import math
from statistics import fmean

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.metrics.jobs import Fate, JobOutcome, Jobs
from allotment.metrics.numbers import jain, mean, percentile
from allotment.metrics.summarise import summarise
from allotment.metrics.summary import Target, WaitParts
from allotment.metrics.usage import Totals, Usage
from allotment.model.quantity import HOUR, MINUTE, Millis
from tests.unit.metrics.history import History


@given(st.lists(st.integers(0, 100), min_size=1), st.integers(1, 100))
def test_percentiles_are_nearest_ranks(values: list[int], percent: int) -> None:
    found = percentile(sorted(values), percent)
    at_or_below = sum(value <= found for value in values)
    below = sum(value < found for value in values)
    assert found in values
    assert at_or_below * 100 >= percent * len(values) > below * 100


def test_percentiles_of_known_lists() -> None:
    assert [percentile(range(1, 101), p) for p in (1, 50, 90, 99, 100)] == [1, 50, 90, 99, 100]
    assert [percentile([15, 20, 35, 40, 50], p) for p in (5, 30, 40, 50, 100)] == [
        15, 20, 20, 35, 50,
    ]  # fmt: skip
    assert percentile([7], 99) == 7
    assert percentile([], 50) == 0
    assert mean([]) == 0


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=20))
def test_jain_is_between_one_of_n_and_one(values: list[float]) -> None:
    assert 1 / len(values) - 1e-9 <= jain(values) <= 1 + 1e-9


def test_jain_of_known_lists() -> None:
    assert jain([3.0, 3.0, 3.0]) == pytest.approx(1)
    assert jain([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain([]) == jain([0.0]) == 1


def two_tenants():
    """4 devices for an hour at a time; the second job waits for the first."""
    usage = Usage(4000)
    jobs = Jobs(usage)
    log = History().submit(1, 4, "a").submit(2, 4, "b").start(1).at(HOUR).succeed(1).start(2)
    log.at(2 * HOUR).succeed(2).into(usage, jobs)
    return jobs.rows, usage.totals()


def test_a_run_in_numbers() -> None:
    rows, totals = two_tenants()
    found = summarise(rows, totals, 4000)
    assert (found.jobs, found.completed, found.unfinished) == (2, 2, 0)
    assert (found.avg_jct_s, found.p50_jct_s, found.p99_jct_s) == (5400, 3600, 7200)
    assert (found.avg_queue_delay_s, found.p90_queue_delay_s) == (1800, 3600)
    assert (found.avg_response_s, found.p50_response_s) == (1800, 0)
    assert (found.makespan_s, found.throughput_jobs_per_h) == (7200, 1)
    assert (found.utilization, found.device_h) == (1, 8)
    assert (found.fragmentation, found.stranded) == (0, 0)
    assert (found.avg_waiting_jobs, found.peak_waiting_jobs) == (0.5, 1)
    assert found.peak_waiting_devices == 4
    # Fair times are 2 h and 1.5 h, taken were 1 h and 2 h.
    assert found.fairness.worst_rho == pytest.approx(2 / 1.5)
    assert found.fairness.mean_rho == pytest.approx((0.5 + 2 / 1.5) / 2)
    assert found.fairness.jain == pytest.approx(jain([2, 0.75]))
    assert (found.sla.started_in_time, found.sla.fair, found.sla.both) == (0.5, 1, 0.5)


def test_tenants_are_told_apart() -> None:
    rows, totals = two_tenants()
    a, b = summarise(rows, totals, 4000, causes={"b": WaitParts(capacity_s=3600)}).tenants
    assert (a.tenant, a.jobs, a.completed, a.device_h, a.avg_jct_s) == ("a", 1, 1, 4, 3600)
    assert (b.avg_queue_delay_s, b.p99_queue_delay_s, b.avg_response_s) == (3600, 3600, 3600)
    assert (a.progress, b.progress) == (2, 0.75)
    assert (a.wait_causes.capacity_s, b.wait_causes.capacity_s) == (0, 3600)


def test_waits_are_added_over_tenants() -> None:
    causes = {"a": WaitParts(1, 2, 3, 4, 5), "b": WaitParts(order_s=10)}
    assert summarise([], Totals(), 0, causes=causes).wait_causes == WaitParts(1, 2, 3, 4, 15)


def test_delay_counts_waits_after_preemption_too() -> None:
    usage = Usage(1000)
    jobs = Jobs(usage)
    log = History().at(1000).submit(1).at(3000).start(1).at(7000).evict(1).at(12_000).start(1)
    log.at(13_000).succeed(1).into(usage, jobs)
    found = summarise(jobs.rows, usage.totals(), 1000)
    assert (found.avg_jct_s, found.avg_queue_delay_s, found.avg_response_s) == (12, 7, 2)
    assert found.preemptions == found.tenants[0].preemptions == 1


def a_row(**fields: object) -> JobOutcome:
    row = JobOutcome("1", "t", 1000, 0, Millis(0))
    return msgspec.structs.replace(row, **fields)


def test_what_never_ran_or_never_ended_is_counted_apart() -> None:
    rows = [
        a_row(start_ms=0, end_ms=4000, ran_ms=4000, ideal_ms=4000),
        a_row(never="too large"),
        a_row(start_ms=0, end_ms=99_000, ran_ms=99_000, censored=True),
        a_row(start_ms=5),
        a_row(end_ms=2000, ended=Fate.CANCELLED),
        a_row(start_ms=0, end_ms=7000, ran_ms=7000, ended=Fate.FAILED),
        a_row(start_ms=0, end_ms=8000, ran_ms=8000, ended=Fate.TIMED_OUT),
    ]
    found = summarise(rows, Totals(), 1000)
    assert (found.jobs, found.completed, found.never_schedulable) == (7, 1, 1)
    assert (found.censored, found.unfinished, found.cancelled) == (1, 1, 1)
    assert (found.failed, found.timed_out) == (1, 1)
    assert (found.avg_jct_s, found.p99_jct_s, found.fairness.worst_rho) == (4, 4, 1)


def test_nothing_at_all() -> None:
    found = summarise([], Totals(), 0)
    assert (found.jobs, found.makespan_s, found.utilization) == (0, 0, 0)
    assert (found.fairness.jain, found.sla.both, found.tenants) == (1, 0, ())
    assert all(
        math.isfinite(value)
        for value in msgspec.structs.astuple(found)
        if isinstance(value, float)
    )


def test_the_promise_can_be_chosen() -> None:
    rows, totals = two_tenants()
    found = summarise(rows, totals, 4000, target=Target(Millis(60 * MINUTE), 1.0)).sla
    assert (found.started_in_time, found.fair, found.both) == (1, 0.5, 0.5)
    assert (found.target_start_s, found.target_rho) == (3600, 1)


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1))
def test_means_against_the_library(times: list[tuple[int, int]]) -> None:
    rows = [
        a_row(submit_ms=0, start_ms=wait, end_ms=wait + run, ran_ms=run) for wait, run in times
    ]
    found = summarise(rows, Totals(), 1000)
    assert found.avg_jct_s == pytest.approx(fmean(wait + run for wait, run in times) / 1000)
    assert found.avg_queue_delay_s == pytest.approx(fmean(wait for wait, _ in times) / 1000)
    assert found.tenants[0].avg_response_s == pytest.approx(found.avg_response_s)
