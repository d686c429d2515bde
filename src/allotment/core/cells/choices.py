"""Which cells to try for a guaranteed gang, the best first.

Free cells that could be bound anew: alone, or small ones of one node side by side. And cells
for the groups of a gang, each of which must lie within one cell, wherever the cells are.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from itertools import islice
from typing import ClassVar, Generic, TypeVar

from allotment.core.cells.chain import Cell, Chain
from allotment.core.cells.holding import Holding
from allotment.core.cells.space import Space, allows, spare
from allotment.core.cells.use import Idle
from allotment.core.request import Request, one_group
from allotment.model.engines import ANY_ENGINE
from allotment.model.quantity import DEVICE
from allotment.model.spec import Arch

P = TypeVar("P")
"""Where one task goes."""

Suits = Callable[[Cell], bool]


def any_cell(_: Cell) -> bool:
    """Whether a cell suits: each does."""
    return True


def fresh_cells(
    space: Space,
    level: int,
    region: Cell | None,
    bound: Sequence[Cell] = (),
    suits: Suits = any_cell,
) -> Iterator[Cell]:
    """Return free cells of a level, in the order in which they had best be bound.

    Those without borrowers first; of these the ones that need no splitting of larger
    cells. A larger one is split only if it is in no guarantee. Each is legal given that those
    before it are bound too; while hardware is broken, given that those in `bound` are,
    which may grow meanwhile. Nothing is bound here; no larger cell is split but for one that
    `suits`.
    """
    if not space.broken:
        yield from _healthy(space, level, region, suits)
        return
    for cell in _healthy_or_not(space, level, region, suits):
        apart = not any(space.chain.overlap(cell, other) for other in bound)
        if apart and allows(space, [*bound, cell]):
            yield cell


def _healthy_or_not(
    space: Space, level: int, region: Cell | None, suits: Suits
) -> Iterator[Cell]:
    """Return healthy cells first: one that is broken in part is better than nothing."""
    yield from _healthy(space, level, region, suits)
    for number in sorted(space.broken_at(level, *_range(space.chain, level, region))):
        yield (level, number)


def _healthy(space: Space, level: int, region: Cell | None, suits: Suits) -> Iterator[Cell]:
    chain = space.chain
    left = spare(chain, space.count, space.unbound)
    for quiet in (True, False):
        for up in range(level, chain.top + 1):
            for number in space.free_at(up, *_range(chain, up, region), quiet=quiet):
                if up > level and min(left[level + 1 : up + 1]) < 1:
                    break
                if up == level and suits is any_cell:
                    yield (up, number)
                    continue
                parts: Iterable[Cell] = _parts(space, (up, number), level, region)
                if suits is not any_cell:
                    parts = [part for part in parts if suits(part)]
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
    cells = _free_cells(space, level, node, region)
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
        for cell in _free_cells(space, level, node, region)
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

    Then those that take the smallest larger cells apart: others may be guaranteed larger ones.
    """
    yield _together(space.chain, free, count)
    yield tuple(sorted(free, key=space.free_around)[:count])


def _free_cells(space: Space, level: int, node: int, region: Cell | None) -> list[Cell]:
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


# ── for groups of a gang ──────────────────────────────────────────────────────────────────


def group_cells(holding: Holding, outer: Cell | None, level: int, want: int) -> Iterator[Cell]:
    """Return cells of a level, in `outer`, in which a tenant could have so many leaves.

    Those with room in cells that are bound come first, the tightest before others; then
    such as would have to be bound, cell by cell of the size that would be, those without
    borrowers first. There may be less room than it seems: the caller tries each.
    O(nodes in `outer`).
    """
    chain = holding.chain
    if outer is not None and outer[0] <= level:
        yield outer
        return
    nodes = _nodes(chain, outer)
    bound = _rooms(
        chain, level, outer, ((node, _bound_leaves(holding, node)) for node in nodes)
    )
    kinds = [kind for kind, count in holding.unbound.items() if count > 0]
    fresh = dict[int, int]()
    if kinds:
        free = ((node, _free_leaves(holding, node)) for node in nodes)
        fresh = _rooms(chain, level, outer, free)
    yield from _tightest(level, bound, want)
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
    """Return cells of a level with that many leaves of the tenant's, or free. O(nodes)."""
    chain = holding.chain
    nodes = range(len(chain.nodes))
    leaves = (
        (node, _bound_leaves(holding, node) | _free_leaves(holding, node)) for node in nodes
    )
    return _tightest(level, _rooms(chain, level, None, leaves), want)


