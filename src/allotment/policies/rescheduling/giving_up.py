"""Giving up: elastic gangs of queues that grow make room for a job with their surplus tasks.

Rule: those placed last first, no more tasks than need be, and never below what a gang can go
on with. Jobs of the same tenant get them, or among borrowers any; one that is guaranteed its
place only what is guaranteed, and a borrower only what is borrowed.

In cells, a gang that is guaranteed gives up leaves in its tenant's cells: the place of the
job is the one that it would have without these tasks.
"""

from collections.abc import Iterable, Sequence

from allotment.core.cluster import Cluster
from allotment.core.entitle import entitlement_of
from allotment.core.gang import Gang, Standing
from allotment.core.plan import PreemptionPlan
from allotment.core.preemption.room import preempt
from allotment.core.preemption.search import may_scale_down, search
from allotment.core.request import Shape, devices_of, needs_of
from allotment.core.sharing import may_borrow
from allotment.core.trial import Trial
from allotment.model.ledger import GUARANTEED, OPPORTUNISTIC, Entitlement
from allotment.model.quantity import Instant


def given_up(
    cluster: Cluster, gangs: Iterable[Gang], job: Standing, now: Instant
) -> PreemptionPlan | None:
    """Find a place for a job that surplus tasks of some gangs make."""
    lent = _surplus(cluster, gangs, job.shape)
    borrowed = [gang for gang in lent if gang.entitlement is OPPORTUNISTIC]
    if cluster.cells is not None:
        own = [gang for gang in lent if gang.entitlement is GUARANTEED]
        return _of_its_cells(cluster, job, own, now) or _idle(cluster, job.shape, borrowed)
    plan = _counted(cluster, job.shape, lent)
    if plan is None or plan.entitlement is GUARANTEED:
        return plan
    return _counted(cluster, job.shape, borrowed)


def _surplus(cluster: Cluster, gangs: Iterable[Gang], shape: Shape) -> list[Gang]:
    """Return the gangs that may give up tasks to a job, newest first."""
    found = [
        gang
        for gang in gangs
        if may_scale_down(cluster, gang)
        and (gang.entitlement is OPPORTUNISTIC or gang.tenant == shape.tenant)
    ]
    return sorted(found, key=lambda gang: (-gang.placed_at, -gang.id))


def _counted(cluster: Cluster, shape: Shape, lent: Sequence[Gang]) -> PreemptionPlan | None:
    """Find a place where shares are counted."""
    if not _are_enough(cluster, shape, lent):
        return None
    with Trial(cluster) as trial:
        trial.let_all_part()
        return search(
            trial,
            ((gang, gang.least) for gang in lent),
            lambda: idle_place(cluster, shape, entitlement_of(cluster, shape)),
            lambda plan: entitlement_of(cluster, shape) is plan.entitlement,
        )


def idle_place(
    cluster: Cluster, shape: Shape, entitled: Entitlement | None
) -> PreemptionPlan | None:
    """Find a place that is free, for what has the right to one."""
    slots = cluster.find(shape.requests) if entitled is not None else None
    if entitled is None or slots is None:
        return None
    return PreemptionPlan(slots, needs_of(shape.requests), entitlement=entitled)


def _of_its_cells(
    cluster: Cluster, job: Standing, own: Sequence[Gang], now: Instant
) -> PreemptionPlan | None:
    """Find a place in its tenant's cells, of which others of its tenant give up some."""
    if not own or job.shape.opportunistic:
        return None
    return preempt(cluster, job, (), now, [(gang, gang.least) for gang in own])


def _idle(cluster: Cluster, shape: Shape, borrowed: Sequence[Gang]) -> PreemptionPlan | None:
    """Find a place on idle leaves, where borrowers give up theirs."""
    if not (may_borrow(cluster, shape) and _are_enough(cluster, shape, borrowed)):
        return None
    requests = shape.requests
    with Trial(cluster) as trial:

        def fits() -> PreemptionPlan | None:
            slots = cluster.guarantee.idle_place(requests)
            if slots is None:
                return None
            return PreemptionPlan(slots, needs_of(requests), entitlement=OPPORTUNISTIC)

        trial.let_all_part()
        return search(trial, ((gang, gang.least) for gang in borrowed), fits)


def _are_enough(cluster: Cluster, shape: Shape, lent: Sequence[Gang]) -> bool:
    """Whether a job has devices enough once some gangs gave up what they may, by numbers."""
    spare = sum(devices_of(gang.surplus(gang.least).requests) for gang in lent)
    parting = (devices_of(gang.requests) for gang in cluster.placed.parting.values())
    return bool(lent) and shape.devices <= cluster.ledger.whole_free + spare + sum(parting)
