"""Where opportunistic gangs go: idle leaves, far from guaranteed work, packed together."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from allotment.core.cells.chain import Chain

FAR, NEAR = 0, 1
"""Whether guaranteed tasks sit on the node: borrowers stay away from them."""


class Idle:
    """The nodes of a chain in buckets by how many idle leaves they have."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.leaves = [chain.full] * len(chain.nodes)
        """Leaves that nobody uses, by node."""
        self._near = [FAR] * len(chain.nodes)
        self._buckets: tuple[dict[int, list[int]], ...] = (
            {chain.width: list(range(len(chain.nodes)))},
            {},
        )

    def rate(self, node: int, taken: int, other: int) -> None:
        """Note that leaves of a node are taken, or otherwise not to be had."""
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
