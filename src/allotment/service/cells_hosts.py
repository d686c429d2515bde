"""Which leaves' part of the host is in use without their device: for people.

The book counts these where it need not know which they are; here they get places, the same
ones for the same state: an owner's the first in its cells, a borrower's the last that are
nobody's.
"""

from allotment.core.cells.book import Cells
from allotment.core.cells.chain import Spot, bits


class HostUse:
    """The leaves of one chain whose part of the host is in use."""

    def __init__(self, cells: Cells, at: int) -> None:
        self.chain, self.space, self._taken = (
            cells.chains[at],
            cells.spaces[at],
            cells.uses[at].taken,
        )
        self.used: dict[int, int] = {}
        """Leaves of which their owner uses the host's part alone, by node."""
        self.lent: dict[int, int] = {}
        """The same of borrowers."""
        self._holdings = {who: held[at] for who, held in cells.holdings.items() if at in held}
        for holding in self._holdings.values():
            for node, beside in holding.beside.items():
                self.used[node] = self.used.get(node, 0) | beside

    def of_owner(self, tenant: str, pin: str, level: int, spot: Spot) -> int:
        """Return a guaranteed task's leaves, and those of which it uses the host's part."""
        if level < self.chain.node_level:
            return spot.mask | spot.beside
        node = spot.node
        mine = self._holdings[tenant, pin].mine.get(level, {}).get(node, 0)
        found = _some(list(bits(self._idle(node) & mine)), spot.claim)
        if found:
            self.used[node] = self.used.get(node, 0) | found
        return spot.mask | found

    def of_borrower(self, spot: Spot) -> int:
        """Return the leaves of a borrower; of machines with devices those it is on."""
        if self.chain.has_devices or not spot.claim:
            return spot.mask
        node = spot.node
        idle, held = self._idle(node), self.space.held[node]
        places = [*bits(idle & held), *bits(idle & ~held)]
        found = _some(places[::-1], spot.claim)
        if found:
            self.lent[node] = self.lent.get(node, 0) | found
        return spot.mask | found

    def _idle(self, node: int) -> int:
        space = self.space
        busy = self._taken[node] | space.lent[node] | space.shut[node]
        busy |= self.used.get(node, 0) | self.lent.get(node, 0)
        return self.chain.full & ~busy


def _some(places: list[int], count: int) -> int:
    return sum(1 << place for place in places[:count])
