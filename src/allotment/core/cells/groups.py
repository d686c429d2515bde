"""Cells for the groups of a gang: which of a level to try, the best first.

A gang may be made of groups that must each lie within one cell, wherever the cells are.
"""

from collections.abc import Iterator

from allotment.core.cells.chain import Cell, Chain
from allotment.core.cells.holding import Holding
from allotment.core.cells.idle import Idle


def group_cells(holding: Holding, outer: Cell | None, level: int, want: int) -> Iterator[Cell]:
    """Return cells of a level, in `outer`, in which a tenant could have so many leaves.

    Those with room in cells that are bound come first, the tightest before others; then
    such as would have to be bound, cell by cell of the size that would be, those without
    borrowers first. There may be less room than it seems: whoever is given one tries it.
    O(nodes in `outer`).
    """
    chain = holding.chain
    if outer is not None and outer[0] <= level:
        yield outer
        return
    nodes = _nodes(chain, outer)
    bound = _rooms(chain, level, outer, ((node, _bound_on(holding, node)) for node in nodes))
    kinds = [kind for kind, count in holding.unbound.items() if count > 0]
    fresh = dict[int, int]()
    if kinds:
        free = ((node, _free_on(holding, node)) for node in nodes)
        fresh = _rooms(chain, level, outer, free)
    yield from (
        (level, number)
        for room, number in sorted((room, number) for number, room in bound.items())
        if room >= want
    )
    if not kinds:
        return
    space, up = holding.space, max(level, *kinds)
    ranked: list[tuple[int, int, int, int]] = []
    for number, room in fresh.items():
        already = bound.get(number, 0)
        if already + room >= want and not already >= want > 0:
            larger = chain.above((level, number), up)
            ranked.append((space.cost_of(larger), larger[1], room, number))
    yield from ((level, number) for _, _, _, number in sorted(ranked))


def roomy(holding: Holding, level: int, want: int) -> Iterator[Cell]:
    """Return cells of a level with that many leaves of the tenant's, or nobody's. O(nodes)."""
    chain = holding.chain
    nodes = range(len(chain.nodes))
    leaves = ((node, _bound_on(holding, node) | _free_on(holding, node)) for node in nodes)
    rooms = _rooms(chain, level, None, leaves)
    for room, number in sorted((room, number) for number, room in rooms.items()):
        if room >= want:
            yield (level, number)


def idle_cells(
    chain: Chain, idle: Idle, outer: Cell | None, level: int, want: int
) -> Iterator[Cell]:
    """Return cells of a level, in `outer`, with so many idle leaves, the tightest first."""
    if outer is not None and outer[0] <= level:
        yield outer
        return
    leaves = ((node, idle.leaves[node]) for node in _nodes(chain, outer))
    rooms = _rooms(chain, level, outer, leaves)
    yield from (
        (level, number)
        for room, number in sorted((room, number) for number, room in rooms.items())
        if room >= want
    )


def _nodes(chain: Chain, outer: Cell | None) -> range:
    return range(len(chain.nodes)) if outer is None else chain.nodes_of(outer)


def _rooms(
    chain: Chain, level: int, outer: Cell | None, leaves: Iterator[tuple[int, int]]
) -> dict[int, int]:
    """Count leaves by the cell of a level, in `outer`, they lie in; cells without any too."""
    rooms: dict[int, int] = {}
    if level >= chain.node_level:
        for node, mask in leaves:
            number = node // chain.per[level]
            rooms[number] = rooms.get(number, 0) + mask.bit_count()
        return rooms
    inside = chain.width // chain.size[level]
    masks = [(place, chain.mask_of((level, place))) for place in range(inside)]
    if outer is not None:
        masks = [(place, part) for place, part in masks if part & chain.mask_of(outer)]
    for node, mask in leaves:
        for place, part in masks:
            rooms[node * inside + place] = (mask & part).bit_count()
    return rooms


def _bound_on(holding: Holding, node: int) -> int:
    """Return the leaves of a node that are the tenant's and not in use."""
    mine = 0
    for leaves in holding.mine.values():
        mine |= leaves.get(node, 0)
    return mine & ~holding.used.get(node, 0) & ~holding.space.shut[node]


def _free_on(holding: Holding, node: int) -> int:
    """Return the leaves of a node that are nobody's."""
    space = holding.space
    return holding.chain.full & ~space.held[node] & ~space.shut[node]
