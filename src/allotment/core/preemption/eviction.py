"""How gangs that must go do so, by their eviction mode: requeued, suspended, or migrated.

The mode is the job's, or else its tenant's. A suspended gang keeps its memory, so that is
done only where the place is free in spite of it. One that migrates has a place reserved on
what is idle, if there is any, and told to go as if evicted; else it waits again.

Bad at: a suspended gang waits for its very devices, whatever else becomes free.
"""

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, ReservedPlace
from allotment.core.plan import Evict, PreemptionPlan
from allotment.core.sharing import borrows
from allotment.core.slices import may_pause
from allotment.core.trial import Trial
from allotment.model.engines import Ability
from allotment.model.ids import JobId
from allotment.model.ledger import GUARANTEED, OPPORTUNISTIC
from allotment.model.quantity import Instant
from allotment.model.spec import GiveWay


def evict(cluster: Cluster, job: JobId, pin: str, plan: PreemptionPlan, now: Instant) -> Evict:
    """Return the decision to reserve a place, and to tell those that were not told yet.

    They go by their mode, where that is possible.
    """
    place = ReservedPlace(
        job, plan.slots, plan.needs, plan.entitlement, plan.evict, plan.quota, pin
    )
    tell = tuple(each for each in plan.evict if not cluster.gangs[each].leaving)
    told = Evict(place, tell, plan.demote, plan.revoke, shrink=plan.shrink)
    modes = {each: eviction_mode(cluster, cluster.gangs[each]) for each in tell}
    if plan.in_turn:
        pause = (each for each in tell if may_pause(cluster.gangs[each]))
        modes |= dict.fromkeys(pause, GiveWay.SUSPEND)
    if GiveWay.SUSPEND in modes.values():
        told = _suspending(cluster, told, _frozen(cluster, modes))
    if GiveWay.MIGRATE in modes.values():
        leaving = [each for each in told.evict if modes[each] is GiveWay.MIGRATE]
        return msgspec.structs.replace(told, moves=_moves(cluster, told, leaving, now))
    return told


def eviction_mode(cluster: Cluster, gang: Gang) -> GiveWay:
    """Return what becomes of a gang that must go."""
    tenant = cluster.tenants.get(gang.tenant)
    return gang.on_eviction or (tenant.on_eviction if tenant else GiveWay.REQUEUE)


def _frozen(cluster: Cluster, modes: dict[JobId, GiveWay]) -> list[JobId]:
    """Return those that may be suspended: they run."""
    return [
        job
        for job, mode in modes.items()
        if mode is GiveWay.SUSPEND
        and cluster.gangs[job].standing.runs
        and not cluster.gangs[job].suspended
        and not cluster.gangs[job].shrinking
        and cluster.ledger.can(Ability.SUSPENDS, cluster.gangs[job].slots)
    ]


def _suspending(cluster: Cluster, evict: Evict, frozen: list[JobId]) -> Evict:
    """Suspend some, if the place is there though they keep their memory."""
    if not frozen or not fits_beside(cluster, evict, tuple(frozen)):
        return evict
    own = [job for job in frozen if cluster.gangs[job].entitlement is GUARANTEED]
    return msgspec.structs.replace(
        evict,
        evict=tuple(job for job in evict.evict if job not in frozen),
        suspend=tuple(frozen),
        demote=tuple(dict.fromkeys((*evict.demote, *own))),
    )


def fits_beside(cluster: Cluster, evict: Evict, frozen: tuple[JobId, ...]) -> bool:
    """Whether the place is there once some are suspended, and the other victims gone."""
    reserved = evict.place
    with Trial(cluster) as trial:
        for job in evict.revoke:
            trial.unreserve(job)
        for job in reserved.victims:
            if job in frozen:
                trial.suspend(cluster.gangs[job])
            else:
                trial.drop(job)
        trial.scale_all_down(evict.shrink)
        return trial.fits(reserved.slots, reserved.needs)


def _moves(
    cluster: Cluster, evict: Evict, leaving: list[JobId], now: Instant
) -> tuple[ReservedPlace, ...]:
    """Find idle places for those that would continue elsewhere."""
    found: list[ReservedPlace] = []
    with Trial(cluster) as trial:
        for job in evict.revoke:
            trial.unreserve(job)
        for job, tasks in evict.shrink:
            trial.part(cluster.gangs[job], tasks)
        for job in evict.demote:
            trial.demote(cluster.gangs[job])
        trial.reserve(evict.place)
        for job in leaving:
            gang = cluster.gangs[job]
            may = borrows(cluster, gang.tenant, preemptible=gang.preemptible)
            if gang.suspended or gang.pin or not may:
                continue
            slots = cluster.guarantee.idle_place(gang.requests)
            if slots is not None and not cluster.barred(job, slots, now):
                entitlement = OPPORTUNISTIC
                move = ReservedPlace(job, slots, gang.needs, entitlement, (job,))
                trial.reserve(move)
                found.append(move)
    return tuple(found)
