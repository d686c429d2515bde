"""Whether objectives were met: what is a case of each, and how long it took."""

from msgspec.structs import replace

from allotment.metrics.objectives import Measured, ObjectiveCourse
from allotment.model import events as e
from allotment.model.amounts import amounts
from allotment.model.cells import CellShare, CellType, RootCell, Topology
from allotment.model.health import HardwareHealth, Source
from allotment.model.ids import AttemptNo, DeviceIndex, JobId, NodeId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.objectives import Objective, Objectives
from allotment.model.quantity import Instant, Millis, Resources
from allotment.model.spec import ArraySlice, Dependency, EndKind
from allotment.model.tenancy import Config, Queue, Tenant, Terms
from tests.support.builders import a_config, a_tenant
from tests.unit.metrics.history import History, a_spec

OWN, BORROWED = Entitlement.GUARANTEED, Entitlement.OPPORTUNISTIC
TEN = Objectives(Millis(10), Millis(10), 900_000)


def measured_by(tenant: Tenant, objectives: Objectives = TEN) -> Tenant:
    return replace(tenant, objectives=objectives)


def config(*tenants: Tenant, nodes: int = 2) -> Config:
    return a_config(
        *(tenants or (measured_by(a_tenant("t", 8)), a_tenant("u", 8))), nodes=nodes
    )


def a_log() -> History:
    return History().configure(config())


def of(log: History, what: Objective, *, end: int | None = None, since: int = 0) -> Measured:
    course = ObjectiveCourse(Instant(since))
    log.into(course)
    course.close(Instant(log.now if end is None else end))
    (row,) = [row for row in course.rows() if row.objective is what]
    return row


def wait(log: History, **when: int) -> Measured:
    return of(log, Objective.WAIT, **when)


def back(log: History, **when: int) -> Measured:
    return of(log, Objective.GUARANTEE_BACK, **when)


def reserve(log: History, job: int, *victims: int) -> History:
    return log.add(e.Reserved(JobId(job), (), OWN, tuple(JobId(v) for v in victims)))


def drop(log: History, job: int) -> History:
    return log.add(e.ReservedPlaceDropped(JobId(job)))


# ── the wait of a job within the guarantee ──────────────────────────────────────────────


def test_from_joining_the_line_to_its_place() -> None:
    log = a_log().at(5).submit(1, 8).at(15).place(1)
    found = wait(log)
    assert (found.cases, found.broken, found.worst, found.kept) == (1, 0, 10, True)
    log.at(20).succeed(1).submit(2, 8).at(31).place(2)
    found = wait(log)
    assert (found.cases, found.broken, found.worst, found.measured, found.p99) == (
        2, 1, 11, 11, 11,
    )  # fmt: skip
    assert [(job.job, job.name, job.ms, job.until) for job in found.jobs] == [
        (2, "job", 11, 31)
    ]
    assert not found.kept


def test_only_while_it_is_within_the_guarantee() -> None:
    log = a_log().submit(1, 6).place(1).submit(2, 4)  # 10 of 8: beyond it
    log.at(30).succeed(1).at(37).place(2)
    assert wait(log).worst == 7
    log = a_log().submit(1, 6).place(1).submit(2, 4).at(30).place(2, BORROWED)
    assert wait(log).cases == 1, "the other's alone"


def test_with_those_before_it_in_line() -> None:
    log = a_log().submit(1, 6).submit(2, 4).submit(3, 1)
    log.at(20).cancel(1).at(30).place(2).place(3)
    found = wait(log)
    assert {job.job: job.ms for job in found.jobs} == {1: 20}
    assert found.worst == 20
    assert found.cases == 3


def test_the_more_urgent_come_before() -> None:
    log = a_log().submit(1, 6).at(10).submit(2, 6, priority=200)
    log.at(50).place(2).at(60).place(1, BORROWED)
    assert {job.job: job.ms for job in wait(log).jobs} == {2: 40}
    assert wait(log).cases == 2


def test_what_can_never_be_within_holds_up_nobody() -> None:
    log = a_log().submit(1, 9).submit(2, 4, opportunistic=True).submit(3, 8)
    log.at(20).place(3).place(2, BORROWED).place(1, BORROWED)
    found = wait(log)
    assert ([job.job for job in found.jobs], found.cases) == ([3], 1)


