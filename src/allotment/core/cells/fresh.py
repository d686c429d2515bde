"""Cells that could be bound anew: alone, or small ones of one node side by side."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from allotment.core.cells.chain import Cell, Chain
from allotment.core.cells.holding import Holding
from allotment.core.cells.safety import allows, spare
from allotment.core.cells.space import Space

Serves = Callable[[Cell], bool]


def _any(_: Cell) -> bool:
    return True


def fresh_cells(
    space: Space,
    level: int,
    region: Cell | None,
    bound: Sequence[Cell] = (),
    serves: Serves = _any,
) -> Iterator[Cell]:
    """Return free cells of a level, in the order in which they had best be bound.

    Those without borrowers first; of these the ones that need no splitting of larger
    cells. A larger one is split only if nobody is owed it. Each is legal given that those
    before it are bound too; while hardware is broken, given that those in `bound` are,
    which may grow meanwhile. Nothing is bound here; no larger cell is split but for one that
    `serves`.
    """
    if not space.broken:
        yield from _healthy(space, level, region, serves)
        return
    for cell in _healthy_or_not(space, level, region, serves):
        apart = not any(space.chain.overlap(cell, other) for other in bound)
        if apart and allows(space, [*bound, cell]):
            yield cell


def _healthy_or_not(
    space: Space, level: int, region: Cell | None, serves: Serves
) -> Iterator[Cell]:
    """Return healthy cells first: one that is broken in part is better than nothing."""
    yield from _healthy(space, level, region, serves)
    for number in sorted(space.broken_at(level, *_range(space.chain, level, region))):
        yield (level, number)


def _healthy(space: Space, level: int, region: Cell | None, serves: Serves) -> Iterator[Cell]:
    chain = space.chain
    left = spare(chain, space.count, space.owed)
    for quiet in (True, False):
        for up in range(level, chain.top + 1):
            for number in space.free_at(up, *_range(chain, up, region), quiet=quiet):
                if any(left[at] < 1 for at in range(level + 1, up + 1)):
                    break
                parts: Iterable[Cell] = _parts(space, (up, number), level, region)
                if serves is not _any:
                    parts = [part for part in parts if serves(part)]
                    if not parts:
                        continue
                for at in range(level + 1, up + 1):
                    left[at] -= 1
                yield from parts


def _range(chain: Chain, level: int, region: Cell | None) -> tuple[int, int]:
    """Number the cells of a level that lie in a region, or hold it."""
    if region is None:
        return (0, chain.cells[level])
    if level >= region[0]:
        number = chain.above(region, level)[1]
        return (number, number + 1)
    inside = chain.size[region[0]] // chain.size[level]
    return (region[1] * inside, (region[1] + 1) * inside)


def _parts(space: Space, cell: Cell, level: int, region: Cell | None) -> Iterator[Cell]:
    """Return the cells of a level in a larger free one, fewest borrowers first."""
    if cell[0] == level:
        yield cell
        return
    chain = space.chain
    first, end = _range(chain, cell[0] - 1, region)
    below = [(cell[0] - 1, n) for n in chain.children(cell) if first <= n < end]
    if space.cost_of(cell):
        below.sort(key=space.cost_of)
    for child in below:
        yield from _parts(space, child, level, region)


def side_by_side(
    holding: Holding,
    level: int,
    want: int,
    region: Cell | None,
    bound: Sequence[Cell] = (),
) -> Iterator[tuple[Cell, ...]]:
    """Return groups of free cells of a level on one node that hold so many leaves together.

    What is free already in the tenant's cells of that level on the node counts. Each group
    is legal beside those in `bound`.
    """
    space, chain = holding.space, holding.chain
    size = chain.size[level]
    seen: set[int] = set()
    for room, at, node in reversed(list(holding.nodes_with(1))):
        if at == level and (region is None or node in chain.nodes_of(region)):
            seen.add(node)
            yield from _group(space, level, node, -(-(want - room) // size), region, bound)
    for node in _roomy(space, level, want, region, MOST_ALIKE + len(bound)):
        if node not in seen:
            yield from _group(space, level, node, -(-want // size), region, bound)


def _roomy(
    space: Space, level: int, want: int, region: Cell | None, most: int
) -> Iterator[int]:
    """Number nodes with so many free leaves, the best first.

    That is where several small free cells are as near to each other as they can be; then
    where one free cell is split, the smallest; at worst several that are further apart.
    """
    chain = space.chain
    inside = range(len(chain.nodes)) if region is None else chain.nodes_of(region)
    large = next((up for up in range(level, chain.top + 1) if chain.size[up] >= want), None)
    apart = list[int]()
    if large is None or large > level:
        top = chain.top if large is None else large - 1
        for node in islice(_in_pieces(space, level, want, region, top), most + 1):
            if large is not None and _nearness(space, node, level, want, region) <= large:
                yield node
            else:
                apart.append(node)
    for up in range(level if large is None else large, chain.top + 1):
        cells = space.free_at(up, *_range(chain, up, region), quiet=None)
        if chain.size[up] >= want:
            every = (node for cell in cells for node in chain.nodes_of((up, cell)))
            yield from islice((node for node in every if node in inside), most + 1)
    yield from apart


def _in_pieces(
    space: Space, level: int, want: int, region: Cell | None, top: int
) -> Iterator[int]:
    """Number nodes with so many leaves in free cells up to a level, the fullest first."""
    chain = space.chain
    nodes: dict[int, int] = {}
    for up in range(level, min(top, chain.node_level - 1) + 1):
        for number in space.free_at(up, *_range(chain, up, region), quiet=None):
            node = chain.nodes_of((up, number))[0]
            nodes[node] = nodes.get(node, 0) + chain.size[up]
    for node, leaves in sorted(nodes.items(), key=lambda item: (item[1], item[0])):
        if leaves >= want:
            yield node


def _nearness(space: Space, node: int, level: int, want: int, region: Cell | None) -> int:
    """Return the level of the smallest cell of a node with so many free leaves in it."""
    chain = space.chain
    cells = _free_on(space, level, node, region)
    count = -(-want // chain.size[level])
    for up in range(level, chain.node_level):
        inside = Counter(chain.above(cell, up) for cell in cells)
        if max(inside.values(), default=0) >= count:
            return up
    return chain.node_level


MOST_ALIKE = 4
"""Nodes of free cells of one level that are tried: all do the same to shares of others."""


def _group(
    space: Space,
    level: int,
    node: int,
    count: int,
    region: Cell | None,
    bound: Sequence[Cell],
) -> Iterator[tuple[Cell, ...]]:
    """Return one legal group of so many free cells of a node, if there is one."""
    chain = space.chain
    free = [
        cell
        for cell in _free_on(space, level, node, region)
        if not any(chain.overlap(cell, other) for other in bound)
    ]
    if count <= 0 or len(free) < count:
        return
    free.sort(key=lambda cell: (space.cost_of(cell), cell))
    for group in _choices(space, free, count):
        if allows(space, [*bound, *group]):
            yield group
            return


def _choices(space: Space, free: Sequence[Cell], count: int) -> Iterator[tuple[Cell, ...]]:
    """Return groups of so many of the free cells of a node: the nearest to each other first.

    Then those that take the smallest larger cells apart: others may be owed larger ones.
    """
    yield _together(space.chain, free, count)
    yield tuple(sorted(free, key=space.free_around)[:count])


def _free_on(space: Space, level: int, node: int, region: Cell | None) -> list[Cell]:
    """Return the free cells of a level on a node."""
    chain = space.chain
    inside = chain.width // chain.size[level]
    first, end = _range(chain, level, region)
    numbers = range(max(first, node * inside), min(end, (node + 1) * inside))
    return [(level, number) for number in numbers if space.is_free((level, number))]


def _together(chain: Chain, free: Sequence[Cell], count: int) -> tuple[Cell, ...]:
    """Choose so many of the free cells of a node, in the smallest common cell."""
    level = free[0][0]
    for up in range(level, chain.node_level + 1):
        groups: dict[Cell, list[Cell]] = {}
        for cell in free:
            groups.setdefault(chain.above(cell, up), []).append(cell)
        fits = [group for group in groups.values() if len(group) >= count]
        if fits:
            return tuple(min(fits, key=lambda group: (len(group), group))[:count])
    return tuple(free[:count])
