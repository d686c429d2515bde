"""Groups of tasks within one cell each, from submission to placement."""

import pytest

from allotment.core.cells.chain import in_one_cell
from allotment.model.errors import Code, Rejected
from allotment.model.ids import JobId
from allotment.model.ledger import Slot
from allotment.model.lifecycle import JobState
from tests.support.builders import JobBuilder, a_config, a_job, a_tenant
from tests.support.cells import a_cell_world
from tests.support.world import World

CELLS = """\
hardware: [4 x dgx-v100 in racks of 2]
tenants:
  vision: {cells: {dgx-v100-node: 2}}
  guest: {}
"""


def grouped(count: int, size: int, level: str, each: int = 1) -> JobBuilder:
    return a_job().tasks(count).gpus(each).grouped(size, level)


def slots(world: World, job: JobId) -> tuple[Slot, ...]:
    return world.job(job).attempts[-1].slots


def sockets(world: World, job: JobId) -> list[bool]:
    """Tell of each group of four whether it lies within one socket."""
    cells = world.state.cluster.cells
    assert cells is not None
    place = slots(world, job)
    groups = [place[at : at + 4] for at in range(0, len(place), 4)]
    return [in_one_cell(cells.chains, "socket", group) for group in groups]


@pytest.mark.parametrize("tenant", ["vision", "guest"])
def test_each_group_lies_within_one_socket_and_the_gang_within_one_rack(tenant: str) -> None:
    world = a_cell_world(CELLS)
    job = world.submit(grouped(12, 4, "socket").within_one("rack").of(tenant))
    world.cycle()
    assert world.job(job).state is JobState.STARTING
    assert sockets(world, job) == [True] * 3
    assert {slot.node // 2 for slot in slots(world, job)} == {0}


def test_a_group_larger_than_its_cell_is_refused_with_what_would_fit() -> None:
    world = a_cell_world(CELLS)
    with pytest.raises(Rejected) as caught:
        world.submit(grouped(16, 8, "socket"))
    assert caught.value.code is Code.NEVER_FITS
    assert "each 8 within one socket" in caught.value.message
    with pytest.raises(Rejected) as caught:
        world.submit(grouped(8, 4, "shelf"))
    assert caught.value.message == "No cell here is a 'shelf', so no job can run within one."


def test_counted_nodes_keep_groups_together_too() -> None:
    world = World(a_config(a_tenant("vision", 16), nodes=2))
    first = world.submit(a_job().gpus(2))
    pairs = world.submit(grouped(12, 6, "node"))
    world.cycle()
    place = slots(world, pairs)
    assert [len({slot.node for slot in place[at : at + 6]}) for at in (0, 6)] == [1, 1]
    assert world.job(first).state is JobState.STARTING
    with pytest.raises(Rejected, match="can never start here"):
        world.submit(grouped(9, 9, "node"))
