"""What is in use of a chain: taken by owners, lent to borrowers, reserved for some of them.

The rest is idle. Opportunistic gangs go there: far from guaranteed work, packed together.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from allotment.core.cells.chain import Chain, Spot, bits
from allotment.core.cells.space import Space
from allotment.model.ids import JobId


class Use:
    """Which gangs use which leaves of one chain."""

    def __init__(self, space: Space) -> None:
        chain = space.chain
        self._space = space
        self.taken = [0] * len(chain.nodes)
        """Leaves that guaranteed tasks sit on, by node."""
        self.borrowers: list[dict[JobId, int]] = [{} for _ in chain.nodes]
        """The jobs on lent leaves of a node, and on which."""
        self.costly: list[dict[JobId, int]] = [{} for _ in chain.nodes]
        """The same of those that are costly to evict."""
        self.parts: dict[tuple[int, int], int] = {}
        """Lent leaves that are shared: what is used of them, by node and leaf."""
        self.aside: dict[int, dict[int, int]] = {}
        """Leaves that are reserved for borrowers, and how often, by node."""
        self.hosted: dict[int, int] = {}
        """Leaves whose part of the host borrowers use without a device, by node."""
        self.idle = Idle(chain)

    # ── writing ─────────────────────────────────────────────────────────────────────────

    def take(self, node: int, mask: int) -> None:
        """Let guaranteed tasks sit on leaves."""
        self.taken[node] |= mask
        self.rate(node)

    def give(self, node: int, mask: int, left: int) -> None:
        """Undo `take`; others still sit on those that are `left`."""
        self.taken[node] = (self.taken[node] & ~mask) | left
        self.rate(node)

    def lend(self, job: JobId, spot: Spot, *, costly: bool) -> None:
        """Let a task of a borrower sit on leaves, which may be `costly` to evict."""
        node, mask = spot.node, spot.mask
        if spot.is_part:
            for leaf in bits(mask):
                self.parts[node, leaf] = self.parts.get((node, leaf), 0) + spot.milli
        for jobs in (self.borrowers, self.costly) if costly else (self.borrowers,):
            jobs[node][job] = jobs[node].get(job, 0) | mask
        self._host(spot, +1)
        self._set_lent(node, self._space.lent[node] | mask)

    def call_in(self, job: JobId, spot: Spot) -> None:
        """Undo `lend`."""
        node, mask = spot.node, spot.mask
        gone = mask
        if spot.is_part:
            for leaf in bits(mask):
                if left := self.parts.pop((node, leaf)) - spot.milli:
                    self.parts[node, leaf] = left
                    gone &= ~(1 << leaf)
        for jobs in (self.borrowers, self.costly):
            if mine := jobs[node].pop(job, 0) & ~mask:
                jobs[node][job] = mine
        self._host(spot, -1)
        self._set_lent(node, self._space.lent[node] & ~gone)

    def set_aside(self, node: int, mask: int, times: int) -> None:
        """Reserve leaves for a borrower (+1), or no longer (-1)."""
        leaves = self.aside.setdefault(node, {})
        for leaf in bits(mask):
            leaves[leaf] = leaves.get(leaf, 0) + times
            if not leaves[leaf]:
                del leaves[leaf]
        if not leaves:
            del self.aside[node]
        self.rate(node)

    def rate(self, node: int) -> None:
        """Note what is idle on a node, of which something changed."""
        others = self._space.lent[node] | self._space.shut[node]
        for leaf in self.aside.get(node, ()):
            others |= 1 << leaf
        self.idle.rate(node, self.taken[node], others)

    def _host(self, spot: Spot, times: int) -> None:
        """Count what a borrower that sits on no leaf uses of a host, or that it is gone."""
        if spot.claim and not spot.mask:
            left = self.hosted.pop(spot.node, 0) + times * spot.claim
            if left:
                self.hosted[spot.node] = left

    def _set_lent(self, node: int, lent: int) -> None:
        costly = 0
        for mask in self.costly[node].values():
            costly |= mask
        self._space.set_lent(node, lent, costly)
        self.rate(node)

    # ── reading ─────────────────────────────────────────────────────────────────────────

    def borrowed(self) -> list[int]:
        """Return the leaves that borrowers have, or have reserved, of each node."""
        leaves = list(self._space.lent)
        for node, aside in self.aside.items():
            leaves[node] |= sum(1 << leaf for leaf in aside)
        return leaves


FAR, NEAR = 0, 1
"""Whether guaranteed tasks sit on the node: borrowers stay away from them."""


class Idle:
    """The nodes of a chain in buckets by how many idle leaves they have."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.leaves = [chain.full] * len(chain.nodes)
        """Leaves that no task uses, by node."""
        self._near = [FAR] * len(chain.nodes)
        self._buckets: tuple[dict[int, list[int]], ...] = (
            {chain.width: list(range(len(chain.nodes)))},
            {},
        )

    def rate(self, node: int, taken: int, other: int) -> None:
        """Note that leaves of a node are taken, or unavailable for another reason."""
        before, was = self.leaves[node], self._near[node]
        leaves = self.chain.full & ~(taken | other)
        near = NEAR if taken else FAR
        if leaves == before and near == was:
            return
        self.leaves[node], self._near[node] = leaves, near
        old, new = before.bit_count(), leaves.bit_count()
        if old == new and near == was:
            return
        buckets = self._buckets[was]
        bucket = buckets[old]
        if len(bucket) == 1:
            del buckets[old]
        else:
            del bucket[bisect_left(bucket, node)]
        buckets = self._buckets[near]
        if new in buckets:
            insort(buckets[new], node)
        else:
            buckets[new] = [node]

    def near(self, node: int) -> int:
        """Return 1 where guaranteed tasks sit on a node, else 0."""
        return self._near[node]

    def nodes_with(self, least: int) -> Iterator[int]:
        """Number the nodes with so many idle leaves: far from guaranteed work first.

        Then those with the fewest, and of these the last: guaranteed work starts from the
        first.
        """
        for buckets in self._buckets:
            for count in sorted(count for count in buckets if count >= least):
                yield from reversed(buckets[count])

    def nodes_in(self, nodes: Sequence[int], least: int) -> Iterator[int]:
        """Number those of some nodes with so many idle leaves, in the same order."""
        some = [(self._near[n], self.leaves[n].bit_count(), -n) for n in nodes]
        for _, count, node in sorted(some):
            if count >= least:
                yield -node
