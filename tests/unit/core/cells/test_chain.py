"""The geometry of a chain, against cells written out as sets of leaves."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.core.cells.chain import bits, chains_of
from allotment.model.cells import CellType, RootCell, Topology
from allotment.model.cluster import Device, Node
from allotment.model.errors import InvariantViolated
from allotment.model.ids import DeviceIndex, NodeId
from tests.unit.core.cells.plots import (
    LEAVES,
    MACHINES,
    NODE,
    PAIR,
    RACK,
    ROOTS,
    SIZES,
    TYPES,
    WIDTH,
    a_chain,
    cells_at,
    common_level,
    leaves_of,
)

CHAIN = a_chain()
CELL = st.sampled_from([cell for level in range(5) for cell in cells_at(level)])


def test_levels_have_names_and_sizes() -> None:
    assert CHAIN.names == ("V100", "pair", "socket", "node", "rack")
    assert CHAIN.size == SIZES
    assert CHAIN.cells == (32, 16, 8, 4, 2)
    assert CHAIN.per == (1, 1, 1, 1, 2)
    assert (CHAIN.level_of("node"), CHAIN.level_of("rack"), CHAIN.level_of("x")) == (3, 4, None)
    assert CHAIN.name_of((PAIR, 9)) == "r1/0/0/1"


def test_a_level_may_be_called_by_the_end_of_its_type() -> None:
    types = (
        CellType("v100-node", "V100", 8, is_node=True),
        CellType("v100-rack", "v100-node", 2),
    )
    roots = tuple(RootCell("v100-rack", root.name, root.nodes) for root in ROOTS)
    (chain,) = chains_of(Topology(types, roots), MACHINES)
    assert (chain.level_of("rack"), chain.level_of("node")) == (2, 1)


def test_a_leaf_has_its_part_of_the_poorest_host() -> None:
    poor = Node(NodeId(1), "n1", 32_000, MACHINES[1].memory, 0, MACHINES[1].devices)
    (chain,) = chains_of(Topology(TYPES, ROOTS), (MACHINES[0], poor, *MACHINES[2:]))
    assert (chain.share.cpu_milli, CHAIN.share.cpu_milli) == (4_000, 8_000)


def test_leaves_may_lie_in_another_order_than_devices() -> None:
    order = (0, 4, 1, 5, 2, 6, 3, 7)
    roots = tuple(RootCell(r.type, r.name, r.nodes, (order, order)) for r in ROOTS)
    (chain,) = chains_of(Topology(TYPES, roots), MACHINES)
    assert chain.mask(0, (0, 4)) == 0b11
    assert chain.devices_at(0, 0b1100) == (1, 5)


def test_a_node_with_too_few_leaves_is_a_bug() -> None:
    roots = (RootCell("rack", "r0", (NodeId(0), NodeId(1)), ((0, 1), (0, 1))),)
    with pytest.raises(InvariantViolated, match="leaves"):
        chains_of(Topology(TYPES, roots), MACHINES)


@given(CELL, CELL)
def test_cells_overlap_when_they_have_a_leaf_in_common(
    one: tuple[int, int], other: tuple[int, int]
) -> None:
    assert CHAIN.overlap(one, other) == bool(leaves_of(one) & leaves_of(other))


@given(CELL, st.integers(0, RACK))
def test_what_holds_a_cell_and_what_it_is_made_of(cell: tuple[int, int], level: int) -> None:
    leaves = leaves_of(cell)
    if level >= cell[0]:
        assert leaves <= leaves_of(CHAIN.above(cell, level))
    if cell[0]:
        children = [leaves_of((cell[0] - 1, n)) for n in CHAIN.children(cell)]
        assert frozenset().union(*children) == leaves
    mask = CHAIN.mask_of(cell)
    on_nodes = {n * WIDTH + leaf for n in CHAIN.nodes_of(cell) for leaf in bits(mask)}
    assert on_nodes == leaves
    assert CHAIN.cell_at(cell[0], min(leaves) // WIDTH, min(leaves) % WIDTH) == cell


def best_level(free: int, count: int) -> int:
    """Try all choices of so many free leaves of a node."""
    return min(common_level(set(choice)) for choice in combinations(list(bits(free)), count))


@given(st.integers(1, 255), st.integers(1, 8))
def test_leaves_are_picked_in_the_smallest_common_cell(free: int, count: int) -> None:
    picked = CHAIN.pick(free, count)
    if free.bit_count() < count:
        assert picked == 0
        return
    assert picked.bit_count() == count
    assert not picked & ~free
    level = common_level(set(bits(picked)))
    assert CHAIN.common_level(picked) == level == best_level(free, count)


@given(st.integers(1, 255), st.integers(1, 8))
def test_of_the_smallest_cells_the_fullest_is_taken(free: int, count: int) -> None:
    picked = CHAIN.pick(free, count)
    if not picked:
        return
    level = common_level(set(bits(picked)))

    def room(cell: tuple[int, int]) -> int:
        return len(leaves_of(cell) & set(bits(free)))

    cells = [cell for cell in cells_at(level) if cell[1] < WIDTH // SIZES[level]]
    mine = next(cell for cell in cells if set(bits(picked)) <= leaves_of(cell))
    assert room(mine) == min(room(cell) for cell in cells if room(cell) >= count)


def test_no_leaves_are_picked_of_none() -> None:
    assert CHAIN.pick(0, 1) == CHAIN.pick(255, 0) == 0
    assert CHAIN.full == (1 << WIDTH) - 1
    assert sum(CHAIN.size[NODE] for _ in CHAIN.nodes) == LEAVES


def test_what_is_left_of_a_task_goes_where_it_fills_a_cell() -> None:
    """Of three sockets with 4, 3 and 1 free: a task of 5 fills the first and the last."""
    types = (CellType("socket", "V100", 4), CellType("node", "socket", 3, is_node=True))
    devices = tuple(Device(DeviceIndex(d), "V100") for d in range(12))
    machine = Node(NodeId(0), "n0", 64_000, 512, 0, devices)
    (chain,) = chains_of(Topology(types, (RootCell("node", "r", (NodeId(0),)),)), (machine,))
    assert list(bits(chain.pick(0b0001_0111_1111, 5))) == [0, 1, 2, 3, 8]
