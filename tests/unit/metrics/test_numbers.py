"""Every number of a run, on one small history, worked out by hand.

Four devices; seconds along the top, devices held below:

               0    10   20  25  30  35  40  45  50
    1  a   4   ████ succeeds at 10
    2  b   3   ···· ████ ·· ████████████████ evicted at 20, succeeds at 45
    3  a   2             ██ fails at 25
    4  b   1   ·········── ████████ from 25, times out at 35
    5  a   4                    ········ in line from 30, cancelled at 40
    6  b   1                                ███ does not end

Beside them there is one job that can never run (a) and one that is censored (b).
"""

from functools import cache

import msgspec
import pytest

from allotment.metrics.fold import Folds
from allotment.metrics.jobs import JobOutcome, Jobs
from allotment.metrics.summarise import summarise
from allotment.metrics.summary import Fairness, Sla, Summary, Target, TenantBlock, WaitParts
from allotment.metrics.usage import Usage
from allotment.metrics.waits import WaitCauses
from allotment.model.quantity import SECOND, Instant, Millis
from tests.unit.metrics.history import History


def s(seconds: int) -> int:
    return seconds * SECOND


def history() -> History:
    log = History().submit(1, 4, "a").submit(2, 3, "b").submit(4, 1, "b").start(1)
    log.at(s(10)).succeed(1).start(2)
    log.at(s(20)).evict(2).submit(3, 2, "a").start(3)
    log.at(s(25)).fail(3).start(2).start(4)
    log.at(s(30)).submit(5, 4, "a")
    log.at(s(35)).time_out(4)
    log.at(s(40)).cancel(5)
    return log.at(s(45)).succeed(2).submit(6, 1, "b").start(6)


@cache
def summary() -> Summary:
    usage = Usage(4000)
    jobs = Jobs(usage)
    causes = WaitCauses(usage, jobs)
    folds = Folds(usage, jobs, causes)
    folds.feed(history().records)
    folds.pass_to(Instant(s(50)))
    rows = [
        *jobs.rows,
        JobOutcome("7", "a", 9000, s(3), Millis(s(5)), never="9 devices of 4"),
        JobOutcome("8", "b", 1000, s(1), Millis(s(1)), s(1), s(2), censored=True),
    ]
    target = Target(Millis(s(10)), 1.0)
    return summarise(rows, usage.totals(), 4000, causes=causes.by_tenant(), target=target)


IDEAL_2 = 30 * (10 * 2 + 10 * 1 + 5 * 1.5 + 5 * 1 + 5 * 2 + 5 * 1.75 + 5 * 1) / 45
"""Job 2 ran 30 s; the cluster was asked for so many times over in its 45 s."""

NUMBERS = {
    "jobs": 8,
    "completed": 2,
    "failed": 1,
    "timed_out": 1,
    "cancelled": 1,
    "censored": 1,
    "never_schedulable": 1,
    "unfinished": 1,
    # Jobs 1 and 2: 10 and 45 s, of which 0 and 15 not running; first starts at 0 and 10.
    "avg_jct_s": 27.5,
    "p50_jct_s": 10,
    "p90_jct_s": 45,
    "p99_jct_s": 45,
    "avg_queue_delay_s": 7.5,
    "p50_queue_delay_s": 0,
    "p90_queue_delay_s": 15,
    "p99_queue_delay_s": 15,
    "avg_response_s": 5,
    "p50_response_s": 0,
    "p90_response_s": 10,
    "p99_response_s": 10,
    "makespan_s": 45,
    "throughput_jobs_per_h": 2 * 3600 / 45,
    "utilization": (40 + 30 + 10 + 40 + 30) / (4 * 45),
    # Idle are 1, 2, 1 and 3 devices from 10, 20, 35 and 45 on; wanted meanwhile 1, 4, 4 to 40.
    "fragmentation": (10 * 1 + 5 * 2 + 5 * 1) / (10 * 1 + 5 * 2 + 10 * 1 + 5 * 3),
    "stranded": 25 / (4 * 50),
    "preemptions": 1,
    "device_h": (40 + 90 + 10 + 10) / 3600,
    "avg_waiting_jobs": (10 * 2 + 10 * 1 + 5 * 2 + 10 * 1) / 50,
    "peak_waiting_jobs": 2,
    "peak_waiting_devices": 4,
    "nothing_ran": "",
}


