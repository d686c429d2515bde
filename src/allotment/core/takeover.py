"""Promises that give way: to a more urgent job of the tenant, or a borrower's to an owner.

Rule: a promise is lost like a place, but it costs no work, so it goes before any gang of the
same priority. Those who were told to go for it go all the same: they count for whoever
takes it over, and nobody is told twice. Its job stands in line again, where it was.

No two jobs can take a promise from each other for ever: it goes up in priority within a
tenant, or from borrowed use to guaranteed use, and never back.
"""

from collections.abc import Iterator, Sequence

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, ReservedPlace, Standing
from allotment.core.trial import Trial
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement, Slot

Holder = Gang | ReservedPlace
"""Who has a place, or has it promised."""


def take_out(trial: Trial, holder: Holder) -> None:
    """Let a gang be gone, or a promise be given up."""
    if isinstance(holder, Gang):
        trial.drop(holder.id)
    else:
        trial.unreserve(holder.job)


def put_back(trial: Trial, holder: Holder) -> None:
    """Bring back what `take_out` took."""
    if isinstance(holder, Gang):
        trial.restore(holder)
    else:
        trial.reserve(holder)


def gangs_of(holders: Sequence[Holder]) -> tuple[JobId, ...]:
    """Return the gangs among them."""
    return tuple(each.id for each in holders if isinstance(each, Gang))


def promises_of(holders: Sequence[Holder]) -> tuple[JobId, ...]:
    """Return the jobs whose promises are among them."""
    return tuple(each.job for each in holders if isinstance(each, ReservedPlace))


def priority_of(cluster: Cluster, job: JobId) -> int | None:
    """Return the priority of a job that waits or is placed; None if it is neither."""
    gang = cluster.gangs.get(job)
    if gang is not None:
        return gang.priority
    return cluster.pending[job].priority if job in cluster.pending else None


def lesser_promises(cluster: Cluster, waiting: Standing) -> Iterator[tuple[int, ReservedPlace]]:
    """Return the promises out of a tenant's own share to its less urgent jobs, by priority.

    Who moves keeps what it is on the way to.
    """
    for job, promise in cluster.reserved.items():
        if promise.entitlement is not Entitlement.GUARANTEED or job in cluster.leaving:
            continue
        priority = priority_of(cluster, job)
        if (
            priority is not None
            and priority < waiting.priority
            and cluster.tenant_of(job) == waiting.shape.tenant
        ):
            yield priority, promise


def borrowed_promises(
    cluster: Cluster, slots: Sequence[Slot] | None = None
) -> list[ReservedPlace]:
    """Return the promises beyond anybody's share: on the nodes of a place, or wherever."""
    if not cluster.reserved:
        return []
    nodes = None if slots is None else {slot.node for slot in slots}
    return [
        promise
        for _, promise in sorted(cluster.reserved.items())
        if promise.entitlement is Entitlement.OPPORTUNISTIC
        and (nodes is None or any(slot.node in nodes for slot in promise.slots))
    ]


def awaited(cluster: Cluster, promises: Sequence[ReservedPlace]) -> list[Gang]:
    """Return the borrowers who are on their way out for some promises: they go in any case."""
    victims = {victim for promise in promises for victim in promise.victims}
    return [
        gang
        for job, gang in sorted(cluster.leaving.items())
        if job in victims and gang.entitlement is Entitlement.OPPORTUNISTIC
    ]
