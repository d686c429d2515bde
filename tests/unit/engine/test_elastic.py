"""Elastic gangs give up their surplus tasks before any gang goes whole."""

import pytest

from allotment.engine.react import pending_effects
from allotment.model import commands as c
from allotment.model import effects as f
from allotment.model import events as e
from allotment.model.errors import Rejected
from allotment.model.ids import JobId, NodeId, TaskIndex, TaskKey
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import JobState
from allotment.model.reports import NodeReport
from tests.support.builders import JobBuilder, a_config, a_job, a_tenant
from tests.support.cells import a_cell_world
from tests.support.world import World

CELLS = """\
hardware: [2 x dgx-v100]
tenants:
  vision: {cells: {dgx-v100-node: 1}, preempt: evict}
  guest: {}
"""


def elastic(least: int, most: int, each: float = 1) -> JobBuilder:
    return a_job().gpus(each).between(least, most, elastic=True)


def lent() -> World:
    """Vision owns eight devices, nlp none."""
    return World(a_config(a_tenant("vision", 8), a_tenant("nlp")))


def running(world: World, builder: JobBuilder) -> JobId:
    job = world.submit(builder)
    world.cycle()
    world.runs(job)
    return job


def size(world: World, job: JobId) -> int:
    attempt = world.job(job).attempt
    return len(attempt.slots) if attempt else 0


def surplus_ends(world: World, job: JobId) -> None:
    """Those who were told to stop as surplus are gone."""
    attempt = world.job(job).attempts[-1]
    assert attempt.shrink is not None
    for index in range(attempt.shrink.tasks, len(attempt.slots)):
        world.task_ends(TaskKey(job, attempt.no, TaskIndex(index)), 143)


def stops(world: World) -> list[TaskKey]:
    return [effect.key for effect in world.effects if isinstance(effect, f.StopTask)]


def test_surplus_goes_and_the_rest_runs_on() -> None:
    world = lent()
    borrower = running(world, elastic(2, 8).of("nlp").checkpointing())
    assert size(world, borrower) == 8
    owner = world.submit(a_job().gpus(3))
    world.effects.clear()
    world.cycle()
    shrink = next(r.event for r in world.log if isinstance(r.event, e.ShrinkRequested))
    assert (shrink.tasks, shrink.signal, shrink.grace_ms) == (5, "USR1", 3000)
    assert shrink.wanted_by == owner
    assert isinstance(world.effects[0], f.TellSize), "those who stay know first"
    assert [key.index for key in stops(world)] == [5, 6, 7]
    assert world.is_(borrower) is JobState.RUNNING
    assert "3 surplus tasks" in world.why(owner).message
    surplus_ends(world, borrower)
    world.cycle()
    assert (size(world, borrower), size(world, owner)) == (5, 1)
    assert world.job(borrower).evictions == 0
    world.ends(borrower)
    assert world.is_(borrower) is JobState.SUCCEEDED


def test_a_whole_gang_goes_only_where_surplus_is_not_enough() -> None:
    world = lent()
    whole = running(world, a_job().of("nlp").gpus(4))
    borrower = running(world, elastic(2, 8).of("nlp"))
    assert size(world, borrower) == 4
    small = world.submit(a_job().gpus(2))
    world.cycle()
    assert world.is_(whole) is JobState.RUNNING
    surplus_ends(world, borrower)
    world.cycle()
    assert (size(world, small), size(world, borrower)) == (1, 2)
    world.submit(a_job().gpus(3))
    world.cycle()
    assert world.job(borrower).attempts[-1].shrink is None
    leaving = [job for job in (whole, borrower) if world.is_(job) is JobState.STOPPING]
    assert len(leaving) == 1


def test_no_more_surplus_goes_than_is_needed() -> None:
    world = World(a_config(a_tenant("vision", 16), a_tenant("nlp"), nodes=2))
    first = running(world, elastic(1, 8).of("nlp"))
    second = running(world, elastic(1, 8).of("nlp"))
    world.submit(a_job().gpus(1).tasks(9))
    world.cycle()
    kept = [world.job(job).attempts[-1].staying for job in (first, second)]
    assert sum(kept) == 7


def test_a_job_that_is_only_moldable_goes_whole() -> None:
    world = lent()
    borrower = running(world, a_job().gpus(1).between(2, 8).of("nlp"))
    world.submit(a_job().gpus(1))
    world.cycle()
    assert world.is_(borrower) is JobState.STOPPING


def test_a_job_that_has_not_got_to_run_goes_whole() -> None:
    world = lent()
    borrower = world.submit(elastic(2, 8).of("nlp"))
    world.cycle()
    world.submit(a_job().gpus(1))
    world.cycle()
    assert world.is_(borrower) is JobState.STOPPING


