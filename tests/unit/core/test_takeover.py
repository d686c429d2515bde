"""A reserved place goes to a more urgent job, or to one that it is guaranteed to."""

import msgspec
import pytest

from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import JobState
from allotment.model.reasons import Reason
from allotment.model.tenancy import Config, Preempt
from tests.support.builders import JobBuilder, a_config, a_job, a_tenant, gpus
from tests.support.world import World
from tests.unit.core.cells.plots import MACHINES, TOPOLOGY, owns

BOTH = pytest.mark.parametrize("cells", [True, False], ids=["cells", "counted"])
EITHER = pytest.mark.parametrize("preempt", [Preempt.EVICT, Preempt.DEMOTE])


def a_world(*, cells: bool, preempt: Preempt = Preempt.EVICT) -> World:
    """Tenant a owns a node of eight, tenant b the other three."""
    if cells:
        rich = tuple(
            msgspec.structs.replace(tenant, guaranteed=gpus(32), preempt=preempt)
            for tenant in (owns("a", node=1), owns("b", node=3))
        )
        return World(Config(MACHINES, rich, topology=TOPOLOGY))
    tenants = tuple(
        msgspec.structs.replace(a_tenant(name, share), preempt=preempt)
        for name, share in (("a", 8), ("b", 24))
    )
    return World(a_config(*tenants, nodes=4, devices=8))


def start(world: World, job: JobBuilder) -> JobId:
    number = world.submit(job)
    world.cycle()
    if world.job(number).attempt is not None:
        world.runs(number)
    return number


def fill(world: World, tenant: str, nodes: int = 4) -> list[JobId]:
    jobs = [start(world, a_job().of(tenant).gpus(8)) for _ in range(nodes)]
    assert all(world.is_(job) is JobState.RUNNING for job in jobs)
    return jobs


def told(world: World) -> list[JobId]:
    """Everybody who was told to go, as often as it was told."""
    return [r.event.job for r in world.log if isinstance(r.event, e.StopRequested)]


def reserved_for(world: World) -> set[JobId]:
    return set(world.state.cluster.reserved)


@BOTH
@EITHER
def test_a_more_urgent_job_takes_a_reserved_place_over(cells: bool, preempt: Preempt) -> None:
    world = a_world(cells=cells, preempt=preempt)
    fill(world, "b")
    low = start(world, a_job().of("a").gpus(8).priority(10))
    (victim,) = told(world)
    assert reserved_for(world) == {low}
    high = start(world, a_job().of("a").gpus(8).priority(500))
    assert reserved_for(world) == {high}
    assert told(world) == [victim]
    assert world.why(high).reason is Reason.WAITING_FOR_VICTIMS
    assert world.why(low).reason is not Reason.WAITING_FOR_VICTIMS
    world.ends(victim, 143)
    world.cycle()
    assert world.is_(high) is JobState.STARTING
    assert world.is_(low) is JobState.QUEUED
    assert world.state.cluster.gangs[high].entitlement is Entitlement.GUARANTEED


@BOTH
def test_a_job_of_the_same_priority_waits_for_who_was_promised_first(cells: bool) -> None:
    world = a_world(cells=cells)
    fill(world, "b")
    first = start(world, a_job().of("a").gpus(8))
    start(world, a_job().of("a").gpus(8))
    assert reserved_for(world) == {first}


@BOTH
def test_a_reserved_place_goes_before_a_gang_of_the_same_priority(cells: bool) -> None:
    world = a_world(cells=cells)
    runs = start(world, a_job().of("a").gpus(4).priority(10))
    fill(world, "b", 3)
    small = start(world, a_job().of("b").gpus(4))
    waits = start(world, a_job().of("a").gpus(4).priority(10))
    assert told(world) == [small]
    urgent = start(world, a_job().of("a").gpus(4).priority(500))
    assert reserved_for(world) == {urgent}
    assert told(world) == [small]
    assert world.is_(runs) is JobState.RUNNING
    assert world.is_(waits) is JobState.QUEUED


