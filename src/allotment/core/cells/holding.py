"""What one tenant has of a chain: cells it holds, cells it may still bind, and room in them.

A cell is bound to a tenant when the first guaranteed task comes to sit in it, and let go
when the last one leaves: which physical cell serves a share is decided anew every time
(dynamic binding, HiveD, OSDI'20, 3.2). Pinned cells are bound for good.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

from allotment.core.cells.chain import Cell, Chain, Spot, bits
from allotment.core.cells.space import Space
from allotment.model.errors import InvariantViolated
from allotment.model.ids import JobId
from allotment.model.quantity import DEVICE

NO_JOB = JobId(0)
"""For work that is not a job."""

_Order = tuple[JobId, int]
"""Where a node stands among those with as much room: by its oldest job, then by number."""


class Holding:
    """One tenant's account in one chain, or that of one pinned cell."""

    def __init__(self, chain: Chain, space: Space, guaranteed: dict[int, int]) -> None:
        """`guaranteed` is how many cells of each level the tenant may bind."""
        self.chain = chain
        self.space = space
        self.guaranteed = dict(guaranteed)
        self.unbound = dict(guaranteed)
        """Cells that could still be bound, by level. Below 0 only when a share was cut."""
        for level, cells in guaranteed.items():
            space.unbound[level] += cells
        self.pinned: Cell | None = None
        self.keeps = False
        """Whether cells stay bound, and their gangs count, though they leave: in a trial,
        which will put them all back."""
        self.bound: dict[Cell, int] = {}
        """Cells that are bound, and by how many uses."""
        self.mine: dict[int, dict[int, int]] = {}
        """Leaves in bound cells, by level of the cell and node."""
        self.used: dict[int, int] = {}
        """Leaves of bound cells that guaranteed tasks have, by node: to sit on, or beside."""
        self.beside: dict[int, int] = {}
        """Those of them of which they have the share of the host and not the device."""
        self.claims: dict[tuple[int, int], int] = {}
        """Leaves whose share of the host is used up without their device, by level and node."""
        self.parts: dict[tuple[int, int], int] = {}
        """Leaves that tasks share: what of it is used, in thousandths, by node and leaf."""
        self.rooms: dict[int, dict[int, list[_Order]]] = {}
        """Nodes with bound leaves by level of the cell and number of available leaves."""
        self._room: dict[tuple[int, int], tuple[int, _Order]] = {}
        self._jobs: dict[tuple[int, int], list[JobId]] = {}
        """The jobs there, once for each task, by level and cell, or node of smaller cells."""

    def pin(self, cell: Cell) -> None:
        """Bind a cell for good: no share is charged for it."""
        self.pinned = cell
        self.space.hold(cell)
        self.bound[cell] = 0
        self._enter(cell)

    # ── writing ─────────────────────────────────────────────────────────────────────────

    def take(self, level: int, spot: Spot, job: JobId = NO_JOB) -> None:
        """Let a task of a job sit in cells of a level.

        Cells of whole nodes cover what it claims of the host as a number, wherever it sits
        on the node; smaller ones by the leaves that are named.
        """
        node, mask, milli = spot.node, spot.mask, spot.milli
        claim, beside = self.claimed(level, spot)
        for cell in self.cells_of(level, node, mask | beside):
            uses = self.bound.get(cell)
            if uses is None:
                self._bind(cell)
                uses = 0
            self.bound[cell] = uses + 1
        if spot.is_part:
            for leaf in bits(mask):
                key = (node, leaf)
                self.parts[key] = self.parts.get(key, 0) + milli
        if claim:
            key = (level, node)
            self.claims[key] = self.claims.get(key, 0) + claim
        if beside:
            self.beside[node] = self.beside.get(node, 0) | beside
        if mask or beside:
            self.used[node] = self.used.get(node, 0) | mask | beside
        if self._joins(level, node, job):
            self._rate_around(level, node)
        else:
            self.rate(level, node)

    def give(self, level: int, spot: Spot, job: JobId = NO_JOB) -> None:
        """Undo `take`."""
        node, mask, milli = spot.node, spot.mask, spot.milli
        claim, beside = self.claimed(level, spot)
        was_first = self._leaves(level, node, job)
        gone = mask | beside
        if spot.is_part:
            for leaf in bits(mask):
                key = (node, leaf)
                left = self.parts.pop(key) - milli
                if left:
                    self.parts[key] = left
                    gone &= ~(1 << leaf)
        if claim or beside:
            self._unclaim(level, node, claim, beside)
        used = self.used.pop(node, 0) & ~gone
        if used:
            self.used[node] = used
        for cell in self.cells_of(level, node, mask | beside):
            uses = self.bound[cell] - 1
            self.bound[cell] = uses
            if not uses and cell != self.pinned and not self.keeps:
                self._unbind(cell)
        if was_first:
            self._rate_around(level, node)
        else:
            self.rate(level, node)

    def claimed(self, level: int, spot: Spot) -> tuple[int, int]:
        """Return what of the host a task claims: a number of leaves, or just which."""
        if level >= self.chain.node_level:
            return spot.claim, 0
        return 0, spot.beside

    def _unclaim(self, level: int, node: int, claim: int, beside: int) -> None:
        if claim and (left := self.claims.pop((level, node)) - claim):
            self.claims[level, node] = left
        if beside and (mask := self.beside.pop(node) & ~beside):
            self.beside[node] = mask

    def _joins(self, level: int, node: int, job: JobId) -> bool:
        """Note one task of a job; tell whether the job is the oldest there."""
        if self.keeps:
            return False  # A gang is put back.
        jobs = self._jobs.setdefault((level, node // self.chain.per[level]), [])
        insort(jobs, job)
        return jobs[0] == job

    def _leaves(self, level: int, node: int, job: JobId) -> bool:
        """Forget one task of a job; tell whether the job was the oldest there."""
        if self.keeps:
            return False
        unit = (level, node // self.chain.per[level])
        jobs = self._jobs[unit]
        was_first = jobs[0] == job
        del jobs[bisect_left(jobs, job)]
        if not jobs:
            del self._jobs[unit]
        return was_first

    def cells_of(self, level: int, node: int, mask: int) -> tuple[Cell, ...]:
        """Return the cells of a level that leaves of one node lie in."""
        chain = self.chain
        size = chain.size[level]
        if level >= chain.node_level or not mask:
            return ((level, node * chain.width // size),)
        first = node * chain.width
        return tuple(dict.fromkeys((level, (first + leaf) // size) for leaf in bits(mask)))

    def _bind(self, cell: Cell) -> None:
        level = cell[0]
        self.unbound[level] = self.unbound.get(level, 0) - 1
        self.space.unbound[level] -= 1
        for node in self.chain.nodes_of(cell):
            if self.space.held[node] & self.chain.mask_of(cell):
                raise InvariantViolated(f"{self.chain.name_of(cell)} is held already")
        self.space.hold(cell)
        self._enter(cell)

    def _unbind(self, cell: Cell) -> None:
        level = cell[0]
        del self.bound[cell]
        self.unbound[level] += 1
        self.space.unbound[level] += 1
        mine, mask = self.mine[level], self.chain.mask_of(cell)
        for node in self.chain.nodes_of(cell):
            left = mine.pop(node) & ~mask
            if left:
                mine[node] = left
            self.rate(level, node)
        self.space.let_go(cell)

    def _enter(self, cell: Cell) -> None:
        level = cell[0]
        mine, mask = self.mine.setdefault(level, {}), self.chain.mask_of(cell)
        for node in self.chain.nodes_of(cell):
            mine[node] = mine.get(node, 0) | mask
            self.rate(level, node)

    def rate(self, level: int, node: int) -> None:
        """Put a node in the bucket of the room that is left on it in cells of a level."""
        key = (level, node)
        now = self._rated(level, node)
        before = self._room.get(key)
        if now == before:
            return
        rooms = self.rooms.setdefault(level, {})
        if before is not None:
            room, place = before
            bucket = rooms[room]
            if len(bucket) == 1:
                del rooms[room]
            else:
                del bucket[bisect_left(bucket, place)]
        if now is None:
            del self._room[key]
            return
        self._room[key] = now
        room, place = now
        bucket = rooms.get(room)
        if bucket is None:
            rooms[room] = [place]
        else:
            insort(bucket, place)

    def _rated(self, level: int, node: int) -> tuple[int, _Order] | None:
        """Return a node's bucket and its place there; None if it has no cell."""
        if self.mine.get(level, {}).get(node) is None:
            return None
        room = self.available(level, node).bit_count()
        if self.claims:
            room = max(0, room - self.claims.get((level, node), 0))
        jobs = self._jobs.get((level, node // self.chain.per[level]))
        return room, (jobs[0] if jobs else NO_JOB, node)

    def _rate_around(self, level: int, node: int) -> None:
        """Rate all nodes of the cell that a node lies in: its first job is another."""
        per = self.chain.per[level]
        first = node // per * per
        for each in range(first, first + per):
            self.rate(level, each)

    def rate_all(self, node: int) -> None:
        """Rate a node anew at every level: its health changed."""
        for level, mine in self.mine.items():
            if node in mine:
                self.rate(level, node)

    # ── reading ─────────────────────────────────────────────────────────────────────────

    def available(self, level: int, node: int) -> int:
        """Return the leaves of a node, in bound cells of a level, that a task could have."""
        return self.mine[level].get(node, 0) & ~self.used.get(node, 0) & ~self.space.shut[node]

    def room(self, level: int, node: int) -> int:
        """Count the leaves a task could have there, less those whose host share is used."""
        rated = self._room.get((level, node))
        return 0 if rated is None else rated[0]

    def room_in_all(self) -> int:
        """Count the leaves that are left in bound cells, and those of cells not bound yet."""
        size = self.chain.size
        bound = sum(room * len(nodes) for rooms in self.rooms.values()
                    for room, nodes in rooms.items())  # fmt: skip
        return bound + sum(n * size[level] for level, n in self.unbound.items() if n > 0)

    def left_when_sound(self) -> int:
        """Count what would be left if all hardware were up, in thousandths of leaves.

        Of leaves that tasks share, what no task has of them counts.
        """
        bound = sum(
            (mask & ~self.used.get(node, 0)).bit_count()
            for mine in self.mine.values()
            for node, mask in mine.items()
        )
        unbound = sum(n * self.chain.size[level] for level, n in self.unbound.items() if n > 0)
        whole = bound - sum(self.claims.values()) + unbound
        return whole * DEVICE + sum(DEVICE - used for used in self.parts.values())

    def nodes_with(self, least: int) -> Iterator[tuple[int, int, int]]:
        """Return (room, level, node) for nodes with room for so many leaves, least room first.

        Of alike ones those first where the oldest job sits: what happens in a share does
        not hang on which nodes serve it.
        """
        levels = sorted(self.rooms)
        for room in sorted({r for rooms in self.rooms.values() for r in rooms if r >= least}):
            for level in levels:
                for _, node in self.rooms[level].get(room, ()):
                    yield room, level, node
