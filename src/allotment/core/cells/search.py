"""Where a guaranteed gang goes in the cells of its tenant. Nothing is changed here.

A guaranteed gang is placed as if its tenant had a cluster of its own, borrowers or not:
first on bound nodes with the least room, then in newly bound cells, the smallest that
serve; where shares are of small cells, several side by side. Of alike cells that could be
bound, the one with fewest borrowers on it is, `opportunistic` jobs before any other. (HiveD,
OSDI'20, 3.3; its intra-tenant scheduler packs in the same order.) What each task takes is
only not free for the next one.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from allotment.core.cells.book import Cells, Found
from allotment.core.cells.chain import NOWHERE, Avoid, Cell, Chain, bits
from allotment.core.cells.choices import (
    GangSearch,
    any_cell,
    fresh_cells,
    group_cells,
    roomy,
    serves,
    side_by_side,
)
from allotment.core.cells.holding import Holding
from allotment.core.cells.space import allows
from allotment.core.request import Request
from allotment.model.ledger import Slot
from allotment.model.quantity import DEVICE, is_part_of_device

MOST_REGIONS = 8
"""Cells that are tried as a common one, where a common one is only liked."""


def find(
    cells: Cells,
    tenant: str,
    pin: str,
    requests: tuple[Request, ...],
    avoid: Avoid = NOWHERE,
) -> Found | None:
    """Find room for a gang in the cells of its tenant; None if there is none.

    What is to `avoid` is left out. Asked the same again before anything is written in the
    book, it gives the same at once.
    """
    key = (tenant, pin, requests, avoid)
    if cells.last is None or cells.last[0] != key:
        cells.last = (key, _find(cells, *key))
    return cells.last[1]


def _find(
    cells: Cells,
    tenant: str,
    pin: str,
    requests: tuple[Request, ...],
    avoid: Avoid,
) -> Found | None:
    whole = sum(r.count * r.devices for r in requests if not is_part_of_device(r.need))
    if whole > cells.room_of(tenant, pin):
        return None  # It is plain that too few leaves are left of all that are guaranteed.
    holdings = cells.holdings.get((tenant, pin), {})
    for chains in cells.chains_for(requests):
        best: tuple[int, int, Found] | None = None
        for at in chains:
            holding = holdings.get(at)
            if holding is None or not serves(cells.chains[at], requests):
                continue
            found = _in_chain(cells, at, holding, requests, avoid)
            if found is None:
                continue
            if len(chains) == 1:
                return found
            ranked = (cells.extent(at, found.slots), at, found)
            best = ranked if best is None or ranked[:2] < best[:2] else best
        if best is not None:
            return best[2]
    return None


def _in_chain(
    cells: Cells,
    at: int,
    holding: Holding,
    requests: tuple[Request, ...],
    avoid: Avoid,
) -> Found | None:
    chain = cells.chains[at]
    first = requests[0]
    free = not (first.within or first.prefer or first.group)
    if free and len(requests) == 1 and first.count == 1:
        return Attempt(cells, at, holding, None, avoid).place_all(requests)
    if first.within and chain.level_of(first.within) is None:
        return None
    for region in _common(cells, at, holding, requests):
        found = Attempt(cells, at, holding, region, avoid).place_all(requests)
        if found is None and region is not None and _guaranteed_of_many_levels(holding):
            # The small cells it would take first may part the large one it could have.
            trial = Attempt(cells, at, holding, region, avoid)
            trial.largest_first = True
            found = trial.place_all(requests)
        if found is not None:
            return found
    return None


def _guaranteed_of_many_levels(holding: Holding) -> bool:
    return sum(1 for cells in holding.unbound.values() if cells > 0) > 1


def _common(
    cells: Cells, at: int, holding: Holding, requests: tuple[Request, ...]
) -> Iterator[Cell | None]:
    """Return the cells to look for room in, best first; None for anywhere."""
    chain = cells.chains[at]
    required, liked = chain.level_of(requests[0].within), chain.level_of(requests[0].prefer)
    if liked is not None and (required is None or liked < required):
        yield from regions(cells, at, holding, requests, liked)
    if required is not None:
        yield from regions(cells, at, holding, requests, required)
        return
    for level in range(chain.node_level, chain.top + 1):
        yield from islice(regions(cells, at, holding, requests, level), MOST_REGIONS)
    yield None


# ── a common cell ───────────────────────────────────────────────────────────────────────


def regions(
    cells: Cells, at: int, holding: Holding, requests: tuple[Request, ...], level: int
) -> Iterator[Cell]:
    """Return the cells of a level that could hold a whole gang, the tightest first."""
    chain = cells.chains[at]
    want = sum(r.count * max(1, r.devices + cells.claim(at, r.need)) for r in requests)
    if want > chain.size[level] and any(r.need.gpu_milli >= DEVICE for r in requests):
        return
    if level <= chain.node_level:
        yield from _small_regions(chain, holding, level, want)
        return
    least = min(r.devices + cells.claim(at, r.need) for r in requests)
    rooms: dict[int, int] = {}
    for room, _, node in holding.nodes_with(max(1, least)):
        number = node // chain.per[level]
        rooms[number] = rooms.get(number, 0) + room
    unbound = sum(n * chain.size[kind] for kind, n in holding.unbound.items() if n > 0)
    space = cells.spaces[at]
    fits: list[tuple[int, int, int]] = []
    for number, nodes in enumerate(space.free_nodes(level)):
        room = rooms.get(number, 0) + min(unbound, nodes * chain.width)
        if room >= want:
            fits.append((room, space.cost_of((level, number)), number))
    for _, _, number in sorted(fits):
        yield (level, number)
    if any(n > 0 and kind < chain.node_level for kind, n in holding.unbound.items()):
        # Small cells may also be on nodes that are not wholly free.
        known = {number for _, _, number in fits}
        yield from (cell for cell in roomy(holding, level, want) if cell[1] not in known)


def _small_regions(chain: Chain, holding: Holding, level: int, want: int) -> Iterator[Cell]:
    """Return cells within one node: those that are bound, then what could be."""
    inside = chain.width // chain.size[level]
    for _, kind, node in holding.nodes_with(want):
        free = holding.available(kind, node)
        fits = [
            ((free & chain.mask_of((level, cell))).bit_count(), cell)
            for cell in range(node * inside, (node + 1) * inside)
        ]
        for room, cell in sorted(fits):
            if room >= want:
                yield (level, cell)
    for kind in sorted(holding.unbound):
        if holding.unbound[kind] > 0 and chain.size[kind] >= want:
            for _, number in islice(fresh_cells(holding.space, kind, None), 1):
                yield (level, number * chain.size[kind] // chain.size[level])
    for kind in sorted(holding.unbound):
        if 0 < chain.size[kind] < want <= holding.unbound[kind] * chain.size[kind]:
            for (_, number), *_ in islice(side_by_side(holding, kind, want, None), 1):
                yield (level, number * chain.size[kind] // chain.size[level])


# ── one try ───────────────────────────────────────────────────────────────────────────────


_Place = tuple[int, int, int, int]
"""Level of the cell, number of the node, leaves it sits on, leaves it has beside."""


class Attempt(GangSearch[_Place]):
    """One gang's places so far: what they take is not free for the next task."""

    state = ("bound", "used", "claimed", "parts", "opened")

    def __init__(
        self,
        cells: Cells,
        at: int,
        holding: Holding,
        region: Cell | None,
        avoid: Avoid = NOWHERE,
    ) -> None:
        """Begin in one chain, within a cell or anywhere but on what is to `avoid`."""
        self.cells, self.at, self.holding, self.region = cells, at, holding, region
        self.chain, self.space = cells.chains[at], cells.spaces[at]
        self.avoid = avoid.leaves(self.chain)
        if avoid.borrowed:
            for node, lent in enumerate(cells.uses[at].borrowed()):
                self.avoid[node] = self.avoid.get(node, 0) | lent
        self.bound: list[Cell] = []
        """Cells that would be bound anew."""
        self.used: dict[int, int] = {}
        """Leaves that are used by this gang, by node."""
        self.claimed: dict[tuple[int, int], int] = {}
        self.parts: dict[tuple[int, int], int] = {}
        self.opened: dict[tuple[int, int], int] = {}
        """Leaves of cells bound anew, by level and node."""
        self.largest_first = False
        """Bind large cells before small ones."""

    def place_all(self, requests: tuple[Request, ...]) -> Found | None:
        """Place a whole gang; None if it does not fit."""
        places = self.place_roles(requests)
        if places is None:
            return None
        if len(self.bound) > 1 and not allows(self.space, self.bound):
            return None
        return self.found(places, requests)

    def place(self, request: Request) -> list[_Place]:
        """Find places for all tasks of a role, or for as many as there are."""
        need = request.need
        leaves, claim = request.devices, self.cells.claim(self.at, need)
        milli = self.chain.part_of(need)
        found: list[_Place] = []
        if is_part_of_device(need) and not claim:
            return self._place_parts(milli, request.count)
        for search in (self._in_bound, self._in_fresh, self._side_by_side):
            if len(found) < request.count:
                search(leaves, claim, request.count, found)
        return found

    def cells_for_groups(self, level: int, want: int) -> Iterator[Cell]:
        return group_cells(self.holding, self.region, level, want)

    def is_legal(self) -> bool:
        return not self.bound or allows(self.space, self.bound)

    def _place_parts(self, milli: int, count: int) -> list[_Place]:
        """Find places for tasks that need a part of a device each: several share one."""
        found: list[_Place] = []
        self._share(milli, count, found)
        per = DEVICE // milli
        whole: list[_Place] = []
        devices = -(-(count - len(found)) // per)
        for search in (self._in_bound, self._in_fresh, self._side_by_side):
            if len(whole) < devices:
                search(1, 0, devices, whole)
        found += [place for place in whole for _ in range(per)]
        del found[count:]
        for _, node, mask, _ in found:
            leaf = mask.bit_length() - 1
            self.parts[node, leaf] = self.parts.get((node, leaf), 0) + milli
        return found

    def _share(self, milli: int, count: int, found: list[_Place]) -> None:
        """Put tasks on leaves that are shared already, the fullest that serve first."""
        holding, space = self.holding, self.space
        for (node, leaf), used in sorted(
            holding.parts.items(), key=lambda part: (-part[1], part[0])
        ):
            mask = 1 << leaf
            if space.shut[node] & mask or not self._inside(node, mask):
                continue
            level = next(level for level, mine in holding.mine.items()
                         if mine.get(node, 0) & mask)  # fmt: skip
            left = DEVICE - used - self.parts.get((node, leaf), 0)
            while left >= milli and len(found) < count:
                found.append((level, node, mask, 0))
                left -= milli

    def _in_bound(self, leaves: int, claim: int, count: int, found: list[_Place]) -> None:
        """Put tasks in cells that are bound, on the nodes with the least room first."""
        want = leaves + claim
        for level, node in sorted(self.opened):
            self._fill(level, node, leaves, claim, count, found)
        for _, level, node in self.holding.nodes_with(want):
            if len(found) == count:
                return
            if self.region is None or self._has(node):
                self._fill(level, node, leaves, claim, count, found)

    def _in_fresh(self, leaves: int, claim: int, count: int, found: list[_Place]) -> None:
        """Bind cells that serve a task each: the smallest such first, or the largest."""
        chain, holding = self.chain, self.holding
        for level in sorted(holding.unbound, reverse=self.largest_first):
            left = holding.unbound[level] - sum(1 for cell in self.bound if cell[0] == level)
            if left <= 0 or chain.size[level] < leaves + claim:
                continue
            suits = partial(self._has_room, leaves + claim) if self.avoid else any_cell
            for cell in fresh_cells(self.space, level, self.region, self.bound, suits):
                if left == 0 or len(found) == count:
                    break
                if self._overlaps(cell):
                    continue
                before = len(found)
                self._open(cell)
                for node in chain.nodes_of(cell):
                    self._fill(level, node, leaves, claim, count, found)
                if len(found) == before:
                    self._close(cell)
                    continue
                left -= 1

    def _has_room(self, want: int, cell: Cell) -> bool:
        """Whether so many leaves of a cell are not to be avoided."""
        mask, avoid = self.chain.mask_of(cell), self.avoid
        nodes = self.chain.nodes_of(cell)
        return sum((mask & ~avoid.get(n, 0)).bit_count() for n in nodes) >= want

    def _side_by_side(self, leaves: int, claim: int, count: int, found: list[_Place]) -> None:
        """Let several small cells of one node serve a task together."""
        holding, chain = self.holding, self.chain
        want = leaves + claim
        for level in sorted(holding.unbound, reverse=True):
            size = chain.size[level]
            while len(found) < count and size < want:
                left = holding.unbound[level]
                left -= sum(1 for cell in self.bound if cell[0] == level)
                for group in side_by_side(holding, level, want, self.region, self.bound):
                    if len(group) > left or any(map(self._overlaps, group)):
                        continue
                    for cell in group:
                        self._open(cell)
                    node = chain.nodes_of(group[0])[0]
                    before = len(found)
                    self._fill(level, node, leaves, claim, len(found) + 1, found)
                    if len(found) > before:
                        break
                    for cell in group:
                        self._close(cell)
                else:
                    break

    # ── one node ────────────────────────────────────────────────────────────────────────

    def _fill(
        self, level: int, node: int, leaves: int, claim: int, count: int, found: list[_Place]
    ) -> None:
        """Put as many tasks as fit on one node, in cells of one level.

        What a task needs of the host beyond its leaves' share cells of whole nodes cover in
        sum; of smaller ones it has leaves of its own for it.
        """
        holding = self.holding
        named = 0
        if level < self.chain.node_level:
            named, claim = claim, 0
            if not (leaves or named):
                return
        key = (level, node)
        free = 0
        if level in holding.mine:
            free = holding.available(level, node)
        free |= self.opened.get(key, 0)
        free &= ~self.used.get(node, 0) & ~self.space.shut[node]
        if self.region is not None or self.avoid:
            free &= self._mask(node)
        claimed = holding.claims.get(key, 0) + self.claimed.get(key, 0)
        while len(found) < count:
            if free.bit_count() - claimed < leaves + named + claim:
                return
            mask = beside = 0
            if named:
                both = self._pick(node, free, leaves + named)
                mask = self._pick(node, both, leaves) if leaves else 0
                beside = both & ~mask
            elif leaves:
                mask = self._pick(node, free, leaves)
            found.append((level, node, mask, beside))
            free &= ~(mask | beside)
            self.used[node] = self.used.get(node, 0) | mask | beside
            if claim:
                claimed += claim
                self.claimed[key] = self.claimed.get(key, 0) + claim

    def _pick(self, node: int, free: int, leaves: int) -> int:
        """Choose leaves, without borrowers where that costs no distance."""
        chain = self.chain
        picked = chain.pick(free, leaves)
        lent = self.space.lent[node]
        if not picked & lent:
            return picked
        quiet = chain.pick(free & ~lent, leaves)
        if quiet and chain.common_level(quiet) <= chain.common_level(picked):
            return quiet
        return picked

    def _open(self, cell: Cell) -> None:
        self.bound.append(cell)
        mask = self.chain.mask_of(cell)
        for node in self.chain.nodes_of(cell):
            key = (cell[0], node)
            self.opened[key] = self.opened.get(key, 0) | mask

    def _close(self, cell: Cell) -> None:
        self.bound.remove(cell)
        mask = self.chain.mask_of(cell)
        for node in self.chain.nodes_of(cell):
            key = (cell[0], node)
            left = self.opened.pop(key) & ~mask
            if left:
                self.opened[key] = left

    def _overlaps(self, cell: Cell) -> bool:
        """Whether a cell has leaves in common with one that is bound already."""
        if not self.opened:
            return False
        mask, levels = self.chain.mask_of(cell), self.holding.unbound
        return any(
            self.opened.get((level, node), 0) & mask
            for node in self.chain.nodes_of(cell)
            for level in levels
        )

    def _has(self, node: int) -> bool:
        return self.region is None or node in self.chain.nodes_of(self.region)

    def _mask(self, node: int) -> int:
        """Return the leaves of a node that lie in the region, and are not to be avoided."""
        mask = self.chain.full
        if self.region is not None:
            mask = self.chain.mask_of(self.region) if self._has(node) else 0
        return mask & ~self.avoid.get(node, 0)

    def _inside(self, node: int, mask: int) -> bool:
        return not mask & ~self._mask(node)

    # ── the outcome ─────────────────────────────────────────────────────────────────────

    def found(self, places: Sequence[_Place], requests: tuple[Request, ...]) -> Found:
        """Turn places into slots, in rank order, and see which gangs are there."""
        chain, names = self.chain, self.chain.names
        needs = (r.need for r in requests for _ in range(r.count))
        slots = tuple(
            Slot(
                chain.nodes[node],
                chain.devices_at(node, mask) if chain.devices[node] else (),
                need.gpu_milli,
                tuple(bits(beside)) if beside else (),
            )
            for (_, node, mask, beside), need in zip(places, needs, strict=True)
        )
        levels = [level for level, _, _, _ in places]
        one = all(level == levels[0] for level in levels)
        quota = (names[levels[0]],) if one else tuple(names[level] for level in levels)
        return Found(slots, quota, self.cells.borrowers_on(self.at, places))
