"""What the committer refuses, whoever proposes it."""

import pytest
from msgspec.structs import replace

from allotment.core.commit import refusal
from allotment.core.gang import ReservedPlace
from allotment.core.plan import Place, Resume
from allotment.core.trial import Trial
from allotment.model import commands as c
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement, Placement, Slot
from allotment.model.quantity import Resources
from allotment.model.spec import Arch
from tests.support.builders import JobBuilder, a_config, a_job, a_tenant
from tests.support.world import World

GUARANTEED, OPPORTUNISTIC = Entitlement.GUARANTEED, Entitlement.OPPORTUNISTIC


def vision() -> JobBuilder:
    """A job of a tenant that may borrow beyond its 4 of 8 devices."""
    return a_job().of("vision")


def nlp() -> JobBuilder:
    """A job of a tenant that may not."""
    return a_job().of("nlp")


def told(job: JobBuilder, grounds: Entitlement, *devices: int) -> str:
    """Return what is said to a place of just these devices."""
    world = World(a_config(a_tenant("vision", 4), a_tenant("nlp", 4, borrow=False)))
    number = world.submit(job)
    slots = (Slot(NodeId(0), devices, 1000 * len(devices)),)
    place = Place(Placement(number, slots, grounds))
    return refusal(world.state.cluster, place, world.now)


@pytest.mark.parametrize(
    ("job", "grounds"),
    [
        (vision().gpus(4), GUARANTEED),
        (vision().gpus(4).not_preemptible(), GUARANTEED),
        (vision().gpus(4), OPPORTUNISTIC),
    ],
)
def test_what_a_tenant_is_guaranteed_it_has_on_either_grounds(
    job: JobBuilder, grounds: Entitlement
) -> None:
    assert told(job, grounds, 0, 1, 2, 3) == ""


@pytest.mark.parametrize(
    ("job", "grounds", "why"),
    [
        (vision().gpus(5), GUARANTEED, "tenant vision has no right to it"),
        (vision().gpus(5), OPPORTUNISTIC, ""),
        (vision().gpus(4).not_preemptible(), OPPORTUNISTIC, "tenant vision has no right to it"),
    ],
)
def test_nobody_has_a_place_on_grounds_it_has_not(
    job: JobBuilder, grounds: Entitlement, why: str
) -> None:
    assert told(job, grounds, *range(job.spec().roles[0].resources.gpu_milli // 1000)) == why


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        ((0,), "not the number of devices asked for"),
        ((0, 0), "not the number of devices asked for"),
        ((0, 1, 2), "not the number of devices asked for"),
        ((6, 7), ""),
    ],
)
def test_a_task_has_as_many_devices_as_it_asked_for(devices: tuple[int, ...], why: str) -> None:
    assert told(nlp().gpus(2), GUARANTEED, *devices) == why


def test_a_device_in_use_is_nobody_elses() -> None:
    world = World(a_config(a_tenant("vision", 4)))
    world.submit(vision().gpus(2))
    world.cycle()
    number = world.submit(vision().gpus(2))
    slots = (Slot(NodeId(0), (1, 2), 2000),)
    place = Place(Placement(number, slots, GUARANTEED))
    assert refusal(world.state.cluster, place, world.now) == "device 1 of node 0 is in use"


@pytest.mark.parametrize("node", [0, 9])
def test_a_node_that_is_drained_or_not_there_takes_no_work(node: int) -> None:
    world = World(a_config(a_tenant("vision", 4)))
    world.do(c.DrainNode(NodeId(0), "new fans"))
    number = world.submit(vision().gpus(1))
    place = Place(Placement(number, (Slot(NodeId(node), (0,), 1000),), GUARANTEED))
    assert refusal(world.state.cluster, place, world.now) == f"node {node} takes no work"


def test_a_reserved_place_is_kept_where_it_was_made() -> None:
    """Another place of the same size is not what was promised, though it is free by now."""
    world = World(a_config(a_tenant("vision", 4), a_tenant("nlp", 4, borrow=False)))
    own, borrower = world.submit(vision().gpus(4)), world.submit(vision().gpus(4))
    world.cycle()
    world.runs(own)
    world.runs(borrower)
    owner = world.submit(nlp().gpus(2))
    world.cycle()
    (promised,) = world.state.cluster.reserved[owner].slots
    world.ends(borrower)
    free = world.state.cluster.ledger.books[promised.node].device_milli
    others = tuple(at for at, milli in enumerate(free) if milli and at not in promised.devices)
    elsewhere = Slot(promised.node, others[:2], 2000)
    for slot, why in ((promised, ""), (elsewhere, "nothing like it is reserved")):
        place = Place(Placement(owner, (slot,), GUARANTEED), reserved=True)
        assert refusal(world.state.cluster, place, world.now) == why


