"""Moving: a running gang goes where the moving policy says it is better off.

Rule: at a turn, best-ranked gangs first, each is offered the place it would get if it came
now, among what is free. If that is better it is promised the place, told to go as if it were
evicted, and starts there. Nobody else is touched; who got nothing done since it was placed
stays, or it could be moved about for ever.
"""

from collections.abc import Iterator

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, ReservedPlace
from allotment.core.packing import place_by_partner
from allotment.core.plan import Evict
from allotment.core.ports import Moving
from allotment.model.ledger import Slot
from allotment.model.quantity import Instant


def moves(cluster: Cluster, now: Instant) -> Iterator[Evict]:
    """Propose who moves where. O(gangs · search)."""
    moving, running = cluster.policies.moving, cluster.running
    pairs = cluster.policies.packing is not None
    if moving is None or running is None or not (cluster.ledger.whole_free or pairs):
        return
    for job in running.best_first(now):
        gang = cluster.gangs[job]
        standing = gang.standing
        if gang.leaving or not standing.runs or standing.since == now:
            continue
        with cluster.fenced(standing.shape, now):
            slots = _better_place(cluster, gang, moving)
        if slots is not None and not cluster.barred(job, slots, now):
            promise = ReservedPlace(job, slots, gang.needs, gang.entitlement, (job,))
            yield Evict(promise, (job,))


def _better_place(cluster: Cluster, gang: Gang, moving: Moving) -> tuple[Slot, ...] | None:
    """Find where a gang is better off, if anywhere: by its partner, if that has a place."""
    packing = cluster.policies.packing
    partner = cluster.gangs.get(packing.partner(gang.id) or gang.id, gang) if packing else gang
    if partner is not gang:
        return place_by_partner(cluster, gang, partner, moving)
    if moving.content(gang, cluster.ledger):
        return None
    slots = cluster.find(gang.requests)
    return slots if slots is not None and moving.better(gang, slots, cluster.ledger) else None
