"""Promised cells: the arithmetic against trying every assignment."""

from hypothesis import given
from hypothesis import strategies as st

from allotment.model.cell_quota import shapes_of, shortages, span_of
from allotment.model.cells import CellShare, CellType, PinnedCell, RootCell, Topology
from allotment.model.ids import NodeId
from allotment.model.tenancy import Tenant


@st.composite
def forests(draw: st.DrawFn) -> tuple[Topology, list[Tenant]]:
    """A small chain, with some pinned cells that lie apart, and shares of two tenants."""
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    node = draw(st.integers(0, len(counts) - 1))
    names = [f"t{at}" for at in range(len(counts))] + ["leaf"]
    types = tuple(
        CellType(names[at], names[at + 1], count, is_node=at == node)
        for at, count in enumerate(counts)
    )
    bare = Topology(types)
    width = 1
    for count in counts[:node]:
        width *= count
    roots = tuple(
        RootCell("t0", f"r{at}", tuple(NodeId(at * width + place) for place in range(width)))
        for at in range(draw(st.integers(1, 3)))
    )
    bare = Topology(types, roots)
    (shape,) = shapes_of(bare).values()
    pins: list[PinnedCell] = []
    for at in range(draw(st.integers(0, 3))):
        pin = PinnedCell(
            f"p{at}",
            draw(st.sampled_from(names)),
            NodeId(draw(st.integers(0, len(roots) * width - 1))),
            draw(st.integers(0, shape.leaves(shape.node) - 1)),
        )
        span = span_of(bare, {"t0": shape}, pin)
        assert span is not None
        others = [span_of(bare, {"t0": shape}, other) for other in pins]
        if not any(other and span.overlaps(other) for other in others):
            pins.append(pin)
    wanted = st.lists(st.integers(0, 3), min_size=len(names), max_size=len(names))
    tenants = [
        Tenant(
            name,
            cells=tuple(
                CellShare(kind, count)
                for kind, count in zip(names, draw(wanted), strict=True)
                if count
            ),
        )
        for name in ("a", "b")
    ]
    return Topology(types, roots, tuple(pins)), tenants


def can_be_assigned(topology: Topology, tenants: list[Tenant]) -> bool:
    """Try every way to give each promised cell a cell of its own."""
    shapes = shapes_of(topology)
    (shape,) = shapes.values()
    free = [True] * (shape.leaves() * len(topology.roots))
    for pin in topology.pins:
        span = span_of(topology, shapes, pin)
        assert span is not None
        free[span.first : span.first + span.count] = [False] * span.count
    sizes = [
        shape.leaves(shape.types.index(share.type))
        for tenant in tenants
        for share in tenant.cells
        for _ in range(share.count)
    ]
    if sum(sizes) > sum(free):
        return False
    return _assign(free, sorted(sizes), {})


def _assign(free: list[bool], sizes: list[int], seen: dict[tuple[object, ...], bool]) -> bool:
    if not sizes:
        return True
    key = (tuple(free), len(sizes))
    if key not in seen:
        size = sizes[-1]
        seen[key] = any(
            all(free[at : at + size])
            and _assign([*free[:at], *[False] * size, *free[at + size :]], sizes[:-1], seen)
            for at in range(0, len(free), size)
        )
    return seen[key]


@given(forests())
def test_nothing_is_short_exactly_when_every_cell_can_be_given(
    forest: tuple[Topology, list[Tenant]],
) -> None:
    topology, tenants = forest
    assert (not shortages(topology, tenants)) is can_be_assigned(topology, tenants)