@pytest.mark.parametrize("name", NUMBERS)
def test_number(name: str) -> None:
    assert getattr(summary(), name) == pytest.approx(NUMBERS[name])


def test_every_number_is_here() -> None:
    told = {field.name for field in msgspec.structs.fields(Summary)}
    assert told == {*NUMBERS, "fairness", "sla", "wait_causes", "tenants"}


def test_fairness() -> None:
    rhos = [10 / 20, 45 / IDEAL_2]
    progress = [20 / 10, IDEAL_2 / 45]
    assert msgspec.structs.asdict(summary().fairness) == pytest.approx(
        msgspec.structs.asdict(
            Fairness(
                jain=sum(progress) ** 2 / (2 * (progress[0] ** 2 + progress[1] ** 2)),
                worst_rho=rhos[1],
                mean_rho=sum(rhos) / 2,
            )
        ),
        rel=1e-4,
    )


def test_promises() -> None:
    """Both started within 10 s, only the first ended within its fair time."""
    assert summary().sla == Sla(
        target_start_s=10, target_rho=1, started_in_time=1, fair=0.5, both=0.5
    )


def test_waits_by_cause() -> None:
    """Only job 2 waited and completed: 0 to 10 and 20 to 25, with fewer than 3 free."""
    assert summary().wait_causes == WaitParts(capacity_s=15)


def test_waits_by_cause_are_the_queueing_delay() -> None:
    delay = summary().avg_queue_delay_s * summary().completed
    assert sum(msgspec.structs.astuple(summary().wait_causes)) == delay


def test_tenants() -> None:
    a, b = (msgspec.structs.asdict(block) for block in summary().tenants)
    zero = dict.fromkeys(
        ("completed", "failed", "timed_out", "cancelled", "censored", "unfinished"), 0
    )
    zero |= {"never_schedulable": 0, "preemptions": 0}
    assert a == {
        **zero,
        "tenant": "a",
        "jobs": 4,
        "completed": 1,
        "failed": 1,
        "cancelled": 1,
        "never_schedulable": 1,
        "device_h": 50 / 3600,
        "avg_jct_s": 10,
        **dict.fromkeys(("avg_queue_delay_s", "p50_queue_delay_s", "p90_queue_delay_s"), 0),
        "p99_queue_delay_s": 0,
        "avg_response_s": 0,
        "mean_rho": 0.5,
        "worst_rho": 0.5,
        "progress": 2,
        "wait_causes": WaitParts(),
    }
    assert b["progress"] == pytest.approx(IDEAL_2 / 45, rel=1e-4)
    assert b["mean_rho"] == b["worst_rho"] == pytest.approx(45 / IDEAL_2, rel=1e-4)
    assert b["device_h"] == 100 / 3600
    for name in ("progress", "mean_rho", "worst_rho", "device_h"):
        del b[name]
    assert b == {
        **zero,
        "tenant": "b",
        "jobs": 4,
        "completed": 1,
        "timed_out": 1,
        "censored": 1,
        "unfinished": 1,
        "avg_jct_s": 45,
        **dict.fromkeys(("avg_queue_delay_s", "p50_queue_delay_s", "p90_queue_delay_s"), 15),
        "p99_queue_delay_s": 15,
        "avg_response_s": 10,
        "preemptions": 1,
        "wait_causes": WaitParts(capacity_s=15),
    }
    assert {*a} == {field.name for field in msgspec.structs.fields(TenantBlock)}


@pytest.mark.parametrize("fate", ["completed", "failed", "timed_out", "cancelled"])
def test_tenants_add_up(fate: str) -> None:
    assert sum(getattr(block, fate) for block in summary().tenants) == NUMBERS[fate]