@pytest.mark.parametrize(
    ("gpus", "second", "why"),
    [
        (1, 1, "device 1 of node 0 is in use"),
        (1, 2, ""),
        (0.5, 1, ""),
        (0.75, 1, "device 1 of node 0 is in use"),
    ],
)
def test_tasks_of_one_gang_do_not_hold_a_device_twice(
    gpus: float, second: int, why: str
) -> None:
    world = World(a_config(a_tenant("vision", 4)))
    number = world.submit(vision().tasks(2).gpus(gpus))
    slots = tuple(Slot(NodeId(0), (at,), round(1000 * gpus)) for at in (1, second))
    place = Place(Placement(number, slots, GUARANTEED))
    assert refusal(world.state.cluster, place, world.now) == why


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (Arch.ANY, ""),
        (Arch.X86_64, ""),
        (Arch.ARM64, "node 0 has another architecture"),
    ],
)
def test_a_task_goes_where_its_image_runs(wanted: Arch, why: str) -> None:
    config = a_config(a_tenant("vision", 4), nodes=2)
    other = replace(config.nodes[1], arch=Arch.ARM64)
    world = World(replace(config, nodes=(config.nodes[0], other)))
    number = world.submit(vision().gpus(1).arch(wanted))
    place = Place(Placement(number, (Slot(NodeId(0), (1,), 1000),), GUARANTEED))
    assert refusal(world.state.cluster, place, world.now) == why


def a_suspended_owner() -> tuple[World, JobId, JobId]:
    """A gang that is owed its devices again, which a borrower has now."""
    world = World(a_config(a_tenant("vision", 4), a_tenant("nlp", 4)))
    owner, other = world.submit(vision().gpus(4)), world.submit(nlp().gpus(4))
    world.cycle()
    for job in (owner, other):
        world.runs(job)
    world.do(c.SuspendJob(owner))
    borrower = world.submit(nlp().gpus(4))
    world.cycle()
    world.runs(borrower)
    world.do(c.ResumeJob(owner))
    world.cycle()
    return world, owner, borrower


def test_a_gang_goes_on_in_a_reserved_place_once_that_is_empty() -> None:
    world, owner, borrower = a_suspended_owner()
    cluster, resume = world.state.cluster, Resume(owner, GUARANTEED, reserved=True)
    assert owner in cluster.reserved
    assert refusal(cluster, resume, world.now) == "its devices are not free yet"
    world.ends(borrower, 143)
    assert refusal(cluster, resume, world.now) == ""
    with Trial(cluster) as trial:
        trial.unreserve(owner)
        assert refusal(cluster, resume, world.now) == "its devices are not free yet"


def test_a_gang_goes_on_by_the_entitlement_that_it_has_and_where_its_devices_are_free() -> None:
    world, owner, borrower = a_suspended_owner()
    cluster = world.state.cluster
    with Trial(cluster) as trial:
        trial.unreserve(owner)
        borrowed = Resume(owner, OPPORTUNISTIC)
        assert refusal(cluster, borrowed, world.now) == "its tenant's share changed"
        own = Resume(owner, GUARANTEED)
        assert refusal(cluster, own, world.now) == "its devices are not free"
    running = Resume(borrower, GUARANTEED)
    assert refusal(cluster, running, world.now) == "the gang does not wait to go on"


def test_a_reserved_place_stands_while_its_tenants_share_does() -> None:
    """To it comes what the victims of its own tenant hold of that, and of others nothing."""
    world = World(a_config(a_tenant("vision", 4), a_tenant("nlp", 4)))
    own = [world.submit(vision().gpus(2)) for _ in range(2)]
    others = world.submit(nlp().gpus(4))
    world.cycle()
    for job in (*own, others):
        world.runs(job)
    waiting = world.submit(vision().gpus(2))
    cluster = world.state.cluster
    slots, needs = cluster.gangs[own[1]].slots, cluster.gangs[own[1]].needs
    for victims, stands in (((own[1],), True), ((others,), False), ((), False)):
        place = ReservedPlace(waiting, slots, needs, GUARANTEED, victims)
        assert cluster.guarantee.stands(place) is stands


def test_a_place_beyond_a_cap_is_refused() -> None:
    tenant = replace(a_tenant("vision", 4), per_user=Resources(gpu_milli=3000))
    world = World(a_config(tenant))
    world.submit(vision().gpus(2))
    world.cycle()
    for number, why in ((1, ""), (2, "user alice has all of gpu that it may")):
        job = world.submit(vision().gpus(number))
        slots = (Slot(NodeId(0), tuple(range(4, 4 + number)), 1000 * number),)
        place = Place(Placement(job, slots, GUARANTEED))
        assert refusal(world.state.cluster, place, world.now) == why
