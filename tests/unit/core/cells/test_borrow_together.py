"""A borrower's tasks stay together where that can be had."""

import pytest

from allotment.core.cells.book import Cells
from allotment.core.cells.borrow import find_idle
from allotment.core.ledger import Ledger
from allotment.core.request import Request, needs_of
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Slot
from tests.unit.core.cells.plots import MACHINES, a_book, gang, owns


def lent(*leaves: tuple[int, tuple[int, ...]]) -> Cells:
    """A book in which borrowers sit on these leaves of nodes."""
    cells = a_book(owns("a", node=4))
    for job, (node, devices) in enumerate(leaves, 1):
        slot = Slot(NodeId(node), devices, 1000 * len(devices))
        cells.lend(JobId(job), (slot,), needs_of(gang(1, len(devices))))
    return cells


def find(cells: Cells, requests: tuple[Request, ...]) -> list[tuple[int, tuple[int, ...]]]:
    slots = find_idle(cells, requests, Ledger(MACHINES))
    assert slots is not None
    return [(slot.node, slot.devices) for slot in slots]


@pytest.mark.parametrize("tasks", [2, 4])
def test_a_gang_is_not_split_over_nodes_where_one_holds_it(tasks: int) -> None:
    cells = lent((0, (0, 1, 2, 3, 4, 5)), (1, (0, 1, 2, 3)))
    assert len({node for node, _ in find(cells, gang(tasks, 8 // tasks))}) == 1


def test_a_task_is_not_split_over_sockets_where_one_holds_it() -> None:
    cells = lent((0, (0, 1, 4, 5)), (1, (0, 1, 2)), *((n, tuple(range(8))) for n in (2, 3)))
    assert find(cells, gang(1, 4)) == [(1, (4, 5, 6, 7))]


def test_a_gang_is_split_where_no_node_holds_it() -> None:
    cells = lent(*((node, (0, 1, 2, 3)) for node in range(4)))
    assert len({node for node, _ in find(cells, gang(2, 4))}) == 2
