"""What the committer refuses, whoever proposes it."""

import pytest

from allotment.core.commit import refusal
from allotment.core.plan import Place
from allotment.model.ids import NodeId
from allotment.model.ledger import Entitlement, Placement, Slot
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


def test_a_promise_is_kept_where_it_was_made() -> None:
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
