"""Places in a tenant's own cells, clear of what suspended gangs keep there."""

from allotment.core.beside import Beside, of_all, of_one
from allotment.core.cells.book import Cells
from allotment.core.cells.search import Found, find
from allotment.core.cluster import Cluster
from allotment.core.gang import Gang
from allotment.core.memos import remember
from allotment.core.request import Shape, needs_of
from allotment.model.ledger import Entitlement
from allotment.model.quantity import DEVICE


def book_of(cluster: Cluster) -> Cells:
    """Return the book of cells, where there is one."""
    assert cluster.cells is not None, "asked only where shares are cells"
    return cluster.cells


def owed_place(cluster: Cluster, shape: Shape) -> Found | None:
    """Find where a gang of this shape may be now out of its tenant's own cells.

    What was not found is not looked for again until something was given back.
    """
    cells = book_of(cluster)
    if shape.opportunistic or cluster.memos.unowed.get(shape) == cluster.ledger.version:
        return None
    found: Found | None = None
    if not _too_large(cells, shape):
        found = find(cells, shape.tenant, shape.pin, shape.requests)
        if found is not None:
            found = _uncrowded(cluster, cells, shape, found) or found
    if found is None:
        remember(cluster.memos.unowed, shape, cluster.ledger.version)
    return found


def place_beside(cluster: Cluster, shape: Shape) -> Found | None:
    """Find where a gang may be out of its tenant's cells, now or in a trial.

    None also where suspended gangs that stay keep what it needs: it could not start there.
    """
    cells = book_of(cluster)
    if _too_large(cells, shape):
        return None
    found = find(cells, shape.tenant, shape.pin, shape.requests)
    return found and _uncrowded(cluster, cells, shape, found)


def _uncrowded(cluster: Cluster, cells: Cells, shape: Shape, found: Found) -> Found | None:
    """Return a place where no suspended gang keeps what is needed, or can be off it."""
    requests = shape.requests
    if not cluster.placed.frozen or cluster.slots_free(found.slots, requests):
        return found
    needs, frozen = needs_of(requests), [*cluster.placed.frozen.values()]
    staying = [gang for gang in frozen if not yields(gang, shape.tenant)]
    for keepers in (frozen, staying) if len(staying) < len(frozen) else (frozen,):
        beside = Beside(cluster, keepers)
        if beside.has(found.slots, needs):
            return found
        # Several tasks may need more of a machine in sum than is left there.
        for need in (of_one(requests), of_all(requests, beside.width)):
            avoid = beside.lacking(need)
            other = find(cells, shape.tenant, shape.pin, requests, avoid)
            if other is not None and beside.has(other.slots, needs):
                return other
    return None


def _too_large(cells: Cells, shape: Shape) -> bool:
    """Whether it is plain that too few leaves are left of all that the tenant is owed."""
    whole = sum(r.count * r.devices for r in shape.requests if r.need.gpu_milli >= DEVICE)
    return whole > cells.room_of(shape.tenant, shape.pin)


def yields(gang: Gang, owner: str) -> bool:
    """Whether a suspended gang goes where what it keeps is in an owner's way.

    It gave up its cells, so what it keeps of a machine it keeps on sufferance. As its
    tenant's own it stays if that is the owner, or if it may not be preempted.
    """
    if gang.entitlement is Entitlement.OPPORTUNISTIC:
        return True
    return gang.tenant != owner and gang.preemptible
