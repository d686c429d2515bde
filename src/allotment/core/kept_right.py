"""What queues do not lend, looked at by the very place a job would have.

The line asks by what a job wants (`core/lending.py`), before a place is looked for. Here the
place is known: the committer asks, and whoever found one that others make way for.
"""

from collections.abc import Sequence

from allotment.core.cluster import Cluster
from allotment.core.lending import free_of_type, share_left
from allotment.core.plan import Evict
from allotment.core.reclaim import within
from allotment.core.request import Shape, needs_of
from allotment.core.trial import Trial
from allotment.model.amounts import BY_TYPE, FIELDS
from allotment.model.ledger import Entitlement, Slot

GUARANTEED = Entitlement.GUARANTEED


def takes_kept(cluster: Cluster, shape: Shape, slots: Sequence[Slot], due: Entitlement) -> str:
    """Name the queue whose own part a job would take by a place; '' if it takes of none.

    Asked only of tenants in `cluster.queues.keeps`. O(queues that do not lend), and
    O(borrowers) where one keeps devices by type.
    """
    need = cluster.held_on(slots, needs_of(shape.requests))
    left = share_left(cluster, shape.tenant) if due is GUARANTEED else cluster.ledger.free()
    total: dict[str, int] = {}
    for kept in cluster.queues.kept(shape.tenant, shape.queue):
        part, wanted = kept.part, need.get(kept.part, 0)
        total[part] = total.get(part, 0) + kept.amount
        if not wanted:
            continue
        if part.startswith(BY_TYPE):
            there = free_of_type(cluster, part.removeprefix(BY_TYPE), due)
        elif part in FIELDS:
            there = getattr(left, FIELDS[part])
        else:
            continue
        if there - wanted < total[part] and not within(cluster, shape):
            return kept.branch.name
    return ""


def promise_takes_kept(cluster: Cluster, shape: Shape, decision: Evict) -> str:
    """Whether so is a place that others make way for, now or once they have."""
    promise = decision.place
    here = (promise.slots, promise.entitlement)
    if not takes_kept(cluster, shape, *here):
        return ""
    # What its tenant's own give up for it is there, and no longer counts as their queues'.
    with Trial(cluster) as trial:
        for job in decision.instead:
            if cluster.reserved[job].entitlement is GUARANTEED:
                trial.unreserve(job)
        for job in promise.victims:
            gang = cluster.gangs[job]
            if gang.tenant == shape.tenant and gang.entitlement is GUARANTEED:
                trial.drop(job)
        for job, tasks in decision.shed:
            trial.shed(cluster.gangs[job], tasks)
        return takes_kept(cluster, shape, *here)
