"""How those who must go do so: in line again, frozen, over, or on elsewhere."""

import msgspec
import pytest

from allotment.model import commands as c
from allotment.model import effects as f
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import JobState
from allotment.model.quantity import GIB
from allotment.model.spec import GiveWay
from allotment.model.tenancy import Config, Preempt
from tests.support.builders import JobBuilder, a_config, a_job, a_tenant, gpus
from tests.support.world import World
from tests.unit.core.cells.plots import MACHINES, TOPOLOGY, owns

BOTH = pytest.mark.parametrize("cells", [True, False], ids=["cells", "counted"])


def a_world(
    *, cells: bool, way: GiveWay = GiveWay.REQUEUE, preempt: Preempt = Preempt.EVICT
) -> World:
    """Tenant a owns two nodes of eight, tenant b two."""
    bare = (
        tuple(
            msgspec.structs.replace(tenant, guaranteed=gpus(32))
            for tenant in (owns("a", node=2), owns("b", node=2))
        )
        if cells
        else (a_tenant("a", 16), a_tenant("b", 16))
    )
    tenants = tuple(
        msgspec.structs.replace(each, preempt=preempt, on_eviction=way) for each in bare
    )
    if cells:
        return World(Config(MACHINES, tenants, topology=TOPOLOGY))
    return World(a_config(*tenants, nodes=4, devices=8))


def start(world: World, job: JobBuilder, way: GiveWay = GiveWay.AS_TENANT) -> JobId:
    number = world.state.next_job
    world.do(c.SubmitJob(msgspec.structs.replace(job.spec(), on_eviction=way)))
    world.cycle()
    if world.is_(number) is JobState.STARTING:
        world.runs(number)
    return number


def borrowers(world: World, way: GiveWay = GiveWay.AS_TENANT) -> list[JobId]:
    """Fill everything with jobs of tenant b: two its own, two borrowing."""
    jobs = [start(world, a_job().of("b").gpus(8), way) for _ in range(4)]
    assert all(world.is_(job) is JobState.RUNNING for job in jobs)
    return jobs


def told(world: World) -> list[JobId]:
    return [r.event.job for r in world.log if isinstance(r.event, e.StopRequested)]


@BOTH
@pytest.mark.parametrize("whose", ["job", "tenant"])
def test_what_is_frozen_makes_room_at_once_and_goes_on_later(cells: bool, whose: str) -> None:
    world = a_world(cells=cells, way=GiveWay.SUSPEND if whose == "tenant" else GiveWay.REQUEUE)
    jobs = borrowers(world, GiveWay.SUSPEND if whose == "job" else GiveWay.AS_TENANT)
    owner = start(world, a_job().of("a").gpus(8))
    assert told(world) == []
    assert world.is_(owner) is JobState.RUNNING
    (frozen,) = (job for job in jobs if world.is_(job) is JobState.SUSPENDED)
    assert any(isinstance(x, f.FreezeGang) and x.keys[0].job == frozen for x in world.effects)
    world.ends(owner)
    world.cycle()
    assert world.is_(frozen) is JobState.RUNNING
    assert len(world.job(frozen).attempts) == 1


@BOTH
def test_a_job_that_keeps_too_much_memory_is_sent_away_instead(cells: bool) -> None:
    world = a_world(cells=cells)
    for _ in range(4):
        start(world, a_job().of("b").gpus(8).memory(300 * GIB), GiveWay.SUSPEND)
    start(world, a_job().of("a").gpus(8).memory(300 * GIB))
    assert len(told(world)) == 1


@BOTH
def test_a_job_that_has_not_come_to_run_is_not_frozen(cells: bool) -> None:
    world = a_world(cells=cells, way=GiveWay.SUSPEND)
    for _ in range(4):
        world.submit(a_job().of("b").gpus(8))
    world.cycle()
    start(world, a_job().of("a").gpus(8))
    assert len(told(world)) == 1


