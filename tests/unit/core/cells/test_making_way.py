"""Urgent jobs of a tenant, and who of its own makes way for them."""

import msgspec
import pytest

from allotment.model import commands as c
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import JobState
from allotment.model.tenancy import Config, Preempt, Tenant
from tests.support.builders import JobBuilder, a_job, gpus
from tests.support.world import World
from tests.unit.core.cells.plots import MACHINES, TOPOLOGY, owns


def a_world(*tenants: Tenant, preempt: Preempt = Preempt.EVICT) -> World:
    rich = tuple(
        msgspec.structs.replace(tenant, guaranteed=gpus(32), preempt=preempt)
        for tenant in tenants
    )
    return World(Config(MACHINES, rich, topology=TOPOLOGY))


def start(world: World, job: JobBuilder, **more: object) -> JobId:
    spec = msgspec.structs.replace(job.spec(), **more)
    number = world.state.next_job
    world.do(c.SubmitJob(spec))
    world.cycle()
    if world.job(number).attempt is not None:
        world.runs(number)
    return number


def leaving(world: World) -> set[JobId]:
    return set(world.state.cluster.placed.leaving)


def test_a_job_that_is_not_in_the_way_stays_though_a_borrower_is() -> None:
    world = a_world(owns("a", node=1, socket=1), owns("b", node=2))
    small = start(world, a_job().of("a").gpus(4).priority(10))
    inside = start(world, a_job().of("a").gpus(5).priority(20))
    others = [start(world, a_job().of("b").gpus(8)) for _ in range(2)]
    assert all(world.is_(job) is JobState.RUNNING for job in (small, inside, *others))
    borrowers = [start(world, a_job().of("b").gpus(n), opportunistic=True) for n in (3, 4)]
    assert all(world.is_(job) is JobState.RUNNING for job in borrowers)
    start(world, a_job().of("a").gpus(8).priority(500))
    assert leaving(world) == {inside, borrowers[0]}


@pytest.mark.parametrize("preempt", [Preempt.EVICT, Preempt.DEMOTE])
def test_what_loses_its_share_is_sent_away_or_stays_as_a_borrower(preempt: Preempt) -> None:
    world = a_world(owns("a", node=1), owns("b", node=3), preempt=preempt)
    low = start(world, a_job().of("a").gpus(8).priority(10))
    high = start(world, a_job().of("a").gpus(8).priority(500))
    if preempt is Preempt.EVICT:
        assert leaving(world) == {low}
        world.ends(low, 143)
        world.cycle()
        assert world.is_(high) is JobState.STARTING
    else:
        assert leaving(world) == set()
        assert world.state.cluster.gangs[low].entitlement is Entitlement.OPPORTUNISTIC
        assert world.is_(high) is JobState.RUNNING


def test_a_borrower_is_never_safe_from_the_owner() -> None:
    world = a_world(owns("a", node=4), owns("b"))
    borrowers = [start(world, a_job().of("b").gpus(8)) for _ in range(4)]
    start(world, a_job().of("a").tasks(2).gpus(8))
    assert len(leaving(world) & set(borrowers)) == 2
