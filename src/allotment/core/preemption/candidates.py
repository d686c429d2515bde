"""What may be preempted, and in which order: each source is a list of candidates.

A reserved place is lost like a place that is held, but that costs no work: of one priority
reserved places go before gangs. The gangs that were told to go for it go all the same, and
count for the job that takes it over.

No two jobs can take a reserved place from each other for ever: it goes up in priority within a
tenant, or from borrowed to guaranteed use, and never back.
"""

from collections.abc import Iterable, Iterator, Sequence

from allotment.core.cluster import Cluster
from allotment.core.disruption import may_lose
from allotment.core.elastic import may_scale_down
from allotment.core.gang import Gang, ReservedPlace, Standing
from allotment.core.preemption.search import Candidate, Holder
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import Instant

GUARANTEED, OPPORTUNISTIC = Entitlement.GUARANTEED, Entitlement.OPPORTUNISTIC


def whole(holders: Iterable[Holder]) -> list[Candidate]:
    """Return holders as candidates that keep nothing."""
    return [(holder, 0) for holder in holders]


def surplus_of(cluster: Cluster, holders: Iterable[Holder]) -> list[Candidate]:
    """Return the elastic gangs among some holders as candidates that scale down."""
    if not cluster.placed.elastic:
        return []
    gangs = (each for each in holders if isinstance(each, Gang) and each.least)
    return [(gang, gang.least) for gang in gangs if may_scale_down(cluster, gang)]


def leaving(cluster: Cluster) -> list[Candidate]:
    """Return the gangs that were told to go: they do so in any case."""
    return [(gang, 0) for _, gang in sorted(cluster.placed.leaving.items())]


# ── borrowers ───────────────────────────────────────────────────────────────────────────


def borrowers(cluster: Cluster, now: Instant) -> Iterator[Candidate]:
    """Return what is leaving, what is reserved for borrowers, then borrowers.

    These come cheapest first; ties: newest first.
    """
    promised = awaited(cluster)
    yield from leaving(cluster)
    yield from whole(borrowed_places(cluster))
    key = cluster.policies.victims.key
    gangs = [
        gang
        for gangs in cluster.placed.borrowers.values()
        for gang in gangs.values()
        if not gang.leaving and gang.id not in promised
    ]
    gangs.sort(key=lambda gang: (key(gang, now), -gang.id))
    yield from whole(gangs)


def borrowed_surplus(cluster: Cluster, now: Instant) -> list[Candidate]:
    """Return what is leaving, then elastic borrowers, which only scale down."""
    key = cluster.policies.victims.key
    elastic = [
        gang for gang in cluster.placed.elastic.values() if gang.entitlement is OPPORTUNISTIC
    ]
    elastic.sort(key=lambda gang: (key(gang, now), -gang.id))
    return [*leaving(cluster), *surplus_of(cluster, elastic)]


def borrowed_places(
    cluster: Cluster, slots: Sequence[Slot] | None = None
) -> list[ReservedPlace]:
    """Return what is reserved beyond anybody's share: on the nodes of a place, or wherever."""
    if not cluster.reserved:
        return []
    nodes = None if slots is None else {slot.node for slot in slots}
    return [
        promise
        for _, promise in sorted(cluster.reserved.items())
        if promise.entitlement is OPPORTUNISTIC
        and (nodes is None or any(slot.node in nodes for slot in promise.slots))
    ]


# ── a tenant's own ──────────────────────────────────────────────────────────────────────


def lower_priority(cluster: Cluster, waiting: Standing, now: Instant) -> list[Holder]:
    """Return the less urgent gangs and reserved places of a job's tenant, cheapest first.

    Lowest priority first; of one priority reserved places, then gangs as the victims policy
    has it. Gangs that its rules protect now are left out.
    """
    key, budget = cluster.policies.victims.key, cluster.disruption
    tenant = waiting.shape.tenant
    spared = budget is not None and budget.exhausted(tenant, now)
    gangs = [
        ((gang.priority, 1, *key(gang, now), -gang.id), gang)
        for gang in (cluster.gangs.values() if not spared else ())
        if may_lose(waiting, gang)
        and (
            gang.priority < waiting.priority
            if budget is None
            else budget.gives_way(waiting, gang, now)
        )
    ]
    places = [
        ((priority, 0, -promise.job), promise)
        for priority, promise in _lesser_places(cluster, waiting)
    ]
    return [holder for _, holder in sorted([*gangs, *places], key=lambda pair: pair[0])]


def _lesser_places(cluster: Cluster, waiting: Standing) -> Iterator[tuple[int, ReservedPlace]]:
    """Return what is reserved for less urgent jobs out of their tenant's share, by priority.

    A gang that moves keeps what it is on the way to.
    """
    for job, promise in cluster.reserved.items():
        if promise.entitlement is not GUARANTEED or job in cluster.placed.leaving:
            continue
        priority = priority_of(cluster, job)
        if (
            priority is not None
            and priority < waiting.priority
            and cluster.tenant_of(job) == waiting.shape.tenant
        ):
            yield priority, promise


def priority_of(cluster: Cluster, job: JobId) -> int | None:
    """Return the priority of a job that waits or is placed; None if it is neither."""
    gang = cluster.gangs.get(job)
    if gang is not None:
        return gang.priority
    return cluster.pending[job].priority if job in cluster.pending else None


def awaited(cluster: Cluster) -> set[JobId]:
    """Return the gangs whose leaving some reserved place waits for."""
    return {job for promise in cluster.reserved.values() for job in promise.victims}