def idle_cells(
    chain: Chain, idle: Idle, outer: Cell | None, level: int, want: int
) -> Iterator[Cell]:
    """Return cells of a level, in `outer`, with so many idle leaves, the tightest first."""
    if outer is not None and outer[0] <= level:
        yield outer
        return
    leaves = ((node, idle.leaves[node]) for node in _nodes(chain, outer))
    yield from _tightest(level, _rooms(chain, level, outer, leaves), want)


def _tightest(level: int, rooms: dict[int, int], want: int) -> Iterator[Cell]:
    """Return the cells of a level with so much room, those with least of it first."""
    for room, number in sorted((room, number) for number, room in rooms.items()):
        if room >= want:
            yield (level, number)


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


def _bound_leaves(holding: Holding, node: int) -> int:
    """Return the leaves of a node that are the tenant's and not in use."""
    mine = 0
    for leaves in holding.mine.values():
        mine |= leaves.get(node, 0)
    return mine & ~holding.used.get(node, 0) & ~holding.space.shut[node]


def _free_leaves(holding: Holding, node: int) -> int:
    """Return the leaves of a node that are in no tenant's cell."""
    space = holding.space
    return holding.chain.full & ~space.held[node] & ~space.shut[node]


class GangSearch(ABC, Generic[P]):
    """The places of one gang: role by role, or group by group."""

    chain: Chain
    region: Cell | None
    """The cell to place them in; None for anywhere."""
    state: ClassVar[tuple[str, ...]]
    """The attributes that say what its places take so far."""

    @abstractmethod
    def place(self, request: Request) -> list[P]:
        """Find places for all tasks of a role, or for as many as there are."""

    @abstractmethod
    def cells_for_groups(self, level: int, want: int) -> Iterator[Cell]:
        """Return cells of a level to try for a group that wants so many whole leaves."""

    def is_legal(self) -> bool:
        """Whether the places found so far may be used together."""
        return True

    def place_roles(self, requests: tuple[Request, ...]) -> list[P] | None:
        """Place every task, the ones with most devices first; places in rank order."""
        order = sorted(
            range(len(requests)),
            key=lambda i: (-requests[i].devices * max(1, requests[i].group), i),
        )
        places: list[list[P]] = [[] for _ in requests]
        for role in order:
            request = requests[role]
            found = self._place_groups(request) if request.group else self.place(request)
            if len(found) < request.count:
                return None
            places[role] = found
        return [place for role in places for place in role]

    def _place_groups(self, request: Request) -> list[P]:
        """Find places for groups of tasks, each within one cell of their level.

        As many as fit in each cell: cells of a level do not overlap and groups are alike.
        """
        outer, one = self.region, one_group(request)
        level = self.chain.level_of(request.group_within)
        assert level is not None, "chains without that level are not asked"
        want = one.count * one.devices if one.need.gpu_milli >= DEVICE else 0
        found: list[P] = []
        for cell in self.cells_for_groups(level, want):
            self.region = cell
            while len(found) < request.count and (places := self._whole_group(one)):
                found += places
            if len(found) >= request.count:
                break
        self.region = outer
        return found[: request.count]

    def _whole_group(self, request: Request) -> list[P]:
        """Find places for all of these tasks, or for none."""
        before = {name: copy(getattr(self, name)) for name in self.state}
        found = self.place(request)
        if len(found) == request.count and self.is_legal():
            return found
        for name, value in before.items():
            setattr(self, name, value)
        return []


def serves(chain: Chain, requests: tuple[Request, ...]) -> bool:
    """Whether the hardware of a chain is what a gang asks for."""
    return all(
        (not r.types or chain.names[0] in r.types)
        and r.arch in (Arch.ANY, chain.arch)
        and r.engine in ("", ANY_ENGINE, chain.engine)
        and chain.lacks.isdisjoint(r.asks)
        and r.need.gpu_memory <= chain.memory
        and (not r.group or chain.level_of(r.group_within) is not None)
        and (not r.devices or chain.has_devices)
        for r in requests
    )
