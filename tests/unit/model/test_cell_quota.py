"""What tenants are promised, against what there is: by shape."""

from allotment.model.cell_quota import Shortage, Span, chain_of, shapes_of, shortages, span_of
from allotment.model.cells import CellShare, CellType, PinnedCell, RootCell, Topology
from allotment.model.ids import NodeId
from allotment.model.tenancy import Tenant

TYPES = (
    CellType("switch", "V100", 2),
    CellType("socket", "switch", 2),
    CellType("node", "socket", 2, is_node=True),
    CellType("rack", "node", 4),
)


def racks(count: int, *pins: PinnedCell) -> Topology:
    roots = tuple(
        RootCell("rack", f"r{at}", tuple(NodeId(4 * at + place) for place in range(4)))
        for at in range(count)
    )
    return Topology(TYPES, roots, pins)


def guaranteed(**cells: int) -> Tenant:
    return Tenant("t", cells=tuple(CellShare(kind, count) for kind, count in cells.items()))


def test_a_chain_is_its_types_from_the_top_to_the_leaf() -> None:
    (shape,) = shapes_of(racks(1)).values()
    assert shape.types == ("rack", "node", "socket", "switch", "V100")
    assert shape.counts == (4, 2, 2, 2)
    assert (shape.leaves(), shape.leaves(shape.node), shape.nodes(), shape.nodes(2)) == (
        32, 8, 4, 1,
    )  # fmt: skip


def test_all_of_it_can_be_promised() -> None:
    for cells in ({"rack": 2}, {"node": 8}, {"V100": 64}, {"rack": 1, "node": 3, "switch": 4}):
        assert shortages(racks(2), [guaranteed(**cells)]) == ()


def test_equal_sums_are_not_enough() -> None:
    assert shortages(racks(1), [guaranteed(socket=1), guaranteed(node=3, switch=3)]) == (
        Shortage("rack", "switch", 3, 2),
    )


def test_every_level_that_lacks_cells_is_named() -> None:
    assert shortages(racks(1), [guaranteed(rack=2, node=3)]) == (
        Shortage("rack", "rack", 2, 1),
        Shortage("rack", "node", 3, 0),
    )


def test_a_pinned_cell_leaves_its_siblings() -> None:
    pinned = racks(1, PinnedCell("p", "switch", NodeId(2), leaf=5))
    assert shortages(pinned, [guaranteed(node=3, socket=1, switch=1)]) == ()
    assert shortages(pinned, [guaranteed(rack=1)]) == (Shortage("rack", "rack", 1, 0),)
    assert shortages(pinned, [guaranteed(node=3, socket=1, switch=2)]) == (
        Shortage("rack", "switch", 2, 1),
    )


def test_a_pin_is_the_cell_around_its_leaf() -> None:
    topology = racks(2)
    shapes = shapes_of(topology)
    find = PinnedCell("p", "socket", NodeId(5), leaf=6)
    assert span_of(topology, shapes, find) == Span("rack", 2, 44, 4)
    assert span_of(topology, shapes, PinnedCell("p", "rack", NodeId(5))) == Span(
        "rack", 0, 32, 32
    )
    assert span_of(topology, shapes, PinnedCell("p", "socket", NodeId(9))) is None
    assert span_of(topology, shapes, PinnedCell("p", "socket", NodeId(5), leaf=8)) is None
    assert Span("a", 0, 0, 4).overlaps(Span("a", 1, 2, 2))
    assert not Span("a", 0, 0, 4).overlaps(Span("a", 0, 4, 4))
    assert not Span("a", 0, 0, 4).overlaps(Span("b", 0, 0, 4))


def test_chains_are_counted_apart() -> None:
    topology = Topology(
        TYPES,
        (*racks(1).roots, RootCell("node", "n9", (NodeId(9),))),
    )
    shapes = shapes_of(topology)
    assert chain_of(shapes, CellShare("rack", 1)) == "rack"
    assert chain_of(shapes, CellShare("socket", 1)) == ""
    assert chain_of(shapes, CellShare("socket", 1, "node")) == "node"
    assert chain_of(shapes, CellShare("rack", 1, "node")) == ""
    both = Tenant("t", cells=(CellShare("node", 2, "node"), CellShare("node", 4, "rack")))
    assert shortages(topology, [both]) == (Shortage("node", "node", 2, 1),)


def test_nothing_promised_and_nothing_there_are_fine() -> None:
    assert shortages(Topology(), [Tenant("t")]) == ()
    assert shortages(racks(1), [guaranteed(node=0), Tenant("u")]) == ()


def test_cells_side_by_side_do_not_overlap() -> None:
    first, next_, over = Span("c", 0, 0, 4), Span("c", 0, 4, 4), Span("c", 0, 3, 2)
    assert not first.overlaps(next_)
    assert not next_.overlaps(first)
    assert first.overlaps(over)
    assert over.overlaps(next_)
