"""Numbers of the service's own history: the simulator's, and of a stretch of it."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from allotment.metrics.summary import WaitParts
from allotment.model import events as e
from allotment.model.errors import Rejected
from allotment.model.ids import JobId, NodeId
from allotment.model.quantity import Instant
from allotment.service import statistics
from allotment.service.statistics import statistics_of
from allotment.service.statistics_view import Statistics
from allotment.sim.cluster import cluster_of
from allotment.sim.run import simulate
from allotment.sim.scenario import Scenario
from allotment.sim.settings import Settings
from tests.support.builders import a_config, a_tenant
from tests.support.sim import a_trace
from tests.unit.metrics.history import History

S = 1000
ROWS = [(place * 7 * S, 1 + place % 5, (3 + place * 11 % 60) * S) for place in range(120)]
"""Submission, devices and run time: more than eight devices can bear at once."""


def of(log: History, since: int = 0, until: int = 1 << 40, next_job: int = 0) -> Statistics:
    return statistics_of(log.records, Instant(since), Instant(until), next_job)


def the_log(policy: str) -> list[e.Record]:
    """Play the rows, and give what was recorded."""
    log: list[e.Record] = []
    settings = Settings(start_ms=1500, resume_ms=2500, stop_ms=500)
    simulate(Scenario(a_trace(ROWS), cluster_of("1x8"), policy, settings), tap=log.extend)
    return log


def a_log() -> History:
    return History().configure(a_config(a_tenant("a", 4), a_tenant("b", 4)))


@pytest.mark.parametrize("policy", ["fifo", "backfill", "srtf", "las"])
def test_service_and_simulator_give_the_same_numbers_for_the_same_log(policy: str) -> None:
    log: list[e.Record] = []

    def tap(records: Sequence[e.Record]) -> None:
        log.extend(records)

    settings = Settings(start_ms=1500, resume_ms=2500)
    scenario = Scenario(a_trace(ROWS), cluster_of("1x8"), policy, settings)
    run = simulate(scenario, tap=tap)
    assert run.summary is not None
    assert run.summary.completed == len(ROWS)
    found = statistics_of(log, log[0].at, log[-1].at)
    assert found.numbers == run.summary
    assert found.events == len(log)
    assert found.capacity_milli == run.capacity_milli


@pytest.mark.parametrize("policy", ["fifo", "srtf"])
def test_stretches_add_up_to_the_whole(policy: str) -> None:
    log = the_log(policy)
    first, last = log[0].at, log[-1].at
    cuts = [first, *range(first + 97_003, last, 150_011), last]
    parts = [
        statistics_of(log, Instant(since), Instant(until)) for since, until in pairwise(cuts)
    ]
    whole = statistics_of(log, first, last)
    held = sum(part.in_use * (part.until - part.since) for part in parts)
    assert held == pytest.approx(whole.in_use * (last - first))
    assert sum(part.numbers.device_h for part in parts) == pytest.approx(whole.numbers.device_h)
    assert sum(part.numbers.preemptions for part in parts) == whole.numbers.preemptions
    assert max(part.numbers.peak_waiting_jobs for part in parts) == (
        whole.numbers.peak_waiting_jobs
    )
    for part, later in pairwise(parts):
        assert later.carried == part.numbers.unfinished


def test_a_job_that_was_there_counts_from_then_on() -> None:
    log = a_log().submit(1, 2, "a").start(1).at(40 * S).submit(2, 8, "b")
    log.at(100 * S).succeed(1).start(2).at(130 * S).succeed(2)
    found = of(log, since=60 * S, until=160 * S)
    assert (found.since, found.carried, found.numbers.jobs) == (60 * S, 2, 2)
    assert found.numbers.p50_queue_delay_s == 0
    assert found.numbers.p99_queue_delay_s == 40, "not what it waited before"
    assert found.numbers.avg_jct_s == (40 + 70) / 2
    assert found.numbers.wait_causes == WaitParts(capacity_s=40)
    assert found.in_use == (40 * 2 + 30 * 8) / (100 * 8)
    assert [(s.tenant, s.guaranteed_milli, s.mean_milli) for s in found.shares] == [
        ("a", 4000, 800),
        ("b", 4000, 2400),
    ]


def test_what_runs_on_is_counted_up_to_the_end() -> None:
    log = a_log().submit(1, 2, "a").start(1).at(900 * S).succeed(1)
    found = of(log, until=100 * S)
    assert found.numbers.device_h == 2 * 100 / 3600
    assert (found.numbers.completed, found.numbers.unfinished) == (0, 1)
    assert found.in_use == 0.25


def test_how_jobs_stand_when_a_stretch_begins() -> None:
    """Suspended, between two attempts, held, waiting for another, gone before."""
    log = a_log().submit(1, 1, "a").start(1).at(5 * S).suspend(1)
    log.submit(2, 1, "a").start(2).at(6 * S).evict(2).hold(2)
    log.submit(3, 1, "a", held=True).submit(4, 1, "a").start(4).at(8 * S).succeed(4)
    log.at(20 * S).resume(1).at(30 * S).succeed(1).release(2).start(2).at(35 * S).succeed(2)
    found = of(log, since=10 * S, until=50 * S)
    assert (found.carried, found.numbers.jobs, found.numbers.preemptions) == (3, 3, 0)
    assert found.numbers.device_h == pytest.approx((10 + 5) / 3600)
    assert found.numbers.wait_causes.own_s == 20
    assert found.numbers.avg_waiting_jobs == 0


def test_drained_nodes_are_closed_from_the_beginning_on() -> None:
    log = History().configure(a_config(a_tenant("a", 8), nodes=2)).at(5).drain(0)
    log.at(10 * S).submit(1, 8, "a").start(1).at(20 * S).succeed(1)
    assert of(log, since=10 * S, until=20 * S).numbers.fragmentation == 0
    log.at(30 * S).submit(2, 8, "a").at(40 * S).add(e.NodeUndrained(NodeId(0)))
    assert of(log, since=30 * S, until=39 * S).numbers.stranded == 0.5


def test_every_tenant_is_there_and_a_gone_one_too() -> None:
    log = a_log().submit(1, 1, "old").start(1).at(10).succeed(1)
    names = [(share.tenant, share.guaranteed_milli) for share in of(log, until=20).shares]
    assert names == [("a", 4000), ("b", 4000), ("old", 0)]


def test_what_was_forgotten_ended_before_the_oldest_end_there_is() -> None:
    log = a_log().at(10).submit(1, 1, "a").start(1).at(20).submit(4, 1, "a").start(4)
    log.at(50).succeed(4).at(60).succeed(1).submit(7, 1, "a")
    found = of(log, until=100, next_job=9)
    assert (found.forgotten, found.known_since) == (2 + 2 + 1, 50)
    assert of(log, until=30, next_job=9).known_since == 50, "however little is asked for"


def test_ids_that_were_skipped_are_no_jobs() -> None:
    log = a_log().submit(1, 1, "a").start(1).add(e.JobIdsSkipped(JobId(7))).at(9).succeed(1)
    log.submit(7, 1, "a")
    found = of(log, until=10, next_job=8)
    assert (found.forgotten, found.known_since) == (0, 0)


def test_an_empty_log() -> None:
    found = of(History(), since=5, until=10)
    assert (found.since, found.until, found.numbers.jobs, found.shares) == (5, 10, 0, ())


def test_too_many_jobs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MOST_JOBS", 2)
    log = a_log().submit(1).submit(2).submit(3).at(5).submit(4)
    with pytest.raises(Rejected, match="shorter period"):
        of(log)
    assert of(log, until=0, next_job=5).numbers.jobs == 3
