"""Displacing: a waiting job takes the place of gangs of its tenant that rank behind it.

Rule: from the worst-ranked gang on, one whole gang at a time, until there is room; then
a gang that turned out not to be in the way is reprieved, best-ranked first. The outcome is
that of dealing the devices out anew to all jobs in order, leaving out what does not fit, at
the cost of looking only at those that must go.

A guaranteed gang goes only for a job that is guaranteed the place, too; for one
that would borrow only borrowers go. So no two jobs can chase each other at one moment: among
equals a job displaces only such as rank behind it, and ranks are a total order; and a job
that takes its own back from a borrower is not displaced by that borrower again.
"""

from collections.abc import Iterator, Sequence

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.entitle import resume_entitlement
from allotment.core.gang import Gang, Standing
from allotment.core.plan import PreemptionPlan
from allotment.core.preemption.room import preempt
from allotment.core.preemption.search import awaited, leaving, search, whole
from allotment.core.rank import Key
from allotment.core.request import Request, devices_of
from allotment.core.sharing import entitle_shape
from allotment.core.trial import Trial
from allotment.model.ids import JobId
from allotment.model.ledger import GUARANTEED, Entitlement, Slot
from allotment.model.quantity import DEVICE, Instant
from allotment.policies.rescheduling.giving_up import idle_place
from allotment.policies.rescheduling.running import Running


def displace(
    cluster: Cluster, order: Running, waiting: Standing, now: Instant
) -> PreemptionPlan | None:
    """Find the gangs whose turn is over so that a waiting job gets its own; None if none is."""
    plan = _displace(cluster, waiting, _worse(cluster, order, waiting, now))
    if plan is None or plan.entitlement is GUARANTEED or not is_guaranteed(cluster, plan.evict):
        return plan
    worse = _worse(cluster, order, waiting, now, borrowers=True)
    return _displace(cluster, waiting, worse)


def is_guaranteed(cluster: Cluster, victims: Sequence[JobId]) -> bool:
    """Whether any has its place as its tenant's own."""
    return any(cluster.gangs[job].entitlement is GUARANTEED for job in victims)


def _displace(cluster: Cluster, waiting: Standing, worse: list[Gang]) -> PreemptionPlan | None:
    """Find a place in that of some gangs that rank behind a job."""
    if not worse:
        return None
    shape = waiting.shape
    with Trial(cluster) as trial:

        def fits() -> PreemptionPlan | None:
            return idle_place(cluster, shape, entitle_shape(cluster, shape))

        def stands(plan: PreemptionPlan) -> bool:
            return entitle_shape(cluster, shape) is plan.entitlement

        spare = _coming(cluster) > cluster.ledger.awaited * DEVICE
        going = leaving(cluster) if spare else []
        if spare:
            trial.let_all_part()
        # First by numbers alone: a place is found around those that can stay.
        start = trial.mark()
        there = [trial.drop(job) for job in sorted(cluster.placed.leaving)] if spare else []
        gone = _by_numbers(cluster, worse, shape.requests)
        plan = search(trial, whole(gone), fits, stands, pausing=()) if gone else fits()
        if plan is not None:
            in_the_way = [gang.id for gang in there if _overlap(gang, plan.slots)]
            return msgspec.structs.replace(plan, evict=(*in_the_way, *plan.evict))
        # The numbers suffice, but not where one task needs it together.
        trial.rollback(start)
        return search(trial, [*going, *whole(worse)], fits, stands)


def displace_in_cells(
    cluster: Cluster, order: Running, waiting: Standing, now: Instant
) -> PreemptionPlan | None:
    """Find whose turn is over so that a waiting job gets its own in its tenant's cells."""
    shape = waiting.shape
    if shape.opportunistic:
        return None
    key = cluster.pending.key(waiting.id)
    behind = _behind(cluster, order, key, shape.tenant, now)
    worse = [gang for gang in behind if gang.entitlement is GUARANTEED]
    return preempt(cluster, waiting, worse, now)


