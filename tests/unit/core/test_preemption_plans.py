"""What a plan asks of others: no more of them than must, whoever they are."""

import msgspec

from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.model.tenancy import Config, Preempt
from tests.support.builders import JobBuilder, a_config, a_job, a_tenant, gpus
from tests.support.world import World
from tests.unit.core.cells.plots import MACHINES, TOPOLOGY, owns


def counted(a: int, b: int, *, nodes: int = 4, devices: int = 8) -> World:
    """Tenants with so many devices each."""
    tenants = tuple(
        msgspec.structs.replace(a_tenant(name, share), preempt=Preempt.EVICT)
        for name, share in (("a", a), ("b", b))
    )
    return World(a_config(*tenants, nodes=nodes, devices=devices))


def in_cells(a: dict[str, int], b: dict[str, int]) -> World:
    """Tenants with so many cells of each type."""
    tenants = tuple(
        msgspec.structs.replace(owns(name, **cells), guaranteed=gpus(32), preempt=Preempt.EVICT)
        for name, cells in (("a", a), ("b", b))
    )
    return World(Config(MACHINES, tenants, topology=TOPOLOGY))


def start(world: World, job: JobBuilder) -> JobId:
    number = world.submit(job)
    world.cycle()
    if world.job(number).attempt is not None:
        world.runs(number)
    return number


def told(world: World) -> list[JobId]:
    """Everybody that was told to go, as often as it was told."""
    return [r.event.job for r in world.log if isinstance(r.event, e.StopRequested)]


def test_a_job_that_takes_a_reserved_place_over_goes_where_nobody_has_to_leave() -> None:
    world = counted(8, 24)
    first, *_, last = (start(world, a_job().of("b").gpus(8)) for _ in range(4))
    world.ends(first)
    newest = start(world, a_job().of("b").gpus(8))
    low = start(world, a_job().of("a").gpus(8).priority(10))
    assert told(world) == [newest]
    world.ends(last)
    high = start(world, a_job().of("a").gpus(8).priority(500))
    assert world.is_(high) is JobState.RUNNING
    assert world.is_(low) is JobState.QUEUED


def test_tasks_that_share_devices_take_no_more_than_these_from_less_urgent_gangs() -> None:
    world = in_cells({"socket": 1}, {"node": 3})
    lower = [start(world, a_job().of("a").gpus(2).priority(10)) for _ in range(2)]
    urgent = start(world, a_job().of("a").tasks(8).gpus(0.25).priority(500).not_preemptible())
    assert told(world) == [lower[1]]
    assert set(world.state.cluster.reserved) == {urgent}


def test_the_larger_borrower_alone_goes_where_it_is_enough() -> None:
    world = counted(8, 0, nodes=1)
    larger = start(world, a_job().of("b").gpus(7).priority(100))
    smaller = start(world, a_job().of("b").gpus(1).priority(10))
    start(world, a_job().of("a").gpus(2))
    assert told(world) == [larger]
    assert world.is_(smaller) is JobState.RUNNING


def test_a_borrower_in_an_owners_rack_stays_beside_an_idle_node_that_is_as_good() -> None:
    world = in_cells({"rack": 1}, {"node": 2})
    start(world, a_job().of("a").tasks(2).gpus(5))
    for _ in range(2):
        start(world, a_job().of("b").gpus(8))
    first, second = (start(world, a_job().of("b").gpus(3)) for _ in range(2))
    world.ends(first)
    owner = start(world, a_job().of("a").gpus(3))
    assert told(world) == []
    assert world.is_(owner) is world.is_(second) is JobState.RUNNING
    gangs = world.state.cluster.gangs
    assert gangs[owner].slots[0].node != gangs[second].slots[0].node
