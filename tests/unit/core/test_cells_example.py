"""The rack of docs/guide/cells.md: four nodes, three tenants, four levels (HiveD, OSDI'20)."""

import itertools
from random import Random

import pytest

from allotment.model.errors import BadInput
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import JobState
from tests.support.builders import a_job
from tests.support.cells import a_cell_world
from tests.support.world import World

CELLS = """\
hardware: [4 x dgx-v100 in racks of 4]
tenants:
  a: {cells: {dgx-v100-socket: 1, dgx-v100-switch: 1, V100: 1}}
  b: {cells: {dgx-v100-socket: 1, dgx-v100-switch: 1, V100: 1}}
  c: {cells: {dgx-v100-node: 2, dgx-v100-switch: 1}}
  d:
"""
COUNTED = """\
hardware: [4 x dgx-v100 in racks of 4]
tenants:
  a: {guaranteed: {gpu: 7}, borrow: false}
  b: {guaranteed: {gpu: 7}, borrow: false}
  c: {guaranteed: {gpu: 18}, borrow: false}
"""
OWED = {"a": (4, 2, 1), "b": (4, 2, 1), "c": (8, 8, 2)}
ALL = [(tenant, devices) for tenant, sizes in OWED.items() for devices in sizes]


def starts(world: World, tenant: str, devices: int) -> JobId | None:
    """Submit a job of one task; None unless it starts at once, in its tenant's own cells."""
    job = world.submit(a_job().of(tenant).gpus(devices))
    world.cycle()
    if world.is_(job) is JobState.QUEUED:
        return None
    assert world.job(job).attempts[-1].entitlement is Entitlement.GUARANTEED
    world.runs(job)
    return job


def place(world: World, job: JobId) -> tuple[int, tuple[int, ...]]:
    (slot,) = world.job(job).attempts[-1].slots
    return slot.node, slot.devices


@pytest.mark.parametrize("seed", range(20))
def test_every_share_is_there_in_any_order(seed: int) -> None:
    order = list(ALL)
    Random(seed).shuffle(order)
    world = a_cell_world(CELLS)
    taken: set[tuple[int, int]] = set()
    for tenant, devices in order:
        job = starts(world, tenant, devices)
        assert job is not None, f"{tenant}'s {devices} after {order}"
        node, numbers = place(world, job)
        # A cell is a whole: its devices begin at a multiple of their number.
        assert numbers == tuple(range(numbers[0], numbers[0] + devices))
        assert numbers[0] % devices == 0
        taken |= {(node, number) for number in numbers}
    assert len(taken) == 32


def test_a_borrower_of_the_whole_rack_makes_way_for_every_share() -> None:
    world = a_cell_world(CELLS)
    filling = [world.submit(a_job().of("d").gpus(1)) for _ in range(32)]
    world.cycle()
    for job in filling:
        world.runs(job)
    owners = [world.submit(a_job().of(tenant).gpus(devices)) for tenant, devices in ALL]
    world.cycle()
    for job in filling:
        assert world.is_(job) is JobState.STOPPING
        world.ends(job)
    world.cycle()
    for job in owners:
        assert world.job(job).attempts[-1].entitlement is Entitlement.GUARANTEED


@pytest.mark.parametrize(("config", "gets_its_node"), [(CELLS, True), (COUNTED, False)])
def test_a_share_in_devices_is_not_worth_a_node(config: str, gets_its_node: bool) -> None:
    # All come in turn, a device at a time; then c's jobs end, and it wants one whole node.
    world = a_cell_world(config)
    singles: dict[str, list[JobId]] = {"a": [], "b": [], "c": []}
    for tenant in itertools.islice(itertools.cycle("cacbc"), 30):
        job = world.submit(a_job().of(tenant).gpus(1))
        world.cycle()
        if world.is_(job) is not JobState.QUEUED:
            world.runs(job)
            singles[tenant].append(job)
    for job in singles["c"]:
        world.ends(job)
    assert (starts(world, "c", 8) is not None) is gets_its_node


def test_one_device_more_is_refused_with_the_level_that_lacks_it() -> None:
    more = CELLS.replace("  d:\n", "  d: {cells: {V100: 1}}\n")
    with pytest.raises(BadInput, match="add up to 3, with room for 2"):
        a_cell_world(more)
