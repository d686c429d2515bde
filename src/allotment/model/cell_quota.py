"""Whether there is what tenants are guaranteed: by shape, not only in sum.

A chain is cut from the top: cells guaranteed at a level are taken whole, the rest is split.
Since all cells of a type are alike and lie in each other, that finds a place for every
guarantee if there is one at all. Pinned cells are carved out first; their siblings remain.
"""

from collections.abc import Iterator, Sequence
from math import prod

import msgspec

from allotment.model.cells import CellShare, PinnedCell, RootCell, Topology
from allotment.model.tenancy import Tenant


class Shape(msgspec.Struct, frozen=True):
    """How the cells of a chain are made. Places count from the top, 0, to the leaf."""

    types: tuple[str, ...]
    counts: tuple[int, ...]
    """How many cells of the next type each is made of; none for the leaf."""
    node: int
    """The place of whole machines."""

    def leaves(self, place: int = 0) -> int:
        """Count the leaves of a cell."""
        return prod(self.counts[place:])

    def nodes(self, place: int = 0) -> int:
        """Count the nodes of a cell; 1 for one that is part of a node."""
        return prod(self.counts[place : self.node])


class Span(msgspec.Struct, frozen=True):
    """A particular cell: the leaves it has, numbered over all roots of its chain."""

    chain: str
    place: int
    first: int
    count: int

    def overlaps(self, other: "Span") -> bool:
        """Whether the two have a leaf in common."""
        return (
            self.chain == other.chain
            and self.first < other.first + other.count
            and other.first < self.first + self.count
        )


class Shortage(msgspec.Struct, frozen=True):
    """A level of a chain at which more whole cells are guaranteed than there are."""

    chain: str
    type: str
    wanted: int
    available: int
    """Cells left at that level by what is guaranteed above it and what is pinned."""


def shapes_of(topology: Topology) -> dict[str, Shape]:
    """Return the shape of each chain by its top type, in the order of the roots.

    The types must not go round in circles, and one of each chain is a node.
    """
    types = {kind.name: kind for kind in topology.types}
    shapes: dict[str, Shape] = {}
    for root in topology.roots:
        if root.type in shapes:
            continue
        names, counts, node, name = [root.type], list[int](), 0, root.type
        while name in types:
            if types[name].is_node:
                node = len(counts)
            counts.append(types[name].count)
            name = types[name].child
            names.append(name)
        shapes[root.type] = Shape(tuple(names), tuple(counts), node)
    return shapes


def chains_with(shapes: dict[str, Shape], kind: str) -> tuple[str, ...]:
    """List the chains that have cells of a type, leaves included."""
    return tuple(top for top, shape in shapes.items() if kind in shape.types)


def chain_of(shapes: dict[str, Shape], share: CellShare) -> str:
    """Return in which chain a share lies; "" where no chain, or more than one, has its type."""
    if share.chain:
        found = shapes.get(share.chain)
        return share.chain if found and share.type in found.types else ""
    chains = chains_with(shapes, share.type)
    return chains[0] if len(chains) == 1 else ""


def span_of(topology: Topology, shapes: dict[str, Shape], pin: PinnedCell) -> Span | None:
    """Find the cell that a pin names; None where there is none. O(nodes)."""
    for chain, shape in shapes.items():
        if pin.type not in shape.types:
            continue
        place = shape.types.index(pin.type)
        width, size = shape.leaves(shape.node), shape.leaves(place)
        first = _first_leaf(_roots(topology, chain), pin, width)
        if first is not None and 0 <= pin.leaf < width:
            return Span(chain, place, first // size * size, size)
    return None


def _first_leaf(roots: Sequence[RootCell], pin: PinnedCell, width: int) -> int | None:
    before = 0
    for root in roots:
        if pin.node in root.nodes:
            return (before + root.nodes.index(pin.node)) * width + pin.leaf
        before += len(root.nodes)
    return None


def shortages(topology: Topology, tenants: Sequence[Tenant]) -> tuple[Shortage, ...]:
    """Find every level that lacks cells; none means that all guarantees can be kept at once.

    A share whose chain is not clear is passed over, as is a pin that names no cell: these
    are other mistakes. O(roots + nodes · pins + shares · levels).
    """
    shapes = shapes_of(topology)
    wanted = _wanted(shapes, tenants)
    spans = [span for pin in topology.pins if (span := span_of(topology, shapes, pin))]
    found: list[Shortage] = []
    for chain, shape in shapes.items():
        roots = len(_roots(topology, chain))
        pinned = [span for span in spans if span.chain == chain]
        found += _cut(chain, shape, _carved(shape, roots, pinned), wanted[chain])
    return tuple(found)


def _roots(topology: Topology, chain: str) -> list[RootCell]:
    return [root for root in topology.roots if root.type == chain]


def _wanted(shapes: dict[str, Shape], tenants: Sequence[Tenant]) -> dict[str, list[int]]:
    """Sum up, by chain and place, the cells that tenants are guaranteed beside pinned ones."""
    wanted = {chain: [0] * len(shape.types) for chain, shape in shapes.items()}
    for tenant in tenants:
        for share in tenant.cells:
            chain = chain_of(shapes, share)
            if chain:
                wanted[chain][shapes[chain].types.index(share.type)] += share.count
    return wanted


def _carved(shape: Shape, roots: int, pinned: Sequence[Span]) -> list[int]:
    """Count, by place, the largest cells that hold nothing pinned."""
    sizes = [shape.leaves(place) for place in range(len(shape.types))]
    there, left = roots, list[int]()
    for place, size in enumerate(sizes):
        touched = {span.first // size for span in pinned if span.place >= place}
        left.append(there - len(touched))
        split = {span.first // size for span in pinned if span.place > place}
        there = len(split) * shape.counts[place] if place < len(shape.counts) else 0
    return left


def _cut(
    chain: str, shape: Shape, carved: Sequence[int], wanted: Sequence[int]
) -> Iterator[Shortage]:
    """Go down the levels, and split what is not taken."""
    over = 0
    for place, kind in enumerate(shape.types):
        have = carved[place] + over
        if wanted[place] > have:
            yield Shortage(chain, kind, wanted[place], have)
        if place < len(shape.counts):
            over = max(0, have - wanted[place]) * shape.counts[place]
