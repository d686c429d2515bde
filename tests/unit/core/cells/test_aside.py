"""Leaves that are reserved for borrowers: idle for no other job, and owners take them."""

from allotment.model.ledger import Slot
from allotment.model.quantity import CPU, DEVICE, Resources
from tests.support.cells import a_cell_world

CLUSTER = """\
hardware: [2 x 4xV100]
tenants:
  a: {cells: {4xV100-node: 1}}
  guests:
"""


def test_reserved_places_come_and_go_in_any_order() -> None:
    cells = a_cell_world(CLUSTER).state.cluster.cells
    assert cells is not None
    node = cells.chains[0].nodes[0]
    before = list(cells.uses[0].idle.leaves)
    host, whole, part = Resources(cpu_milli=CPU), Resources(DEVICE), Resources(DEVICE // 2)
    promises = [
        ((Slot(node, (), 0),), (host,)),
        ((Slot(node, (), 0),), (host,)),
        ((Slot(node, (0,), DEVICE),), (whole,)),
        ((Slot(node, (1,), DEVICE // 2),), (part,)),
        ((Slot(node, (1,), DEVICE // 2),), (part,)),
    ]
    for slots, needs in promises:
        cells.set_aside(slots, needs)
    assert cells.uses[0].idle.leaves[0] == before[0] & ~0b11
    for slots, needs in promises:
        cells.put_back(slots, needs)
    assert list(cells.uses[0].idle.leaves) == before
    assert not cells.uses[0].aside
