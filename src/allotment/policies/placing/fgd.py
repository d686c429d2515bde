"""Least fragmentation: the node that loses the fewest devices for the jobs that come.

A free device is lost for a task that needs more devices than its node has free. Weighted
by how often tasks of each size come, that is a node's fragmentation; tasks go where it
grows least.

Source: Weng et al., "Beware of Fragmentation", ATC 2023 (fragmentation gradient descent),
for whole devices; which device a fraction goes to is left to the ledger.

Bad at: workloads that change: it goes by the sizes it was told.
"""

from collections.abc import Mapping

SCALE = 1_000_000


class LeastFragmentation:
    """Rank by the growth of fragmentation; `popularity` is weight by devices of one task."""

    def __init__(self, popularity: Mapping[int, int]) -> None:
        self._total = max(1, sum(popularity.values()))
        self._popularity = sorted(popularity.items())

    def rank(self, free: int, need: int) -> int:
        return self._lost(free - need) - self._lost(free)

    def _lost(self, free: int) -> int:
        lost = sum(weight for devices, weight in self._popularity if devices > free)
        return free * lost * SCALE // self._total
