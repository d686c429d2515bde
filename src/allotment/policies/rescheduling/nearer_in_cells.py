"""Where a gang in cells lies closer together: in a smaller cell than holds all of it now.

Rule: how far a gang lies apart is how large the smallest cell is that holds it, so a gang on
two nodes goes from two racks into one, too. The smallest cell that has room is taken. The gang
goes by its own right: one that is guaranteed into cells of its tenant, which none has to leave
for it, and it gives up those that it had; one that borrows to idle leaves.

Bad at: gangs within one node. That they lie at two switches is not looked at. A gang on
hardware of several kinds, which no cell holds, stays where it is.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from allotment.core.books import FreePlace
from allotment.core.cells.book import Cells
from allotment.core.cluster import Cluster
from allotment.core.gang import Gang
from allotment.core.own_cells import book_of
from allotment.core.request import Request, devices_of
from allotment.model.ledger import Slot
from allotment.model.quantity import Resources
from allotment.policies.rescheduling.moves import free_place


def nearer_in_cells(cluster: Cluster, gang: Gang) -> FreePlace | None:
    """Find a place in a smaller cell than the one that holds a gang. O(levels · search)."""
    cells = book_of(cluster)
    at = _chain_of(cells, gang.slots, gang.needs)
    if at is None:
        return None
    chain, now = cells.chains[at], cells.extent(at, gang.slots)
    wanted = devices_of(gang.requests)
    for level in range(chain.node_level, chain.top + 1):
        if chain.size[level] >= now:
            return None
        if chain.size[level] >= wanted:
            place = free_place(cluster, gang, within(gang.requests, chain.names[level]))
            if place is not None and _chain_of(cells, place[0], gang.needs) == at:
                return place
    return None


def _chain_of(cells: Cells, slots: Sequence[Slot], needs: Sequence[Resources]) -> int | None:
    """Return the chain that all slots lie in; None if there is no such."""
    spots = [cells.spot(slot, need) for slot, need in zip(slots, needs, strict=True)]
    chains = {None if spot is None else spot.chain for spot in spots}
    return chains.pop() if len(chains) == 1 else None


def within(requests: tuple[Request, ...], level: str) -> tuple[Request, ...]:
    """Return the same gang as if it had to lie within one region of a level."""
    return tuple(replace(request, within=level, prefer="") for request in requests)