def test_never_within_what_its_queue_is_guaranteed_it_holds_up_nobody() -> None:
    def owing(**parts: int) -> Config:
        queues = (Queue("default", terms=Terms(guaranteed=amounts(parts))), Queue("other"))
        return config(measured_by(replace(a_tenant("t", 8), queues=queues)))

    log = History().configure(owing(gpu=6000)).submit(1, 6, preemptible=False)
    # From here on its queue is guaranteed less than it needs: it can only wait.
    log.at(5).configure(owing(gpu=4000)).submit(2, 4).at(15).place(2)
    log.at(20).succeed(2).at(40).configure(owing(**{"gpu:A100": 6000})).at(43).place(1)
    assert (wait(log).cases, wait(log).worst) == (2, 10)
    assert wait(log, since=41).worst == 5 + 3
    log = History().configure(owing(gpu=4000))
    log.submit(1, 1, queue="other", preemptible=False).submit(2, 6).at(30).place(2)
    assert (wait(log, end=50).cases, wait(log, end=50).worst) == (1, 30)
    # Who may be preempted may also borrow from other queues.
    log = History().configure(owing(gpu=4000)).submit(1, 6).at(9).place(1)
    assert wait(log).worst == 9


def test_borrowed_use_takes_nothing_of_the_guarantee() -> None:
    log = a_log().submit(1, 8).place(1, BORROWED).submit(2, 8)
    log.at(4).promote(1).at(40).add(e.AttemptDemoted(JobId(1), AttemptNo(1), JobId(2)))
    log.at(44).place(2)
    assert wait(log).worst == 8


def test_suspended_it_keeps_only_memory() -> None:
    log = a_log().submit(1, 8).start(1).submit(2, 8).at(10).suspend(1).at(25).place(2)
    assert wait(log).worst == 15


def test_one_that_may_be_smaller_waits_for_the_least_and_uses_what_it_got() -> None:
    log = a_log().submit(1, 8).start(1).at(1)
    elastic = a_spec(2, tasks=4)
    elastic = replace(elastic, roles=(replace(elastic.roles[0], least=2),))
    log.add(e.JobSubmitted(JobId(2), elastic)).at(5).succeed(1).at(7)
    slots = tuple(Slot(NodeId(0), (2 * n, 2 * n + 1), 2000) for n in range(3))
    log.place(2, slots=slots).submit(3, 2).submit(4, 1).at(9).place(3)
    assert wait(log).worst == 2
    assert [job.job for job in wait(log, end=30).jobs] == []
    assert [job.job for job in wait(log.at(10).succeed(3), end=30).jobs] == [4]


def test_what_keeps_it_out_of_line_does_not_count() -> None:
    log = a_log().submit(1, 1, held=True).at(10).release(1).at(13).hold(1).at(50).release(1)
    log.at(52).place(1)
    assert wait(log).worst == 2
    log = a_log().submit(1, 1).place(1)
    log.submit(2, 1, depends_on=(Dependency(JobId(1), EndKind.ANY),))
    log.at(30).fail(1).at(32).place(2)
    assert wait(log).worst == 2
    log = a_log().submit(1, 1).start(1).at(5).end(1, e.Outcome.FAILED)
    log.requeue(1, not_before=40).at(43).place(1)
    assert wait(log).worst == 3
    log = a_log()
    for number in (1, 2):
        log.submit(number, 1, array=ArraySlice(number - 1, 2, JobId(1), max_running=1))
    log.at(2).place(1).at(50).succeed(1).at(51).place(2)
    assert (wait(log).worst, wait(log).cases) == (2, 2)


def test_a_wait_given_up_counts_only_if_it_was_too_long() -> None:
    log = a_log().submit(1, 1).at(9).cancel(1).submit(2, 1).at(29).cancel(2)
    found = wait(log)
    assert (found.cases, found.broken, [job.job for job in found.jobs]) == (1, 1, [2])
    log = a_log().submit(1, 1)
    assert wait(log, end=10).cases == 0
    assert [(job.ms, job.until) for job in wait(log, end=11).jobs] == [(11, 0)]


def test_a_user_at_the_cap_of_its_tenant_does_not_count() -> None:
    tenant = replace(measured_by(a_tenant("t", 8)), per_user=Resources(gpu_milli=2000))
    log = History().configure(config(tenant))
    log.submit(1, 2, user="ann").submit(2, 1, user="ann").at(3).place(1).at(20).succeed(1)
    assert wait(log.at(24)).worst == 3
    assert {job.job: job.ms for job in wait(log, end=40).jobs} == {2: 3 + 20}


def test_another_guarantee_is_judged_from_then_on() -> None:
    log = a_log().submit(1, 9).at(20)
    log.configure(config(measured_by(a_tenant("t", 9)))).at(25).place(1)
    assert wait(log).worst == 5


def test_only_what_ends_in_the_stretch_counts_and_that_in_full() -> None:
    log = a_log().submit(1, 1).at(20).place(1).submit(2, 1).at(40).place(2)
    assert [job.job for job in wait(log, since=30).jobs] == [2]
    assert [job.ms for job in wait(log, since=39).jobs] == [20]


# ── what was lent comes back ────────────────────────────────────────────────────────────


