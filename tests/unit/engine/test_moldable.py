"""Gangs that start with as many tasks as there is room for, from submission to the end."""

import pytest

from allotment.engine.completion import Verdict, judge
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.errors import Code, Rejected
from allotment.model.ids import JobId, NodeId, TaskIndex, TaskKey
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Resources
from allotment.model.reasons import Reason
from allotment.model.reports import NodeReport
from allotment.model.spec import TaskRole
from allotment.model.tenancy import QueueOrder
from tests.support.builders import JobBuilder, a_config, a_job, a_tenant, gpus
from tests.support.cells import a_cell_world
from tests.support.world import World

CELLS = """\
hardware: [2 x dgx-v100]
tenants:
  vision: {cells: {dgx-v100-node: 1}}
  guest: {}
"""


def between(least: int, most: int, each: float = 1) -> JobBuilder:
    return a_job().gpus(each).between(least, most)


def size(world: World, job: JobId) -> int:
    attempt = world.job(job).attempt
    return len(attempt.slots) if attempt else 0


def grounds(world: World, job: JobId) -> Entitlement:
    return world.job(job).attempts[-1].entitlement


def test_it_starts_with_what_there_is_room_for() -> None:
    world = World(a_config(a_tenant("vision", 8)))
    world.submit(a_job().gpus(3))
    job = world.submit(between(2, 8))
    world.cycle()
    assert size(world, job) == 5
    placed = [r.event for r in world.log if isinstance(r.event, e.AttemptPlaced)]
    assert len(placed[-1].slots) == 5
    world.runs(job)
    world.ends(job)
    assert world.is_(job) is JobState.SUCCEEDED


def test_it_waits_for_its_least_and_for_no_more() -> None:
    world = World(a_config(a_tenant("vision", 8)))
    first = world.submit(a_job().gpus(7))
    job = world.submit(between(2, 8))
    world.cycle()
    assert size(world, job) == 0
    blocked = world.why(job)
    assert blocked.reason is Reason.CAPACITY
    assert "once there is room for 2 of its 8 tasks" in blocked.message
    assert blocked.need is not None
    assert blocked.need.gpu_milli == 2000
    world.runs(first)
    world.ends(first)
    world.cycle()
    assert size(world, job) == 8


def test_it_never_becomes_a_borrower_to_be_larger() -> None:
    world = World(a_config(a_tenant("vision", 4), a_tenant("nlp", 4)))
    own = world.submit(between(2, 8))
    world.cycle()
    assert (size(world, own), grounds(world, own)) == (4, Entitlement.GUARANTEED)
    more = world.submit(between(2, 8))
    world.cycle()
    assert (size(world, more), grounds(world, more)) == (4, Entitlement.OPPORTUNISTIC)


def test_others_are_sent_away_for_the_least_alone_and_what_they_leave_is_used() -> None:
    world = World(a_config(a_tenant("vision", 8), a_tenant("nlp")))
    borrowers = [world.submit(a_job().of("nlp").gpus(4)) for _ in range(2)]
    world.cycle()
    job = world.submit(between(2, 8))
    world.cycle()
    stopping = [b for b in borrowers if world.is_(b) is JobState.STOPPING]
    assert len(stopping) == 1
    assert len(world.state.cluster.reserved[job].slots) == 2
    world.ends(stopping[0], 143)
    world.cycle()
    assert size(world, job) == 4
    assert grounds(world, job) is Entitlement.GUARANTEED


def test_groups_stay_whole() -> None:
    world = World(a_config(a_tenant("vision", 16), nodes=2))
    world.submit(a_job().gpus(3))
    job = world.submit(between(2, 16).grouped(2, "node"))
    world.cycle()
    assert size(world, job) == 12


def test_a_user_gets_no_more_than_the_cap() -> None:
    tenant = a_tenant("vision", 8)
    tenant = type(tenant)(
        tenant.name, tenant.guaranteed, tenant.queues, per_user=Resources(gpu_milli=5000)
    )
    world = World(a_config(tenant))
    job = world.submit(between(2, 8))
    world.cycle()
    assert size(world, job) == 5
    with pytest.raises(Rejected) as caught:
        world.submit(between(6, 8))
    assert caught.value.code is Code.NEVER_FITS