def displace_from(
    cluster: Cluster, order: Running, gang: Gang, now: Instant
) -> PreemptionPlan | None:
    """Find whose turn is over so that a suspended gang gets its own devices back."""
    has_right = resume_entitlement(cluster, gang, now) is not None
    nodes = {slot.node for slot in gang.slots}
    worse = [
        other
        for other in _behind(cluster, order, order.key(gang.id, now), gang.tenant, now)
        if not has_right or any(slot.node in nodes for slot in other.slots)
    ]
    plan = _clear(cluster, gang, worse, now)
    if plan is None or plan.entitlement is GUARANTEED or not is_guaranteed(cluster, plan.evict):
        return plan
    borrowers = [other for other in worse if other.entitlement is not GUARANTEED]
    return _clear(cluster, gang, borrowers, now)


def _clear(
    cluster: Cluster, gang: Gang, worse: list[Gang], now: Instant
) -> PreemptionPlan | None:
    """Find the gangs that must leave a suspended gang's devices, or the quota it needs."""
    with Trial(cluster) as trial:
        trial.let_all_part()
        return search(
            trial,
            whole(worse),
            lambda: own_place(trial, gang, resume_entitlement(cluster, gang, now)),
            lambda plan: resume_entitlement(cluster, gang, now) is plan.entitlement,
            going=leaving(cluster),
        )


def own_place(trial: Trial, gang: Gang, entitled: Entitlement | None) -> PreemptionPlan | None:
    """Return the place of a suspended gang, if it is free and the gang has the right to it."""
    if entitled is None or not trial.fits(gang.slots, gang.leases()):
        return None
    quota = trial.cluster.guarantee.quota_kept(gang) if entitled is GUARANTEED else ()
    return PreemptionPlan(gang.slots, gang.leases(), quota, entitled)


def _behind(
    cluster: Cluster, order: Running, key: Key, tenant: str, now: Instant
) -> Iterator[Gang]:
    """Yield the gangs of a tenant that rank behind a place and may go, worst first."""
    going: set[JobId] | None = None
    for job in order.worst_first(key, now):
        if going is None:
            going = awaited(cluster)
        gang = cluster.gangs[job]
        if gang.tenant == tenant and not (gang.leaving or gang.suspended or job in going):
            yield gang


def _overlap(gang: Gang, slots: tuple[Slot, ...]) -> bool:
    """Whether a gang sits on a node of a place."""
    nodes = {slot.node for slot in slots}
    return any(slot.node in nodes for slot in gang.slots)


def _by_numbers(
    cluster: Cluster, worse: list[Gang], requests: tuple[Request, ...]
) -> list[Gang]:
    """Return the gangs that must go, worst first, if only numbers of free devices counted.

    The search tries these first: it says whether they suffice, and which of them may stay.
    A gang that leaves anyway is out of the books already.
    """
    spare = cluster.ledger.whole_free - devices_of(requests)
    spare += sum(devices_of(gang.requests) for gang in worse)
    gone: list[Gang] = []
    for gang in reversed(worse):
        devices = devices_of(gang.requests)
        if devices <= spare:
            spare -= devices
        else:
            gone.append(gang)
    gone.reverse()
    return gone


def _coming(cluster: Cluster) -> int:
    """Sum up what leaving gangs will free, reserved or not, in thousandths."""
    coming = (*cluster.placed.leaving.values(), *cluster.placed.parting.values())
    return sum(gang.held().gpu_milli for gang in coming)


def _worse(
    cluster: Cluster,
    order: Running,
    waiting: Standing,
    now: Instant,
    *,
    borrowers: bool = False,
) -> list[Gang]:
    """Return just enough gangs that rank behind, worst first; none when all are not enough."""
    ledger = cluster.ledger
    # What leaving gangs will free counts, less what of it is reserved already.
    coming = max(0, _coming(cluster) - ledger.awaited * DEVICE)
    missing = waiting.gpu_milli - ledger.whole_free * DEVICE - coming
    worse: list[Gang] = []
    key = cluster.pending.key(waiting.id)
    for gang in _behind(cluster, order, key, waiting.shape.tenant, now):
        if worse and missing <= 0:
            break
        if not (borrowers and gang.entitlement is GUARANTEED):
            worse.append(gang)
            missing -= gang.held().gpu_milli
    return worse if missing <= 0 else []