@BOTH
def test_the_least_urgent_loses_its_place_though_another_has_but_a_reserved_one(
    cells: bool,
) -> None:
    world = a_world(cells=cells)
    runs = start(world, a_job().of("a").gpus(4).priority(10))
    fill(world, "b", 3)
    small = start(world, a_job().of("b").gpus(4))
    waits = start(world, a_job().of("a").gpus(4).priority(20))
    urgent = start(world, a_job().of("a").gpus(4).priority(500))
    assert reserved_for(world) == {waits, urgent}
    assert told(world) == [small, runs]


@BOTH
def test_both_a_reserved_place_and_one_held_may_be_needed(cells: bool) -> None:
    world = a_world(cells=cells)
    runs = start(world, a_job().of("a").gpus(4).priority(10))
    fill(world, "b", 3)
    small = start(world, a_job().of("b").gpus(4))
    start(world, a_job().of("a").gpus(4).priority(20))
    urgent = start(world, a_job().of("a").gpus(8).priority(500))
    assert reserved_for(world) == {urgent}
    assert told(world) == [small, runs]
    for victim in (small, runs):
        world.ends(victim, 143)
    world.cycle()
    assert world.is_(urgent) is JobState.STARTING


@BOTH
def test_a_reserved_place_goes_up_and_up(cells: bool) -> None:
    world = a_world(cells=cells)
    fill(world, "b")
    for priority in (10, 20, 30, 400):
        last = start(world, a_job().of("a").gpus(8).priority(priority))
        assert reserved_for(world) == {last}
    assert len(told(world)) == 1


@EITHER
def test_where_shares_are_counted_an_urgent_job_gets_the_share_of_another(
    preempt: Preempt,
) -> None:
    world = a_world(cells=False, preempt=preempt)
    low = start(world, a_job().of("a").gpus(8).priority(10))
    high = start(world, a_job().of("a").gpus(8).priority(500).not_preemptible())
    gangs = world.state.cluster.gangs
    assert gangs[low].entitlement is Entitlement.OPPORTUNISTIC
    if preempt is Preempt.EVICT:
        assert told(world) == [low]
        world.ends(low, 143)
        world.cycle()
        assert world.is_(high) is JobState.STARTING
        assert world.is_(low) is JobState.STARTING, "it borrows now"
    else:
        assert told(world) == []
        assert world.is_(high) is JobState.RUNNING
        world.ends(high)
        world.cycle()
        assert gangs[low].entitlement is Entitlement.GUARANTEED


def test_a_job_that_is_less_urgent_and_too_small_stays() -> None:
    world = a_world(cells=False)
    others = [start(world, a_job().of("a").gpus(4).priority(p)) for p in (10, 600)]
    start(world, a_job().of("a").gpus(8).priority(500).not_preemptible())
    assert told(world) == []
    assert all(world.is_(job) is JobState.RUNNING for job in others)


@BOTH
def test_a_job_that_lost_its_reserved_place_is_told_so(cells: bool) -> None:
    world = a_world(cells=cells)
    fill(world, "b")
    low = start(world, a_job().of("a").gpus(8).priority(10))
    high = start(world, a_job().of("a").gpus(8).priority(500))
    dropped = [r.event for r in world.log if isinstance(r.event, e.ReservedPlaceDropped)]
    assert dropped == [e.ReservedPlaceDropped(low, taken_by=high)]


@BOTH
def test_a_restart_in_between_changes_nothing(cells: bool) -> None:
    world = a_world(cells=cells)
    fill(world, "b")
    low = start(world, a_job().of("a").gpus(8).priority(10))
    start(world, a_job().of("a").gpus(8).priority(500))
    world.do(c.CancelJob(max(reserved_for(world))))
    world.cycle()
    assert reserved_for(world) == {low}, "it is next again"
    assert len(told(world)) == 1
