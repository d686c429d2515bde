"""Lazy preemption: whoever loses its guarantee stays while others can be sent away instead."""

import pytest

from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import JobState
from tests.support.builders import JobBuilder, a_job
from tests.support.cells import a_cell_world
from tests.support.world import World

CELLS = """\
hardware: [4 x dgx-v100 in racks of 4, 1 x k80-4 named k]
tenants:
  a: {cells: {dgx-v100-socket: 1, dgx-v100-switch: 1, V100: 1}, preempt: demote}
  b: {cells: {dgx-v100-socket: 1, dgx-v100-switch: 1, V100: 1}, preempt: evict}
  c: {cells: {dgx-v100-node: 2, dgx-v100-switch: 1}, preempt: demote}
  d: {}
"""


def placed(world: World, job: JobBuilder) -> JobId:
    number = world.submit(job)
    world.cycle()
    if world.job(number).attempt is not None:
        world.runs(number)
    return number


def at(world: World, job: JobId) -> str:
    gang = world.state.cluster.gangs[job]
    return world.state.cluster.nodes[gang.slots[0].node].name


def whole(tenant: str, priority: int = 100) -> JobBuilder:
    return a_job().of(tenant).gpus(8).priority(priority)


def told(world: World) -> list[JobId]:
    return [r.event.job for r in world.log if isinstance(r.event, e.StopRequested)]


@pytest.mark.parametrize("elastic", [False, True])
def test_an_opportunistic_job_goes_before_one_that_lost_its_guarantee(elastic: bool) -> None:
    world = a_cell_world(CELLS)
    idle = placed(world, a_job().of("d").gpus(8).opportunistic())
    small = placed(world, a_job().of("a").gpus(1))
    first = placed(world, whole("c"))
    low = a_job().of("c").gpus(1).between(6, 8, elastic=True) if elastic else whole("c")
    second = placed(world, low.priority(50))
    assert [at(world, job) for job in (idle, small, first, second)] == ["n4", "n1", "n2", "n3"]
    urgent = placed(world, whole("c", 500))
    assert world.state.cluster.gangs[second].entitlement is Entitlement.OPPORTUNISTIC
    assert told(world) == [idle]
    world.ends(idle, 143)
    world.cycle()
    assert at(world, urgent) == "n4"
    assert world.is_(second) is JobState.RUNNING


def test_whoever_lost_its_guarantee_goes_where_nobody_else_can() -> None:
    world = a_cell_world(CELLS)
    placed(world, a_job().of("a").gpus(4))
    placed(world, a_job().of("b").gpus(4))
    placed(world, a_job().of("a").gpus(2))
    placed(world, a_job().of("c").gpus(2))
    placed(world, whole("c"))
    second = placed(world, whole("c"))
    placed(world, a_job().of("a").gpus(1))
    placed(world, a_job().of("b").gpus(2))
    placed(world, a_job().of("b").gpus(1))
    placed(world, whole("c", 500))
    assert told(world) == [second]