def test_what_can_never_start_is_judged_by_the_least() -> None:
    world = World(a_config(a_tenant("vision", 8)))
    world.submit(between(8, 100))
    with pytest.raises(Rejected, match=r"its 9 task\(s\) need"):
        world.submit(between(9, 100))


def test_a_job_that_passes_a_blocked_job_takes_its_least() -> None:
    world = World(a_config(a_tenant("vision", 16, order=QueueOrder.EASY)))
    running = world.submit(a_job().gpus(4).within(run_ms=100_000))
    world.cycle()
    world.runs(running)
    world.submit(a_job().gpus(8).within(run_ms=1000))
    job = world.submit(between(1, 4).within(run_ms=1000))
    world.cycle()
    assert size(world, job) == 1


def test_a_role_before_it_keeps_its_number() -> None:
    world = World(a_config(a_tenant("vision", 8)))
    need = gpus(1)
    spec = a_job().gpus(1).tasks(2).also(
        TaskRole("worker", 9, "true", Resources(need.gpu_milli, 1000, 1), least=2)
    )  # fmt: skip
    job = world.submit(spec)
    world.cycle()
    assert size(world, job) == 8
    roles = world.job(job).running_as.roles
    assert [role.count for role in roles] == [2, 6]


def test_it_is_judged_by_the_tasks_it_has() -> None:
    world = World(a_config(a_tenant("vision", 3)))
    job = world.submit(between(2, 8))
    world.cycle()
    world.runs(job)
    record = world.job(job)
    attempt = record.attempts[-1]
    for index in range(2):
        world.task_ends(TaskKey(job, attempt.no, TaskIndex(index)))
    assert judge(record, attempt) is Verdict.OPEN
    world.task_ends(TaskKey(job, attempt.no, TaskIndex(2)))
    assert world.is_(job) is JobState.SUCCEEDED


def test_each_attempt_has_a_size_of_its_own() -> None:
    world = World(a_config(a_tenant("vision", 16), nodes=2))
    job = world.submit(between(2, 16))
    world.cycle()
    assert size(world, job) == 16
    world.runs(job)
    world.tell(NodeReport(NodeId(1), alive=False))
    for key in world.job(job).task_keys():
        if key.index < 8:
            world.task_ends(key, 143)
    world.wait(60_000)
    world.cycle()
    assert size(world, job) == 8
    assert [len(attempt.slots) for attempt in world.job(job).attempts] == [16, 8]


def test_a_suspended_one_comes_back_as_it_was() -> None:
    world = World(a_config(a_tenant("vision", 8)))
    world.submit(a_job().gpus(3))
    job = world.submit(between(2, 8))
    world.cycle()
    world.runs(job)
    world.do(c.SuspendJob(job))
    world.do(c.ResumeJob(job))
    world.cycle()
    assert world.is_(job) is JobState.RUNNING
    assert size(world, job) == 5


# ── cells ───────────────────────────────────────────────────────────────────────────────


def test_in_cells_it_takes_what_its_tenant_owns() -> None:
    world = a_cell_world(CELLS)
    job = world.submit(between(2, 6, 2))
    world.cycle()
    assert (size(world, job), grounds(world, job)) == (4, Entitlement.GUARANTEED)
    guest = world.submit(between(2, 16).of("guest"))
    world.cycle()
    assert (size(world, guest), grounds(world, guest)) == (8, Entitlement.OPPORTUNISTIC)


def test_in_cells_borrowers_go_for_the_least_alone() -> None:
    world = a_cell_world(CELLS)
    borrowers = [world.submit(a_job().of("guest").gpus(4)) for _ in range(4)]
    world.cycle()
    job = world.submit(between(2, 16))
    world.cycle()
    assert len(world.state.cluster.reserved[job].slots) == 2
    gone = [b for b in borrowers if world.is_(b) is JobState.STOPPING]
    assert len(gone) == 1
    world.ends(gone[0], 143)
    world.cycle()
    # It has what it was promised: another place could cost others what they are guaranteed.
    assert (size(world, job), grounds(world, job)) == (2, Entitlement.GUARANTEED)


def test_in_cells_larger_than_its_own_it_borrows() -> None:
    world = a_cell_world(CELLS)
    job = world.submit(between(9, 20))
    world.cycle()
    assert (size(world, job), grounds(world, job)) == (16, Entitlement.OPPORTUNISTIC)
