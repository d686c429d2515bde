"""One try to place a gang in its tenant's cells, within one cell or anywhere.

First on bound nodes with the least room, then in newly bound cells, then in small ones side
by side. Nothing is changed: what each task takes is only not free for the next one.
"""

from collections.abc import Sequence
from functools import partial

import msgspec

from allotment.core.cells.book import Cells, Found
from allotment.core.cells.chain import Cell, Chain, bits
from allotment.core.cells.fresh import fresh_cells, side_by_side
from allotment.core.cells.groups import group_cells
from allotment.core.cells.holding import Holding
from allotment.core.cells.safety import allows
from allotment.core.request import Request, is_part_of_device, one_group
from allotment.model.ids import NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import DEVICE

_Place = tuple[int, int, int, int]
"""Level of the cell, number of the node, leaves it sits on, leaves it has beside."""


class Avoid(msgspec.Struct, frozen=True):
    """Where no task is to be put: on whole nodes, or on single devices of others."""

    nodes: frozenset[NodeId] = frozenset()
    devices: frozenset[tuple[NodeId, int]] = frozenset()
    borrowed: bool = False
    """Also where borrowers sit, or are promised to."""

    def leaves(self, chain: Chain) -> dict[int, int]:
        """Return the leaves of a chain that this is, by node."""
        numbers = chain.number
        masks = {numbers[node]: chain.full for node in self.nodes if node in numbers}
        for node, device in self.devices:
            if (at := numbers.get(node)) is not None and device in chain.leaf[at]:
                masks[at] = masks.get(at, 0) | chain.mask(at, (device,))
        return masks


NOWHERE = Avoid()


class Attempt:
    """One gang's places so far: what they take is not free for the next task."""

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
            for node, lent in enumerate(cells.lent(at)):
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
        order = sorted(
            range(len(requests)),
            key=lambda i: (-requests[i].devices * max(1, requests[i].group), i),
        )
        places: list[list[_Place]] = [[] for _ in requests]
        for role in order:
            request = requests[role]
            found = self.place_groups(request) if request.group else self.place(request)
            if len(found) < request.count:
                return None
            places[role] = found
        if len(self.bound) > 1 and not allows(self.space, self.bound):
            return None
        return self.found([place for role in places for place in role], requests)

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

    def place_groups(self, request: Request) -> list[_Place]:
        """Find places for groups of tasks, each within one cell of their level.

        As many as fit in each cell: cells of a level do not overlap and groups are alike.
        """
        outer, one = self.region, one_group(request)
        level = self.chain.level_of(request.group_within)
        assert level is not None, "chains without that level are not asked"
        want = one.count * one.devices if one.need.gpu_milli >= DEVICE else 0
        found: list[_Place] = []
        for cell in group_cells(self.holding, outer, level, want):
            self.region = cell
            while len(found) < request.count and (places := self._whole_group(one)):
                found += places
            if len(found) >= request.count:
                break
        self.region = outer
        return found[: request.count]

    def _whole_group(self, request: Request) -> list[_Place]:
        """Find places for all of these tasks, or for none."""
        before = (list(self.bound), dict(self.used), dict(self.claimed), dict(self.parts),
                  dict(self.opened))  # fmt: skip
        found = self.place(request)
        if len(found) == request.count and (
            len(self.bound) == len(before[0]) or allows(self.space, self.bound)
        ):
            return found
        self.bound, self.used, self.claimed, self.parts, self.opened = before
        return []

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
            around = (self.space, level, self.region, self.bound)
            serves = partial(self._has_room, leaves + claim)
            for cell in fresh_cells(*around, serves) if self.avoid else fresh_cells(*around):
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
        """Turn places into slots, in rank order, and see who sits there."""
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
