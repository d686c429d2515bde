"""Parts of devices: several tasks share a leaf, up to all of it."""

from allotment.core.cells.search import find
from allotment.core.request import Request, needs_of
from allotment.model.quantity import GIB, Resources
from tests.unit.core.cells.plots import a_book, gang, owns


def test_roles_of_one_gang_do_not_share_more_of_a_leaf_than_there_is() -> None:
    cells = a_book(owns("a", pair=1))
    first = gang(1, 0.25)
    found = find(cells, "a", "", first)
    assert found is not None
    cells.take("a", "", found.slots, needs_of(first), found.quota)
    half = Request(1, Resources(500, 1000, GIB))
    found = find(cells, "a", "", (half, half))
    assert found is not None
    assert [slot.devices for slot in found.slots] == [(0,), (1,)]