@BOTH
def test_a_job_that_would_rather_be_over_is_cancelled(cells: bool) -> None:
    world = a_world(cells=cells)
    borrowers(world, GiveWay.CANCEL)
    owner = start(world, a_job().of("a").gpus(8))
    (gone,) = told(world)
    world.ends(gone, 143)
    world.cycle()
    assert world.is_(gone) is JobState.CANCELLED
    assert world.is_(owner) is JobState.STARTING


@BOTH
def test_a_job_that_migrates_goes_on_where_it_is_idle(cells: bool) -> None:
    """Two of four devices are left on each of two nodes: the owner needs a whole one."""
    world = a_world(cells=cells)
    small = [start(world, a_job().of("b").gpus(4), GiveWay.MIGRATE) for _ in range(4)]
    own = start(world, a_job().of("a").gpus(8))
    idle = start(world, a_job().of("b").gpus(4), GiveWay.MIGRATE)
    owner = start(world, a_job().of("a").gpus(8))
    assert world.is_(own) is JobState.RUNNING
    assert told(world) == [idle]
    assert not set(small) & set(told(world))
    promises = world.state.cluster.reserved
    assert idle not in promises, "nothing is idle: it stands in line again"
    world.ends(idle, 143)
    world.cycle()
    assert world.is_(owner) is JobState.STARTING
    assert world.is_(idle) is JobState.QUEUED


@BOTH
def test_a_move_is_one_decision(cells: bool) -> None:
    world = a_world(cells=cells, preempt=Preempt.EVICT)
    low = start(world, a_job().of("a").gpus(8).priority(10), GiveWay.MIGRATE)
    second = start(world, a_job().of("a").gpus(8).priority(20), GiveWay.MIGRATE)
    urgent = start(world, a_job().of("a").gpus(8).priority(500).not_preemptible())
    assert told(world) == [low]
    assert set(world.state.cluster.reserved) == {low, urgent}
    world.ends(low, 143)
    world.cycle()
    assert world.is_(urgent) is JobState.STARTING
    assert world.is_(low) is JobState.STARTING
    assert world.state.cluster.gangs[low].entitlement is Entitlement.OPPORTUNISTIC
    assert world.is_(second) is JobState.RUNNING


@BOTH
def test_what_is_reserved_for_a_borrower_never_outlives_the_owners_need(cells: bool) -> None:
    world = a_world(cells=cells)
    low = start(world, a_job().of("a").gpus(8).priority(10), GiveWay.MIGRATE)
    start(world, a_job().of("a").gpus(8).priority(600))
    others = [start(world, a_job().of("b").gpus(8))]
    start(world, a_job().of("a").gpus(8).priority(500).not_preemptible())
    assert low in world.state.cluster.reserved
    others.append(start(world, a_job().of("b").gpus(8)))
    assert all(world.is_(job) is JobState.RUNNING for job in others)
    assert low not in world.state.cluster.reserved
    assert told(world) == [low]
    world.ends(low, 143)
    world.cycle()
    assert world.is_(low) is JobState.QUEUED


@BOTH
def test_a_job_that_moves_and_is_cancelled_leaves_nothing_behind(cells: bool) -> None:
    world = a_world(cells=cells)
    low = start(world, a_job().of("a").gpus(8).priority(10), GiveWay.MIGRATE)
    start(world, a_job().of("a").gpus(8).priority(600))
    urgent = start(world, a_job().of("a").gpus(8).priority(500).not_preemptible())
    world.do(c.CancelJob(low))
    world.ends(low, 143)
    world.cycle()
    assert world.is_(low) is JobState.CANCELLED
    assert world.is_(urgent) is JobState.STARTING
    assert not world.state.cluster.reserved


def test_only_tenants_that_say_so_let_urgent_jobs_evict() -> None:
    tenants = (
        msgspec.structs.replace(a_tenant("a", 4, borrow=False), preempt=Preempt.EVICT),
        a_tenant("b", 4, borrow=False),
    )
    world = World(a_config(*tenants))
    low = {name: world.submit(a_job().of(name).gpus(4).priority(10)) for name in "ab"}
    world.cycle()
    for name in "ab":
        world.submit(a_job().of(name).gpus(4).priority(900))
    world.cycle()
    assert set(world.state.cluster.placed.leaving) == {low["a"]}
