"""What of a chain no tenant has: free cells, as large as they can be, and what they cost.

The rule is buddy allocation (HiveD, OSDI'20, algorithm 1): a free cell whose siblings are
all free is one with its parent; a larger cell is split when a smaller one is wanted. Which
cells are free follows from which leaves are held or shut, and from nothing else: there is
no history in the lists, so what is undone, replayed or reported in another order ends the
same. A shut leaf, one that is broken, is in no cell and parts the cells above it.

Free cells of a level stand in buckets by what it costs to have them: a tenant gets the one
with fewest leaves whose gang is costly to evict, and of these the one with fewest that are lent
at all. Loath is a gang that borrows for want of a share; one that asked for idle cells is not.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence

from allotment.core.cells.chain import Cell, Chain, bits

COSTLY = 1 << 32
"""What a leaf costs whose user is costly to evict, in leaves that are only lent."""


class Space:
    """The free cells of one chain, and what tenants may still bind of them."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        nodes, levels = len(chain.nodes), chain.top + 1
        self.held = [0] * nodes
        """Leaves that lie in a tenant's cell, by node."""
        self.shut = [0] * nodes
        """Leaves that take no new work, by node."""
        self.broken: dict[int, int] = {}
        """The same, for the nodes that have any."""
        self.lent = [0] * nodes
        """Leaves whose user may be sent away, by node."""
        self.costly = [0] * nodes
        """Those of them whose user is costly to evict."""
        self.unbound = [0] * levels
        """Cells that tenants may still ask for, by level."""
        self.count = [0] * levels
        """Free cells, by level."""
        self.whole = [0] * levels
        """Cells that no tenant has, by level, as they would be if nothing were shut."""
        self._busy: list[list[int]] = [
            [0] * chain.cells[level] if level > chain.node_level else []
            for level in range(levels)
        ]
        """Nodes of larger cells that are not wholly free."""
        self._had = [list(cells) for cells in self._busy]
        """Nodes of larger cells of which some tenant has a part."""
        self._cost_of: list[list[int]] = [
            [0] * chain.cells[level] if level > chain.node_level else []
            for level in range(levels)
        ]
        """What larger cells cost."""
        self._free: list[dict[int, list[int]]] = [{} for _ in range(levels)]
        self._free[chain.top] = {0: list(range(chain.cells[chain.top]))}
        self.count[chain.top] = self.whole[chain.top] = chain.cells[chain.top]

    # ── writing ─────────────────────────────────────────────────────────────────────────

    def hold(self, cell: Cell) -> None:
        """Take a cell out of the free ones. What of it is shut comes with it."""
        self._lift(cell)
        self._count_whole(cell, -1)
        mask = self.chain.mask_of(cell)
        for node in self.chain.nodes_of(cell):
            self._set(node, self.held[node] | mask, self.shut[node])

    def let_go(self, cell: Cell) -> None:
        """Put a held cell back, and make it one with its siblings if they are free."""
        mask = self.chain.mask_of(cell)
        for node in self.chain.nodes_of(cell):
            self._set(node, self.held[node] & ~mask, self.shut[node])
        self._count_whole(cell, +1)
        self._lay(cell)

    def set_shut(self, node: int, shut: int) -> None:
        """Set which leaves of a node take no new work."""
        if shut == self.shut[node]:
            return
        cell = (self.chain.node_level, node)
        if shut:
            self.broken[node] = shut
        else:
            del self.broken[node]
        self._lift(cell)
        self._set(node, self.held[node], shut)
        self._lay(cell)

    def set_lent(self, node: int, lent: int, costly: int = 0) -> None:
        """Set on which leaves of a node a costly borrower sits.

        Gangs that are costly to evict sit on lent leaves.
        """
        before, was_costly = self.lent[node], self.costly[node]
        changed = (before ^ lent) | (was_costly ^ costly)
        cells: list[Cell] = []
        for leaf in bits(changed & ~self.held[node] & ~self.shut[node]):
            cell = self.free_around(self.chain.cell_at(0, node, leaf))
            if cell not in cells:
                cells.append(cell)
        for cell in cells:
            self._remove(cell)
        self.lent[node], self.costly[node] = lent, costly
        more = lent.bit_count() - before.bit_count()
        more += COSTLY * (costly.bit_count() - was_costly.bit_count())
        for level in range(self.chain.node_level + 1, self.chain.top + 1):
            self._cost_of[level][node // self.chain.per[level]] += more
        for cell in cells:
            self._add(cell)

    def _set(self, node: int, held: int, shut: int) -> None:
        had, busy = bool(self.held[node]), bool(self.held[node] | self.shut[node])
        self.held[node], self.shut[node] = held, shut
        had, busy = bool(held) - had, bool(held | shut) - busy
        if had or busy:
            for level in range(self.chain.node_level + 1, self.chain.top + 1):
                number = node // self.chain.per[level]
                self._had[level][number] += had
                self._busy[level][number] += busy

    def _count_whole(self, cell: Cell, sign: int) -> None:
        """Count what a cell that no tenant has is part of, and the siblings that go with it."""
        level = self.unheld_around(cell)[0]
        self.whole[level] += sign
        for below in range(cell[0], level):
            self.whole[below] -= sign * (self.chain.fanout[below + 1] - 1)

    # ── coverage ────────────────────────────────────────────────────────────────────────

    def _lift(self, cell: Cell) -> None:
        """Take all free cells in or around a cell out of the lists; leave the rest covered."""
        if not self.is_free(cell):
            for part in list(self.parts_free(cell)):
                self._remove(part)
            return
        around = self.free_around(cell)
        self._remove(around)
        chain = self.chain
        while around[0] > cell[0]:
            level = around[0] - 1
            keep = chain.above(cell, level)[1]
            for child in chain.children(around):
                if child != keep:
                    self._add((level, child))
            around = (level, keep)

    def _lay(self, cell: Cell) -> None:
        """Enter all that is free now in a cell, and merge it upwards."""
        if not self.is_free(cell):
            for part in self.parts_free(cell):
                self._add(part)
            return
        around = self.free_around(cell)
        chain = self.chain
        while cell[0] < around[0]:
            level = cell[0] + 1
            parent = chain.above(cell, level)
            for child in chain.children(parent):
                if child != cell[1]:
                    self._remove((cell[0], child))
            cell = parent
        self._add(around)

    def is_free(self, cell: Cell) -> bool:
        """Whether every leaf of a cell is healthy and in no tenant's cell."""
        level, number = cell
        chain = self.chain
        if level > chain.node_level:
            return not self._busy[level][number]
        node = number * chain.size[level] // chain.width
        return not (self.held[node] | self.shut[node]) & chain.mask_of(cell)

    def free_around(self, cell: Cell) -> Cell:
        """Return the largest free cell that a free one is part of."""
        chain = self.chain
        while cell[0] < chain.top:
            parent = chain.above(cell, cell[0] + 1)
            if not self.is_free(parent):
                break
            cell = parent
        return cell

    def is_unheld(self, cell: Cell) -> bool:
        """Whether no tenant has any leaf of a cell, healthy or not."""
        level, number = cell
        chain = self.chain
        if level > chain.node_level:
            return not self._had[level][number]
        node = number * chain.size[level] // chain.width
        return not self.held[node] & chain.mask_of(cell)

    def unheld_around(self, cell: Cell) -> Cell:
        """Return the largest cell around one of which no tenant has any part."""
        chain = self.chain
        while cell[0] < chain.top:
            parent = chain.above(cell, cell[0] + 1)
            if not self.is_unheld(parent):
                break
            cell = parent
        return cell

    def parts_free(self, cell: Cell) -> Iterator[Cell]:
        """Return the largest free cells in one that is not wholly free."""
        if cell[0] == 0:
            return
        for child in self.chain.children(cell):
            part = (cell[0] - 1, child)
            if self.is_free(part):
                yield part
            else:
                yield from self.parts_free(part)

    def cost_of(self, cell: Cell) -> int:
        """Return what it costs the borrowers in it that a cell is taken."""
        level, number = cell
        chain = self.chain
        if level > chain.node_level:
            return self._cost_of[level][number]
        node = number * chain.size[level] // chain.width
        lent = self.lent[node]
        if not lent:
            return 0
        mask = chain.mask_of(cell)
        return (lent & mask).bit_count() + COSTLY * (self.costly[node] & mask).bit_count()

    def _add(self, cell: Cell) -> None:
        level, number = cell
        bucket = self._free[level].get(cost := self.cost_of(cell))
        if bucket is None:
            self._free[level][cost] = [number]
        else:
            insort(bucket, number)
        self.count[level] += 1

    def _remove(self, cell: Cell) -> None:
        level, number = cell
        cost = self.cost_of(cell)
        bucket = self._free[level][cost]
        if len(bucket) == 1:
            del self._free[level][cost]
        else:
            del bucket[bisect_left(bucket, number)]
        self.count[level] -= 1

    # ── reading ─────────────────────────────────────────────────────────────────────────

    def free_at(self, level: int, first: int, end: int, *, quiet: bool | None) -> Iterator[int]:
        """Number the free cells of a level in a range, the cheapest first.

        `quiet` ones have none that is lent; None gives all.
        """
        buckets = self._free[level]
        for cost in sorted(buckets):
            if quiet is None or quiet is (cost == 0):
                bucket = buckets[cost]
                for at in range(bisect_left(bucket, first), bisect_left(bucket, end)):
                    yield bucket[at]

    def buckets(self) -> list[dict[int, list[int]]]:
        """Return the free cells, by level and by what they cost."""
        return self._free

    def broken_at(self, level: int, first: int, end: int) -> Iterator[int]:
        """Number the cells of a level that no tenant has and that have broken leaves."""
        chain = self.chain
        seen: set[int] = set()
        for node, shut in self.broken.items():
            for leaf in bits(shut):
                _, number = cell = chain.cell_at(level, node, leaf)
                if number in seen or not first <= number < end:
                    continue
                seen.add(number)
                mask = chain.mask_of(cell)
                if not any(self.held[n] & mask for n in chain.nodes_of(cell)):
                    yield number

    def free_nodes(self, level: int) -> Iterator[int]:
        """Count the wholly free nodes of every cell of a level above that of nodes."""
        per = self.chain.per[level]
        for busy in self._busy[level]:
            yield per - busy


# ── what tenants may bind ───────────────────────────────────────────────────────────────
#
# Two things must stay true, and each decision is checked against both:
#
# 1. If nothing were broken or closed, all that is guaranteed could be dealt out at once. So
#    what a tenant loses to broken hardware it has again as soon as that is mended.
# 2. Of the hardware that is healthy now, no tenant finds less: no level that has enough cells
#    for all guarantees ends with too few, none that has too few ends with fewer still.


def spare(chain: Chain, count: Sequence[int], unbound: Sequence[int]) -> list[int]:
    """Return, by level, how many cells are in no guarantee; a negative number is missing.

    A cell of a level is one of its free cells or a part of a larger one that is spare.
    """
    left, fanout, over = list(count), chain.fanout, 0
    for level in range(chain.top, -1, -1):
        have = left[level] = left[level] + over - unbound[level]
        over = have * fanout[level] if have > 0 else 0
    return left


def shortage(spaces: Sequence[Space]) -> list[tuple[int, ...]]:
    """Return, by chain and level, what is guaranteed and not available: 0 or less."""
    return [
        tuple(min(0, left) for left in spare(space.chain, space.count, space.unbound))
        for space in spaces
    ]


def shorter(before: Sequence[tuple[int, ...]], after: Sequence[tuple[int, ...]]) -> bool:
    """Whether of any level more is lacking than was."""
    return any(
        now < then
        for here, there in zip(before, after, strict=True)
        for then, now in zip(here, there, strict=True)
    )


def allows(space: Space, cells: Sequence[Cell]) -> bool:
    """Whether a tenant with a guarantee of such cells may have these. O(cells · levels).

    No tenant has any part of them, and no two overlap.
    """
    left = space.unbound.copy()
    for level, _ in cells:
        left[level] -= 1
    if not _no_less(space, space.count, _count_without(space, cells), left):
        return False
    return not space.broken or _no_less(space, space.whole, _whole_without(space, cells), left)


def _no_less(
    space: Space, count: Sequence[int], count_after: Sequence[int], unbound_after: Sequence[int]
) -> bool:
    after = spare(space.chain, count_after, unbound_after)
    if min(after) >= 0:
        return True
    before = spare(space.chain, count, space.unbound)
    return all(now >= min(then, 0) for now, then in zip(after, before, strict=True))


def _count_without(space: Space, cells: Sequence[Cell]) -> list[int]:
    """Count free cells as if some were held. Of one with broken leaves, the free parts go."""
    count = space.count.copy()
    free: list[Cell] = []
    for cell in cells:
        if space.is_free(cell):
            free.append(cell)
        else:
            for part in space.parts_free(cell):
                count[part[0]] -= 1
    _take_out(space.chain, count, free, space.free_around)
    return count


def _whole_without(space: Space, cells: Sequence[Cell]) -> list[int]:
    """The same, as if nothing were broken."""
    count = space.whole.copy()
    _take_out(space.chain, count, cells, space.unheld_around)
    return count


def _take_out(
    chain: Chain, count: list[int], cells: Sequence[Cell], around: Callable[[Cell], Cell]
) -> None:
    groups: dict[Cell, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(around(cell), []).append(cell)
    for whole, parts in groups.items():
        count[whole[0]] -= 1
        _split(chain, count, whole, parts)


def _split(chain: Chain, count: list[int], whole: Cell, parts: Sequence[Cell]) -> None:
    """Count what is left of a cell when parts of it are taken out."""
    if parts[0] == whole:
        return
    level = whole[0] - 1
    inside: dict[Cell, list[Cell]] = {}
    for part in parts:
        inside.setdefault(chain.above(part, level), []).append(part)
    count[level] += chain.fanout[whole[0]] - len(inside)
    for child, some in inside.items():
        _split(chain, count, child, some)
