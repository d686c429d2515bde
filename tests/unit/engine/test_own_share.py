"""Who is owed a place that others of its tenant have: nobody of its queue goes before it.

As on a cluster of the tenant's own, in every order but `skip`, whoever else is there.
"""

import pytest

from allotment.model import commands as c
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState as S
from allotment.model.reasons import Reason
from allotment.model.tenancy import QueueOrder, Tenant
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import World

HOUR = 3_600_000
WAITING = [QueueOrder.STRICT, QueueOrder.EASY, QueueOrder.CONSERVATIVE]


def vision(order: QueueOrder, share: float = 8, *, borrow: bool = False) -> Tenant:
    return a_tenant("vision", share, order=order, borrow=borrow)


def beside_an_idle_team(tenant: Tenant) -> World:
    return World(a_config(tenant, a_tenant("nlp", 8), nodes=2))


def submit(world: World, devices: int, hours: float, tenant: str = "vision") -> JobId:
    job = a_job().of(tenant).gpus(devices).within(run_ms=round(hours * HOUR))
    return world.submit(job)


def start(world: World) -> None:
    world.cycle()
    for each in world.state.jobs.values():
        if each.state is S.STARTING:
            world.runs(each.id)


@pytest.mark.parametrize("order", WAITING)
def test_a_gang_of_the_whole_share_comes_in_its_turn(order: QueueOrder) -> None:
    world = beside_an_idle_team(vision(order))
    first = submit(world, 4, 2)
    start(world)
    whole = submit(world, 8, 1)
    others = [submit(world, 4, 3) for _ in range(10)]
    start(world)
    assert [world.is_(job) for job in (whole, *others)] == [S.QUEUED] * 11
    assert world.why(whole).reason is Reason.QUOTA
    assert world.why(others[0]).reason is Reason.BEHIND
    assert world.why(others[0]).ahead == whole
    world.ends(first)
    start(world)
    assert world.is_(whole) is S.RUNNING


@pytest.mark.parametrize("order", [QueueOrder.EASY, QueueOrder.CONSERVATIVE])
def test_who_ends_before_the_share_is_free_may_pass(order: QueueOrder) -> None:
    world = beside_an_idle_team(vision(order))
    submit(world, 4, 2)
    start(world)
    whole = submit(world, 8, 1)
    long, short = submit(world, 4, 3), submit(world, 4, 1)
    start(world)
    found = [world.is_(job) for job in (whole, long, short)]
    assert found == [S.QUEUED, S.QUEUED, S.RUNNING]


@pytest.mark.parametrize("order", [QueueOrder.EASY, QueueOrder.CONSERVATIVE])
def test_what_the_share_has_left_beside_it_may_be_used(order: QueueOrder) -> None:
    world = beside_an_idle_team(vision(order))
    submit(world, 4, 2)
    start(world)
    large = submit(world, 6, 1)
    two, four = submit(world, 2, 9), submit(world, 4, 9)
    start(world)
    found = [world.is_(job) for job in (large, two, four)]
    assert found == [S.QUEUED, S.RUNNING, S.QUEUED]


@pytest.mark.parametrize("order", WAITING)
def test_a_gang_beyond_the_share_holds_up_nobody_within_it(order: QueueOrder) -> None:
    world = beside_an_idle_team(vision(order, borrow=True))
    submit(world, 8, 9, "nlp")
    start(world)
    beyond = world.submit(a_job().tasks(2).gpus(6).within(run_ms=HOUR))
    within = submit(world, 8, 1)
    start(world)
    assert (world.is_(beyond), world.is_(within)) == (S.QUEUED, S.RUNNING)


@pytest.mark.parametrize("order", WAITING)
def test_who_gets_a_borrowed_place_holds_up_nobody_any_longer(order: QueueOrder) -> None:
    world = beside_an_idle_team(vision(order, borrow=True))
    submit(world, 4, 9)
    start(world)
    whole = submit(world, 8, 1)
    behind = submit(world, 4, 9)
    start(world)
    assert (world.is_(whole), world.is_(behind)) == (S.RUNNING, S.RUNNING)
    assert world.state.jobs[behind].attempts[-1].entitlement.value == "guaranteed"


@pytest.mark.parametrize("order", WAITING)
def test_who_could_never_start_any_more_holds_up_nobody(order: QueueOrder) -> None:
    """Its machines are taken out of the configuration while it waits for them."""
    tenant = vision(order)
    world = World(a_config(tenant, nodes=2))
    for node in world.state.cluster.nodes:
        world.do(c.DrainNode(node))
    large, behind = submit(world, 8, 1), submit(world, 4, 1)
    start(world)
    assert (world.is_(large), world.is_(behind)) == (S.QUEUED, S.QUEUED)
    world.do(c.ApplyConfig(a_config(tenant, nodes=2, devices=4)))
    for node in world.state.cluster.nodes:
        world.do(c.UndrainNode(node))
    start(world)
    assert (world.is_(large), world.is_(behind)) == (S.QUEUED, S.RUNNING)
    assert world.why(large).reason is Reason.NEVER_FITS_NOW


def test_in_a_skipping_queue_others_pass() -> None:
    world = beside_an_idle_team(vision(QueueOrder.SKIP))
    submit(world, 4, 2)
    start(world)
    whole, behind = submit(world, 8, 1), submit(world, 4, 9)
    start(world)
    assert (world.is_(whole), world.is_(behind)) == (S.QUEUED, S.RUNNING)
