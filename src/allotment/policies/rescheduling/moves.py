"""Moving: a running gang goes where the moving policy says it is better off.

Rule: at a turn, best-ranked gangs first, each is offered the place it would get if it came
now, among what is free. If that is better, the place is reserved for it; it is told to go as
if it were evicted, and starts there. No other is touched; a gang that got nothing done since
it was placed stays, or it could be moved about for ever.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from allotment.core.books import FreePlace
from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, ReservedPlace
from allotment.core.plan import Evict
from allotment.core.request import Request
from allotment.core.trial import Trial
from allotment.model.gains import Gain, MoveFor
from allotment.model.ids import JobId
from allotment.model.ledger import GUARANTEED
from allotment.model.quantity import Instant
from allotment.policies.rescheduling.ports import Moving
from allotment.policies.rescheduling.predicting import by_moving

BetterPlace = Callable[[Gang], FreePlace | None]
"""Finds where a gang is better off, if anywhere."""


def moves(
    cluster: Cluster,
    gangs: Sequence[JobId],
    place_for: BetterPlace,
    now: Instant,
    why: MoveFor = MoveFor.NEARER,
) -> Iterator[Evict]:
    """Propose where gangs move, first ones first. O(gangs · search)."""
    for job in gangs:
        gang = cluster.gangs[job]
        standing = gang.standing
        if gang.leaving or not standing.runs or standing.since == now:
            continue
        with cluster.fenced(standing.shape, now):
            found = place_for(gang)
        if found is not None and not cluster.barred(job, found[0], now):
            yield move_to(cluster, gang, found, by_moving(gang, found[0], why, now))


def move_to(cluster: Cluster, gang: Gang, place: FreePlace, gain: Gain | None = None) -> Evict:
    """Return the decision that a gang leaves, and continues in a place of its own.

    In cells it borrows where it is from then on, for as long as it takes to leave: its cells
    are those of its new place, which may be the same.
    """
    slots, quota = place
    reserved = ReservedPlace(
        gang.id, slots, gang.needs, gang.entitlement, (gang.id,), quota, gang.pin
    )
    own = cluster.cells is not None and gang.entitlement is GUARANTEED
    return Evict(reserved, (gang.id,), demote=(gang.id,) if own else (), gain=gain)


def free_place(cluster: Cluster, gang: Gang, requests: tuple[Request, ...]) -> FreePlace | None:
    """Find a free place for a placed gang, by its entitlement; it may keep what it has.

    `requests` are its own, or ask for tasks that lie closer together. One that borrows in its
    pinned cell has none.
    """
    if gang.pin and gang.entitlement is not GUARANTEED:
        return None
    with Trial(cluster) as trial:
        trial.drop(gang.id)
        shape = replace(gang.standing.shape, requests=requests)
        return cluster.guarantee.free_place(shape, gang.entitlement)


def better_place(cluster: Cluster, gang: Gang, moving: Moving) -> FreePlace | None:
    """Find where a gang is better off among what is free, if anywhere."""
    if moving.content(gang, cluster.ledger):
        return None
    found = _beside_its_own(cluster, gang)
    better = found is not None and moving.better(gang, found[0], cluster.ledger)
    return found if better else None


def _beside_its_own(cluster: Cluster, gang: Gang) -> FreePlace | None:
    """Find a free place for a gang; where shares are counted, apart from what it has."""
    if cluster.cells is not None:
        return free_place(cluster, gang, gang.requests)
    slots = cluster.find(gang.requests)
    return None if slots is None else (slots, ())
