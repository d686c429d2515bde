"""Preemption inside a tenant: its own gangs lose their share to a job that comes before them.

For a more urgent job, or at a job's turn, or to give back what a sibling queue was lent. The
candidates come one by one until the tenant's share has room for the job and there is a place,
if need be by evicting borrowers; then those that turned out not to be needed keep theirs.
Where surplus tasks of elastic gangs are enough, no gang goes whole.

In cells a place is sought in the cells that the candidates have, and only then in others in
their place: so fewer must go, and it is the same whichever nodes are free beside. Where
hardware is lost, nobody else may have less for it: of cells that are given up and not taken at
once, lost ones would be made up for out of what others are owed.
"""

from collections.abc import Sequence

import msgspec

from allotment.core.cells.safety import shortage, shorter
from allotment.core.cluster import Cluster
from allotment.core.gang import Standing
from allotment.core.guarantee import guarantee_of
from allotment.core.owed import book_of
from allotment.core.preemption.candidates import lower_priority, surplus_of, whole
from allotment.core.preemption.owner import is_owed, owners_place
from allotment.core.preemption.search import Candidate, Holder, PreemptionPlan, search
from allotment.core.request import Shape
from allotment.core.trial import Trial
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant
from allotment.model.tenancy import Preempt


def preempt_lower(cluster: Cluster, waiting: Standing, now: Instant) -> PreemptionPlan | None:
    """Find which less urgent gangs of its tenant must give up their share for a job."""
    tenant = cluster.tenants.get(waiting.shape.tenant)
    if tenant is None or tenant.preempt is Preempt.NONE or waiting.shape.opportunistic:
        return None
    lower = lower_priority(cluster, waiting, now)
    surplus = surplus_of(cluster, lower) if tenant.preempt is Preempt.EVICT else ()
    return preempt(cluster, waiting, lower, now, surplus)


def preempt(
    cluster: Cluster,
    waiting: Standing,
    holders: Sequence[Holder],
    now: Instant,
    surplus: Sequence[Candidate] = (),
) -> PreemptionPlan | None:
    """Find which of these, first ones first, must give up their share for a job.

    Where it is enough that some of the `surplus` goes, no gang goes whole.
    """
    for candidates in (surplus, whole(holders)):
        if candidates:
            plan = _preempt(cluster, waiting.shape, candidates, now)
            if plan is not None:
                return plan
    return None


def _preempt(
    cluster: Cluster, shape: Shape, candidates: Sequence[Candidate], now: Instant
) -> PreemptionPlan | None:
    guarantee = guarantee_of(cluster)
    with guarantee.keeping(shape.tenant, shape.pin):
        plan = _search(cluster, shape, candidates, now)
    if not guarantee.spaces:
        return plan
    if plan is not None and _spares_others(cluster, shape, plan):
        return plan
    return _search(cluster, shape, candidates, now)


def _search(
    cluster: Cluster, shape: Shape, candidates: Sequence[Candidate], now: Instant
) -> PreemptionPlan | None:
    with Trial(cluster) as trial:
        plan = search(
            trial,
            candidates,
            lambda: owners_place(trial, shape, now),
            lambda plan: is_owed(cluster, shape, plan),
        )
    return plan and msgspec.structs.replace(plan, demote=_demoted(cluster, shape, plan))


def _demoted(cluster: Cluster, shape: Shape, plan: PreemptionPlan) -> tuple[JobId, ...]:
    """Return the victims that lose their own tenant's share."""
    gangs = (cluster.gangs[job] for job in plan.evict)
    return tuple(
        gang.id
        for gang in gangs
        if gang.entitlement is Entitlement.GUARANTEED
        and ((not gang.leaving and gang.tenant == shape.tenant) or gang.id in plan.demote)
    )


def losers(cluster: Cluster, waiting: Standing, plan: PreemptionPlan) -> list[JobId]:
    """Return the gangs of its own tenant that lose their share to a job."""
    tenant = waiting.shape.tenant
    return [job for job in plan.demote if cluster.gangs[job].tenant == tenant]


def _spares_others(cluster: Cluster, shape: Shape, plan: PreemptionPlan) -> bool:
    """Whether nobody lacks more cells for it that a place is taken."""
    cells = book_of(cluster)
    if not any(space.broken for space in cells.spaces):
        return True
    before = shortage(cells.spaces)
    place = (shape.tenant, shape.pin, plan.slots, plan.needs, plan.quota)
    with Trial(cluster) as trial:
        trial.carry_out(plan.evict, plan.revoke, plan.shrink)
        between = shortage(cells.spaces)
        cells.take(*place, JobId(0))
        after = shortage(cells.spaces)
        cells.give(*place, JobId(0))
    return not (shorter(before, after) and shorter(between, after))


def fits_by_demotion(
    cluster: Cluster, waiting: Standing, plan: PreemptionPlan, now: Instant
) -> bool:
    """Whether there is a place once gangs only lose their share, and stay as borrowers.

    Cells that they give up are nobody's then: where hardware is lost, others may be owed
    them first.
    """
    with Trial(cluster) as trial:
        for job in losers(cluster, waiting, plan):
            trial.demote(cluster.gangs[job])
        for job in plan.revoke:
            trial.unreserve(job)
        return owners_place(trial, waiting.shape, now) is not None