def lent() -> History:
    """Two jobs of another tenant's sit where job 3 has its place."""
    log = a_log().submit(1, 8, "u").place(1).submit(2, 4, "u").place(2, BORROWED)
    return log.at(100).submit(3, 8)


def test_from_asking_to_the_place() -> None:
    log = reserve(lent(), 3, 2).at(108).evict(2).at(109).place(3)
    assert (back(log).cases, back(log).worst, back(log).kept) == (1, 9, True)
    log = reserve(lent(), 3, 2).at(111).evict(2).place(3)
    assert [(job.job, job.ms) for job in back(log).jobs] == [(3, 11)]


def test_own_jobs_that_give_way_were_not_lent() -> None:
    log = a_log().submit(1, 8).place(1).at(5).submit(2, 8, priority=500)
    assert back(reserve(log, 2, 1).at(50).evict(1).place(2)).cases == 0


def test_a_reserved_place_made_anew_at_once_is_the_same_asking() -> None:
    log = reserve(drop(reserve(lent(), 3, 2).at(105), 3), 3, 2).at(115).evict(2).place(3)
    assert (back(log).cases, back(log).worst) == (1, 15)
    log = reserve(drop(reserve(lent(), 3, 2).at(105), 3).at(106), 3, 2).at(115).place(3)
    assert (back(log).cases, back(log).worst) == (1, 9)


def test_asking_that_ends_without_return_counts_if_it_lasted_too_long() -> None:
    assert back(reserve(lent(), 3, 2).at(105).cancel(3)).cases == 0
    assert back(reserve(lent(), 3, 2).at(115).cancel(3)).broken == 1
    assert back(reserve(lent(), 3, 2), end=110).cases == 0
    assert back(reserve(lent(), 3, 2), end=111).broken == 1


# ── availability ────────────────────────────────────────────────────────────────────────


def availability(log: History, end: int, since: int = 0) -> Measured:
    return of(log, Objective.AVAILABILITY, end=end, since=since)


def test_half_of_the_cluster_is_half_of_every_guarantee() -> None:
    log = a_log().at(40).drain(1).at(60)
    log.add(e.NodeUndrained(NodeId(1)))
    found = availability(log, 100)
    assert (found.measured, found.worst, found.p99) == (900_000, 500_000, 500_000)
    assert (found.kept, found.cases, found.broken) == (True, 1, 0)
    assert not availability(log, 99).kept
    assert availability(log, 100, since=60).measured == 1_000_000


def test_what_nobody_is_guaranteed_may_break() -> None:
    log = History().configure(config(measured_by(a_tenant("t", 4)))).lose(0)
    assert availability(log, 10).measured == 1_000_000


def test_broken_devices_and_nodes_count() -> None:
    def health(to: HardwareHealth, device: int | None) -> e.HealthChanged:
        was = HardwareHealth.HEALTHY
        index = None if device is None else DeviceIndex(device)
        return e.HealthChanged(NodeId(0), was, to, Source.PROBE, index)

    log = a_log().add(health(HardwareHealth.BAD, 3)).at(10)
    assert availability(log, 10).worst == 937_500
    log.add(health(HardwareHealth.SUSPECT, None)).at(20)
    log.add(health(HardwareHealth.HEALTHY, None), health(HardwareHealth.HEALTHY, 3))
    found = availability(log, 30)
    assert (found.worst, found.measured) == (500_000, (937_500 + 500_000 + 1_000_000) // 3)


def test_a_guarantee_of_processors_only() -> None:
    tenant = replace(a_tenant("t"), guaranteed=Resources(cpu_milli=128_000), objectives=TEN)
    log = History().configure(config(tenant)).lose(0)
    assert availability(log, 10).measured == 500_000


def test_cells_are_looked_at_by_their_kind() -> None:
    types = (
        CellType("a-node", "A100", 8, is_node=True),
        CellType("b-node", "A100", 8, is_node=True),
    )
    roots = (RootCell("a-node", "a0", (NodeId(0),)), RootCell("b-node", "b0", (NodeId(1),)))
    tenants = [
        measured_by(replace(a_tenant(name, 8), cells=(CellShare(kind, 1),)))
        for name, kind in (("t", "a-node"), ("u", "b-node"))
    ]
    cells = replace(config(*tenants), topology=Topology(types, roots))
    course = ObjectiveCourse()
    History().configure(cells).lose(0).into(course)
    course.close(Instant(10))
    found = {
        row.tenant: row.measured
        for row in course.rows()
        if row.objective is Objective.AVAILABILITY
    }
    assert found == {"t": 0, "u": 1_000_000}


def test_without_objectives_there_is_nothing_to_say() -> None:
    course = ObjectiveCourse()
    History().configure(a_config(a_tenant("t", 8))).submit(1).into(course)
    course.close(Instant(10))
    assert course.rows() == ()
