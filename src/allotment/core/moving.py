"""Moving: a running gang goes where the moving policy says it is better off.

Rule: at a turn, best-ranked gangs first, each is offered the place it would get if it came
now, among what is free. If that is better it is promised the place, told to go as if it were
evicted, and starts there. Nobody else is touched; who got nothing done since it was placed
stays, or it could be moved about for ever.
"""

from collections.abc import Iterator

from allotment.core.cluster import Cluster
from allotment.core.gang import Reservation
from allotment.core.plan import Evict
from allotment.model.quantity import Instant


def moves(cluster: Cluster, now: Instant) -> Iterator[Evict]:
    """Propose who moves where. O(gangs · search)."""
    moving, running = cluster.policies.moving, cluster.running
    if moving is None or running is None or not cluster.ledger.whole_free:
        return
    for job in running.best_first(now):
        gang = cluster.gangs[job]
        standing = gang.standing
        if gang.leaving or not standing.runs or standing.since == now:
            continue
        slots = cluster.ledger.find(gang.requests, cluster.policies.placing)
        if slots is not None and moving.better(gang, slots, cluster.ledger):
            promise = Reservation(job, slots, gang.needs, gang.entitlement, (job,))
            yield Evict(promise, (job,))
