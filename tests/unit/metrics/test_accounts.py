"""Who held how much: guaranteed and borrowed apart, and what evictions threw away."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from allotment.metrics.accounts import LATEST_MS, Accounts, Holding, Sums
from allotment.metrics.usage import Usage
from allotment.model import events as e
from allotment.model.cluster import Device
from allotment.model.diagnosis import Exit, GpuUse
from allotment.model.diagnosis import Usage as Usage_
from allotment.model.ids import AttemptNo, DeviceIndex, JobId, NodeId, TaskIndex
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import Instant, Millis, Resources
from allotment.model.spec import TaskRole
from tests.support.builders import a_config, a_tenant
from tests.unit.metrics.history import History, a_spec

OWN, BORROWED = Entitlement.GUARANTEED, Entitlement.OPPORTUNISTIC


def on(*devices: int, node: int = 0) -> tuple[Slot, ...]:
    return (Slot(NodeId(node), devices, 1000 * len(devices)),)


def a_log() -> History:
    return History().configure(a_config(a_tenant("t", 8), nodes=2))


def of(log: History, *by: str, end: int | None = None) -> dict[Holding, Sums]:
    accounts = Accounts(frozenset(by))
    log.into(accounts)
    accounts.close(Instant(log.now if end is None else end))
    return accounts.rows


def only(rows: dict[Holding, Sums]) -> Sums:
    (sums,) = rows.values()
    return sums


def test_from_placing_to_the_end_of_the_attempt() -> None:
    log = a_log().submit(1, 2).at(5).place(1, slots=on(0, 1)).at(8).begin(1).at(20).succeed(1)
    sums = only(of(log, "tenant"))
    assert (sums.jobs, sums.gpu_guaranteed, sums.gpu_borrowed) == (1, 2000 * 15, 0)


def test_promoted_and_demoted_it_goes_to_the_other_account() -> None:
    log = a_log().submit(1).place(1, BORROWED, on(0)).begin(1).at(10).promote(1).at(15)
    log.add(e.AttemptDemoted(JobId(1), AttemptNo(1), JobId(2))).at(35).succeed(1)
    sums = only(of(log, "tenant"))
    assert (sums.gpu_guaranteed, sums.gpu_borrowed) == (1000 * 5, 1000 * 30)


def test_suspension_does_not_count_and_what_still_runs_does() -> None:
    log = a_log().submit(1).place(1, slots=on(0)).begin(1).at(10).suspend(1).at(50).resume(1)
    assert only(of(log.at(60))).gpu_guaranteed == 1000 * 20
    assert only(of(log, end=70)).gpu_guaranteed == 1000 * 30


def test_an_eviction_costs_what_was_not_saved() -> None:
    log = a_log().submit(1, 2).place(1, BORROWED, on(0, 1)).at(10).begin(1).at(100)
    attempt = JobId(1), AttemptNo(1)
    log.add(e.AttemptEnded(*attempt, e.Outcome.EVICTED, lost_ms=Millis(40)))
    log.add(e.JobRequeued(JobId(1), "evicted")).at(200).place(1, OWN, on(0, 1)).at(230).succeed(
        1
    )
    sums = only(of(log, "job"))
    assert (sums.jobs, sums.evictions) == (1, 1)
    assert (sums.gpu_borrowed, sums.gpu_guaranteed) == (2000 * 100, 2000 * 30)
    assert sums.gpu_lost == 2000 * 40


def test_nothing_is_lost_by_eviction_when_a_job_fails_or_did_not_begin() -> None:
    log = a_log().submit(1).place(1, slots=on(0)).begin(1).at(9).fail(1)
    log.submit(2).place(2, slots=on(1)).at(20)
    log.add(e.AttemptEnded(JobId(2), AttemptNo(1), e.Outcome.EVICTED, lost_ms=Millis(5)))
    sums = only(of(log))
    assert (sums.gpu_lost, sums.evictions, sums.jobs) == (0, 1, 2)


def test_cpu_only_and_mixed_gangs_by_type() -> None:
    config = a_config(a_tenant("t", 8))
    mixed = tuple(Device(DeviceIndex(i), "A" if i < 2 else "B") for i in range(4))
    config = replace(config, nodes=(replace(config.nodes[0], devices=mixed),))
    log = History().configure(config)
    roles = (
        TaskRole("gpu", 2, "true", Resources(gpu_milli=1000, cpu_milli=3000)),
        TaskRole("cpu", 1, "true", Resources(cpu_milli=500)),
    )
    log.rewrite(1, a_spec())  # of a job that is not known: no matter
    log.add(e.JobSubmitted(JobId(1), replace(a_spec(), roles=roles)))
    slots = (*on(1), *on(2), Slot(NodeId(0)))
    log.place(1, slots=slots).at(10).succeed(1)
    rows = {key.type: sums for key, sums in of(log, "type").items()}
    assert {kind: (s.gpu_guaranteed, s.cpu_guaranteed) for kind, s in rows.items()} == {
        "A": (1000 * 10, 3000 * 10),
        "B": (1000 * 10, 3000 * 10),
        "": (0, 500 * 10),
    }
    assert [sums.jobs for sums in rows.values()] == [1, 1, 1]
    assert only(of(log, "tenant")).jobs == 1


def test_what_tasks_used_counts_when_they_end_with_the_type_of_their_first_device() -> None:
    log = a_log().submit(1, 1, tasks=2).place(1, slots=(*on(0), *on(1))).begin(1).at(5000)
    usage = Usage_(cpu_user_ms=Millis(900), cpu_system_ms=Millis(100))
    for index in (0, 1):
        ended = e.TaskEnded(JobId(1), AttemptNo(1), TaskIndex(index), Exit(0, usage=usage))
        log.add(ended)
    log.add(e.TaskEnded(JobId(9), AttemptNo(1), TaskIndex(0), Exit(0, usage=usage)))
    rows = of(log.succeed(1), "type")
    assert {key.type: sums.cpu_used for key, sums in rows.items()} == {"A100": 1000 * 2000}
    assert only(of(a_log().submit(1).place(1, slots=on(0)).at(9).succeed(1))).cpu_used == 0


def test_use_of_devices_counts_where_it_is_known_at_the_end_or_some_time_later() -> None:
    log = a_log().submit(1, 2, tasks=3).place(1, slots=(*on(0, 1), *on(2, 3), *on(4, 5)))
    log.begin(1).at(5000)
    ran, attempt = Millis(4000), (JobId(1), AttemptNo(1))
    seen = Usage_(wall_ms=ran, gpu=GpuUse(busy_milli=500))
    log.add(e.TaskEnded(*attempt, TaskIndex(0), Exit(0, usage=seen)))
    for index in (1, 2):
        log.add(e.TaskEnded(*attempt, TaskIndex(index), Exit(0, usage=Usage_(wall_ms=ran))))
    log.succeed(1)
    for index in (1, 1, 7):  # Said again, or of nothing known, it counts no more.
        log.add(e.TaskMeasured(*attempt, TaskIndex(index), GpuUse(busy_milli=9000)))
    sums = only(of(log))
    assert (sums.gpu_seen, sums.gpu_busy) == (2 * 2000 * ran, (500 + 2000) * ran)
    log.at(log.now + LATEST_MS).submit(2).place(2, slots=on(0)).begin(2)
    log.add(e.TaskEnded(JobId(2), AttemptNo(1), TaskIndex(0), Exit(0)))
    log.add(e.TaskMeasured(*attempt, TaskIndex(2), GpuUse(busy_milli=9000)))
    assert only(of(log)).gpu_seen == 2 * 2000 * ran


@pytest.mark.parametrize(
    ("by", "row"),
    [
        (("tenant",), Holding(tenant="t")),
        (("queue",), Holding(tenant="t", queue="night")),
        (("user",), Holding(user="ann")),
        (("type",), Holding(type="A100")),
        (("tenant", "user"), Holding(tenant="t", user="ann")),
        (("job",), Holding("t", "night", "ann", 1, "job")),
        ((), Holding()),
    ],
)
def test_what_a_row_is_about(by: tuple[str, ...], row: Holding) -> None:
    log = a_log().submit(1, user="ann", queue="night").place(1, slots=on(0)).at(10).succeed(1)
    assert list(of(log, *by)) == [row]


def test_jobs_that_hold_nothing_have_no_row() -> None:
    log = a_log().submit(1).at(5).cancel(1).submit(2).place(2, slots=on(0)).succeed(2)
    assert of(log, "job") == {}


def moves() -> Iterator[Any]:
    """Twelve jobs, one after the other, as both folds see them."""
    for job in range(1, 13):
        yield job, 1 + job % 3, OWN if job % 2 else BORROWED


def test_it_sums_up_to_what_is_in_use() -> None:
    """Where devices are given out whole, in every instant."""
    log = a_log()
    for job, gpus, entitlement in moves():
        log.submit(job, gpus).at(log.now + 3)
        log.place(job, entitlement, on(*range(gpus), node=job % 2)).at(log.now + 7).begin(job)
        log.at(log.now + 11)
        if job % 4 == 0:
            log.evict(job)
        elif job % 5 == 0:
            log.suspend(job)
        else:
            log.succeed(job)
    usage = Usage()
    log.into(usage)
    for by in ((), ("tenant",), ("job",), ("type", "user")):
        rows = of(log, *by).values()
        assert sum(s.gpu_guaranteed + s.gpu_borrowed for s in rows) == usage.totals().busy
