"""How those who must go do so: they stand in line again, are frozen, or go on elsewhere.

Rule: as the job says, or else its tenant. Who is frozen keeps its memory, so that is done
only where the place is free in spite of it. Who migrates is promised a place on what is idle,
if there is any, and told to go as if evicted; else it stands in line again.

Bad at: who is frozen waits for its very devices, whatever else becomes free.
"""

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.entitle import borrows
from allotment.core.gang import Gang, ReservedPlace
from allotment.core.owed import idle_slots
from allotment.core.plan import Evict
from allotment.core.request import lease_part, sum_of
from allotment.core.trial import Trial
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant
from allotment.model.spec import GiveWay


def way_of(cluster: Cluster, gang: Gang) -> GiveWay:
    """Return what becomes of a gang that must go."""
    if cluster.policies.turns is not None:
        return GiveWay.REQUEUE  # Whoever takes turns comes back by its turn.
    tenant = cluster.tenants.get(gang.tenant)
    return gang.on_eviction or (tenant.on_eviction if tenant else GiveWay.REQUEUE)


def gently(cluster: Cluster, evict: Evict, now: Instant) -> Evict:
    """Let those who are told to go do so in their own way, where that is possible."""
    ways = {job: way_of(cluster, cluster.gangs[job]) for job in evict.evict}
    if GiveWay.SUSPEND in ways.values():
        evict = _suspending(cluster, evict, _frozen(cluster, ways))
    if GiveWay.MIGRATE in ways.values():
        leaving = [job for job in evict.evict if ways[job] is GiveWay.MIGRATE]
        return msgspec.structs.replace(evict, moves=_moves(cluster, evict, leaving, now))
    return evict


def _frozen(cluster: Cluster, ways: dict[JobId, GiveWay]) -> list[JobId]:
    """Return those who may be frozen: they run."""
    return [
        job
        for job, way in ways.items()
        if way is GiveWay.SUSPEND
        and cluster.gangs[job].standing.runs
        and not cluster.gangs[job].suspended
        and not cluster.gangs[job].shrinking
    ]


def _suspending(cluster: Cluster, evict: Evict, frozen: list[JobId]) -> Evict:
    """Freeze some, if the place is there though they keep their memory."""
    if not frozen or not fits_beside(cluster, evict, tuple(frozen)):
        return evict
    own = [job for job in frozen if cluster.gangs[job].entitlement is Entitlement.GUARANTEED]
    return msgspec.structs.replace(
        evict,
        evict=tuple(job for job in evict.evict if job not in frozen),
        suspend=tuple(frozen),
        demote=tuple(dict.fromkeys((*evict.demote, *own))),
    )


def fits_beside(cluster: Cluster, evict: Evict, frozen: tuple[JobId, ...]) -> bool:
    """Whether the place is there once some are frozen, and the other victims gone."""
    promise = evict.place
    with Trial(cluster) as trial:
        for job in evict.instead:
            trial.unreserve(job)
        for job in promise.victims:
            gang = trial.drop(job)
            if job in frozen:
                keeps = tuple(need - lease_part(need) for need in gang.needs)
                trial.hold(gang.slots, keeps)
        trial.shed_all(evict.shed)
        return trial.fits(promise.slots, promise.needs)


def _moves(
    cluster: Cluster, evict: Evict, leaving: list[JobId], now: Instant
) -> tuple[ReservedPlace, ...]:
    """Find idle places for those who would go on elsewhere."""
    found: list[ReservedPlace] = []
    with Trial(cluster) as trial:
        for job in evict.instead:
            trial.unreserve(job)
        for job, tasks in evict.shed:
            trial.part(cluster.gangs[job], tasks)
        for job in evict.demote:
            trial.demote(cluster.gangs[job])
        trial.reserve(evict.place)
        for job in leaving:
            gang = cluster.gangs[job]
            total = sum_of(gang.needs)
            if (
                gang.suspended
                or gang.pin
                or not borrows(cluster, gang.tenant, total, preemptible=gang.preemptible)
            ):
                continue
            slots = idle_slots(cluster, gang.requests)
            if slots is not None and not cluster.barred(job, slots, now):
                grounds = Entitlement.OPPORTUNISTIC
                move = ReservedPlace(job, slots, gang.needs, grounds, (job,))
                trial.reserve(move)
                found.append(move)
    return tuple(found)