def test_the_ends_of_surplus_tasks_are_no_failures() -> None:
    world = lent()
    borrower = running(world, elastic(2, 8).of("nlp"))
    world.submit(a_job().gpus(3))
    world.cycle()
    attempt = world.job(borrower).attempts[-1]
    world.task_ends(TaskKey(borrower, attempt.no, TaskIndex(7)), 1)
    assert attempt.stop is None
    for index in range(5):
        world.task_ends(TaskKey(borrower, attempt.no, TaskIndex(index)))
    assert world.is_(borrower) is JobState.STOPPING, "it is done; the last ones are stopped"
    for index in (5, 6):
        world.task_ends(TaskKey(borrower, attempt.no, TaskIndex(index)), 143)
    assert world.is_(borrower) is JobState.SUCCEEDED


def test_it_may_be_cancelled_while_it_shrinks_but_not_suspended() -> None:
    world = lent()
    borrower = running(world, elastic(2, 8).of("nlp"))
    owner = world.submit(a_job().gpus(3))
    world.cycle()
    with pytest.raises(Rejected, match="giving up surplus tasks"):
        world.do(c.SuspendJob(borrower))
    world.do(c.CancelJob(borrower))
    world.ends(borrower, 143)
    assert world.is_(borrower) is JobState.CANCELLED
    world.cycle()
    assert size(world, owner) == 1
    assert not world.state.cluster.placed.parting


def test_a_node_that_is_lost_takes_surplus_with_it() -> None:
    world = World(a_config(a_tenant("vision", 16), a_tenant("nlp"), nodes=2))
    borrower = running(world, elastic(8, 16).of("nlp"))
    world.submit(a_job().gpus(8))
    world.cycle()
    attempt = world.job(borrower).attempts[-1]
    assert attempt.staying == 8
    lost = {slot.node for slot in attempt.slots[8:]}
    assert len(lost) == 1
    world.tell(NodeReport(NodeId(lost.pop()), alive=False))
    assert world.is_(borrower) is JobState.RUNNING
    assert size(world, borrower) == 8


def test_after_a_restart_everybody_is_told_again() -> None:
    world = lent()
    borrower = running(world, elastic(2, 8).of("nlp"))
    world.submit(a_job().gpus(3))
    world.cycle()
    missing = list(pending_effects(world.state, world.now))
    assert f.TellSize(borrower, world.job(borrower).attempts[-1].no) in missing
    told = [effect.key.index for effect in missing if isinstance(effect, f.StopTask)]
    assert told == [5, 6, 7]


def test_surplus_borrows_until_it_is_gone() -> None:
    world = lent()
    borrower = running(world, elastic(2, 8).of("nlp"))
    world.submit(a_job().gpus(3))
    world.cycle()
    cluster = world.state.cluster
    assert cluster.queues.tenants["nlp"].total().gpu_milli == 8000
    surplus_ends(world, borrower)
    assert cluster.queues.tenants["nlp"].total().gpu_milli == 5000


# ── cells ───────────────────────────────────────────────────────────────────────────────


def test_in_cells_a_borrower_in_the_way_only_shrinks() -> None:
    world = a_cell_world(CELLS)
    borrower = running(world, elastic(2, 16).of("guest"))
    assert size(world, borrower) == 16
    owner = world.submit(a_job().gpus(8))
    world.cycle()
    assert world.is_(borrower) is JobState.RUNNING
    assert world.job(borrower).attempts[-1].staying == 8
    surplus_ends(world, borrower)
    world.cycle()
    assert (size(world, owner), size(world, borrower)) == (1, 8)
    assert world.job(owner).attempts[-1].entitlement is Entitlement.GUARANTEED


def test_in_cells_own_less_urgent_jobs_shrink_first() -> None:
    world = a_cell_world(CELLS)
    own = running(world, elastic(2, 8))
    fixed = running(world, a_job().gpus(8).of("guest"))
    assert world.job(own).attempts[-1].entitlement is Entitlement.GUARANTEED
    urgent = world.submit(a_job().gpus(4).priority(500))
    world.cycle()
    assert world.is_(own) is JobState.RUNNING
    assert world.is_(fixed) is JobState.RUNNING
    assert world.job(own).attempts[-1].staying == 4
    surplus_ends(world, own)
    world.cycle()
    assert (size(world, urgent), size(world, own)) == (1, 4)
    assert world.job(own).attempts[-1].entitlement is Entitlement.GUARANTEED


def test_a_gang_that_cannot_keep_its_least_goes_whole() -> None:
    world = World(a_config(a_tenant("vision", 8), a_tenant("nlp", 0)))
    gang = world.submit(a_job().of("nlp").gpus(1).between(4, 8, elastic=True))
    world.cycle()
    world.runs(gang)
    assert len(world.job(gang).attempts[-1].slots) == 8
    world.submit(a_job().of("vision").gpus(6))
    world.cycle()
    assert world.is_(gang) is JobState.STOPPING
