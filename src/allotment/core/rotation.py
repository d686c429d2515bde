"""Taking turns: a waiting job takes the place of gangs of its tenant that rank behind it.

Rule: from the worst-ranked gang on, one whole gang at a time, until there is room; then
whoever turned out not to be in the way is let off, best-ranked first. The outcome is that
of dealing the devices out anew to all jobs in order, leaving out whoever does not fit, at
the cost of looking only at those who must go.

Who has a place as its tenant's own goes only for a job that has it as its own, too; for one
that would borrow only borrowers go. So no two jobs can chase each other at one moment: among
equals a job displaces only such as rank behind it, and ranks are a total order; and a job
that takes its own back from a borrower is not displaced by that borrower again.
"""

from collections.abc import Sequence

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, Standing
from allotment.core.guarantee import entitle
from allotment.core.preemption.candidates import awaited, leaving, whole
from allotment.core.preemption.search import PreemptionPlan, search
from allotment.core.preemption.tenant import preempt
from allotment.core.request import Request, devices_of, needs_of, total_of
from allotment.core.trial import Trial
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import DEVICE, Instant

GUARANTEED = Entitlement.GUARANTEED


def rotate(cluster: Cluster, waiting: Standing, now: Instant) -> PreemptionPlan | None:
    """Find whose turn is over so that a waiting job gets its own; None if nobody's is."""
    plan = _rotate(cluster, waiting, _worse(cluster, waiting, now))
    if plan is None or plan.grounds is GUARANTEED or not _owed(cluster, plan.evict):
        return plan
    return _rotate(cluster, waiting, _worse(cluster, waiting, now, borrowers=True))


def _owed(cluster: Cluster, victims: Sequence[JobId]) -> bool:
    """Whether any has its place as its tenant's own."""
    return any(cluster.gangs[job].entitlement is GUARANTEED for job in victims)


def _rotate(cluster: Cluster, waiting: Standing, worse: list[Gang]) -> PreemptionPlan | None:
    """Find a place in that of some who rank behind a job."""
    if not worse:
        return None
    requests = waiting.shape.requests
    needs = needs_of(requests)
    with Trial(cluster) as trial:

        def fits() -> PreemptionPlan | None:
            due = _due(cluster, waiting)
            slots = cluster.find(requests) if due is not None else None
            if due is None or slots is None:
                return None
            return PreemptionPlan(slots, needs, grounds=due)

        spare = _coming(cluster) > cluster.ledger.owed * DEVICE
        going = leaving(cluster) if spare else []
        if spare:
            trial.let_all_part()
        # First by numbers alone: a place is found around those who can stay.
        start = trial.mark()
        there = [trial.drop(job) for job in sorted(cluster.placed.leaving)] if spare else []
        gone = _by_numbers(cluster, worse, requests)
        for gang in gone:
            trial.drop(gang.id)
        plan = fits()
        if plan is not None:
            in_the_way = [gang.id for gang in there if _overlap(gang, plan.slots)]
            evict = (*in_the_way, *(gang.id for gang in gone))
            return msgspec.structs.replace(plan, evict=evict)
        # The numbers suffice, but not where one task needs it together.
        trial.rollback(start)
        return search(
            trial,
            [*going, *whole(worse)],
            fits,
            lambda plan: _due(cluster, waiting) is plan.grounds,
        )


def rotate_in_cells(cluster: Cluster, waiting: Standing, now: Instant) -> PreemptionPlan | None:
    """Find whose turn is over so that a waiting job gets its own in its tenant's cells."""
    running = cluster.running
    assert running is not None, "turns are taken only where an order of gangs is kept"
    shape = waiting.shape
    if shape.opportunistic:
        return None
    promised = awaited(cluster)
    worse = [
        gang
        for job in running.worst_first(cluster.pending.key(waiting.id), now)
        for gang in (cluster.gangs[job],)
        if gang.tenant == shape.tenant
        and gang.entitlement is GUARANTEED
        and not (gang.leaving or gang.suspended or job in promised)
    ]
    return preempt(cluster, waiting, worse, now)


def _due(cluster: Cluster, waiting: Standing) -> Entitlement | None:
    shape = waiting.shape
    need = total_of(shape.requests)
    return entitle(cluster, shape.tenant, need, preemptible=shape.preemptible)


def _overlap(gang: Gang, slots: tuple[Slot, ...]) -> bool:
    """Whether a gang sits on a node of a place."""
    nodes = {slot.node for slot in slots}
    return any(slot.node in nodes for slot in gang.slots)


def _by_numbers(
    cluster: Cluster, worse: list[Gang], requests: tuple[Request, ...]
) -> list[Gang]:
    """Return who must go, worst first, if only the numbers of whole free devices counted.

    Whoever leaves anyway is out of the books already.
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
    """Sum up what those who leave will free, promised or not, in thousandths."""
    coming = (*cluster.placed.leaving.values(), *cluster.placed.parting.values())
    return sum(gang.held().gpu_milli for gang in coming)


def _worse(
    cluster: Cluster, waiting: Standing, now: Instant, *, borrowers: bool = False
) -> list[Gang]:
    """Return just enough gangs that rank behind, worst first; none when all are not enough."""
    running, ledger = cluster.running, cluster.ledger
    assert running is not None, "turns are taken only where an order of gangs is kept"
    # What those who leave will free counts, less what of it is promised already.
    coming = max(0, _coming(cluster) - ledger.owed * DEVICE)
    missing = waiting.gpu_milli - ledger.whole_free * DEVICE - coming
    worse: list[Gang] = []
    promised: set[JobId] | None = None
    for job in running.worst_first(cluster.pending.key(waiting.id), now):
        if worse and missing <= 0:
            break
        if promised is None:
            promised = awaited(cluster)
        gang = cluster.gangs[job]
        if gang.leaving or gang.suspended or job in promised:
            continue
        if borrowers and gang.entitlement is GUARANTEED:
            continue
        if gang.tenant == waiting.shape.tenant:
            worse.append(gang)
            missing -= gang.held().gpu_milli
    return worse if missing <= 0 else []
