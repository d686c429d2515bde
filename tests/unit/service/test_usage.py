"""Who had how much of a stretch of the log, in the same numbers as the statistics."""

import pytest

from allotment.model import events as e
from allotment.model.errors import Rejected
from allotment.model.ids import AttemptNo, JobId, NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import HOUR, Instant
from allotment.service import usage
from allotment.service.statistics import statistics_of
from allotment.service.usage import by_of, usage_of
from allotment.service.usage_view import By, UsageReport
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
ON_TWO = (Slot(NodeId(0), (0, 1), 2000),)


def of(log: History, since: int, until: int, *by: By) -> UsageReport:
    return usage_of(log.records, Instant(since), Instant(until), 0, by or (By.TENANT,))


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las"])
def test_it_agrees_with_the_statistics_of_every_stretch(policy: str) -> None:
    log: list[e.Record] = []
    settings = Settings(start_ms=1500, resume_ms=2500, stop_ms=500)
    simulate(Scenario(a_trace(ROWS), cluster_of("1x8"), policy, settings), tap=log.extend)
    first, last = log[0].at, log[-1].at
    middle = Instant((first + last) // 2)
    for since, until in ((first, last), (middle, last), (first, middle), (first, last + HOUR)):
        numbers = statistics_of(log, since, Instant(until))
        found = usage_of(log, since, Instant(until), 0, (By.JOB, By.TYPE))
        length = numbers.until - numbers.since
        busy = numbers.in_use * numbers.capacity_milli / 1000 * length / HOUR
        assert found.total.gpu_h == pytest.approx(busy)
        assert found.total.gpu_h == pytest.approx(sum(row.gpu_h for row in found.rows))
        assert found.capacity_gpu_h == pytest.approx(
            numbers.capacity_milli / 1000 * length / HOUR
        )
        assert found.total.evictions == numbers.numbers.preemptions


def test_a_job_that_was_there_before_counts_from_then_on() -> None:
    log = History().configure(a_config(a_tenant("t", 8)))
    log.submit(1, 2, user="ann").place(1, slots=ON_TWO).begin(1).at(4 * HOUR).evict(1)
    (row,) = of(log, HOUR, 3 * HOUR, By.TYPE, By.USER).rows
    assert (row.type, row.user, row.jobs, row.gpu_h, row.evictions) == (
        "A100",
        "ann",
        1,
        4,
        0,
    )
    (row,) = of(log, HOUR, 5 * HOUR).rows
    assert (row.gpu_h, row.gpu_h_guaranteed, row.evictions) == (6, 6, 1)


def test_parts_of_a_device_that_were_there_before() -> None:
    """Two halves of one device: half an hour each of usage, an hour of the device in use."""
    log = History().configure(a_config(a_tenant("t", 8)))
    for job in (1, 2):
        log.submit(job, 0.5).place(job, slots=(Slot(NodeId(0), (3,), 500),)).begin(job)
    log.at(4 * HOUR).succeed(1).succeed(2)
    assert [row.gpu_h for row in of(log, HOUR, 2 * HOUR, By.JOB).rows] == [0.5, 0.5]
    numbers = statistics_of(log.records, Instant(HOUR), Instant(2 * HOUR))
    assert numbers.in_use == 1 / 8


def test_a_demotion_before_the_stretch_holds_in_it() -> None:
    log = History().configure(a_config(a_tenant("t", 8)))
    log.submit(1, 2).place(1, slots=ON_TWO).begin(1).at(HOUR)
    log.add(e.AttemptDemoted(JobId(1), AttemptNo(1), JobId(2))).at(4 * HOUR).succeed(1)
    (row,) = of(log, 2 * HOUR, 3 * HOUR).rows
    assert (row.gpu_h_guaranteed, row.gpu_h_borrowed) == (0, 2)
    (row,) = of(log, 0, 5 * HOUR).rows
    assert (row.gpu_h_guaranteed, row.gpu_h_borrowed) == (2, 6)


def test_who_has_most_comes_first() -> None:
    log = History().configure(a_config(a_tenant("a", 4), a_tenant("b", 4)))
    log.submit(1, 2, "a").place(1, slots=ON_TWO).at(HOUR).succeed(1)
    log.submit(2, 2, "b").place(2, slots=ON_TWO).at(3 * HOUR).succeed(2)
    found = of(log, 0, 4 * HOUR)
    assert [(row.tenant, row.gpu_h) for row in found.rows] == [("b", 4), ("a", 2)]
    assert (found.total.gpu_h, found.total.jobs, found.total.tenant) == (6, 2, "")
    assert found.capacity_gpu_h == 32
    assert of(log, 3 * HOUR + 1, 4 * HOUR).rows == ()


def test_too_many_rows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MOST_ROWS", 1)
    log = History().configure(a_config(a_tenant("t", 8)))
    for job in (1, 2, 3):
        log.submit(job, 2).place(job, slots=ON_TWO).at(log.now + 10).succeed(job)
    assert of(log, 0, 99).total.jobs == 3
    with pytest.raises(Rejected, match="too many"):
        of(log, 0, 99, By.JOB)


def test_reading_what_rows_are_about() -> None:
    assert by_of("tenant, user,tenant") == (By.TENANT, By.USER)
    for text in ("", "colour", "tenant,,user"):
        with pytest.raises(Rejected, match="cannot be grouped by"):
            by_of(text)
