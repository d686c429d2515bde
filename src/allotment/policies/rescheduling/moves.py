"""Moving: a running gang goes where the moving policy says it is better off.

Rule: at a turn, best-ranked gangs first, each is offered the place it would get if it came
now, among what is free. If that is better it is promised the place, told to go as if it were
evicted, and starts there. No other is touched; a gang that got nothing done since it was
placed stays, or it could be moved about for ever.
"""

from collections.abc import Callable, Iterator, Sequence

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, ReservedPlace
from allotment.core.plan import Evict
from allotment.model.gains import Gain
from allotment.model.ids import JobId
from allotment.model.ledger import Slot
from allotment.model.quantity import Instant, Millis
from allotment.policies.rescheduling.ports import Moving

BetterPlace = Callable[[Gang], tuple[Slot, ...] | None]
"""Finds where a gang is better off, if anywhere."""


def moves(
    cluster: Cluster, gangs: Sequence[JobId], place_for: BetterPlace, now: Instant
) -> Iterator[Evict]:
    """Propose where gangs move, first ones first. O(gangs · search)."""
    for job in gangs:
        gang = cluster.gangs[job]
        standing = gang.standing
        if gang.leaving or not standing.runs or standing.since == now:
            continue
        with cluster.fenced(standing.shape, now):
            slots = place_for(gang)
        if slots is not None and not cluster.barred(job, slots, now):
            promise = ReservedPlace(job, slots, gang.needs, gang.entitlement, (job,))
            yield Evict(promise, (job,), gain=_gain(gang, now))


def _gain(gang: Gang, now: Instant) -> Gain | None:
    """Return what to compare with after a move: how fast a gang is now, if that is known."""
    pace = gang.gauge.pace if gang.gauge is not None else None
    if pace is None:
        return None
    cost = Millis(gang.standing.switch_ms + max(0, now - gang.saved_at))
    return Gain(len(gang.slots), pace.rate, cost_ms=cost)


def better_place(cluster: Cluster, gang: Gang, moving: Moving) -> tuple[Slot, ...] | None:
    """Find where a gang is better off among what is free, if anywhere."""
    if moving.content(gang, cluster.ledger):
        return None
    slots = cluster.find(gang.requests)
    return slots if slots is not None and moving.better(gang, slots, cluster.ledger) else None
