"""The jobs that hold what a job waits for: the largest first, by what is short."""

from collections.abc import Iterable
from heapq import nsmallest

from allotment.core.cluster import Cluster
from allotment.core.dimensions import types_wanted
from allotment.core.gang import Gang, held_vector
from allotment.core.request import Shape, held_by
from allotment.core.sharing import may_borrow
from allotment.explain.caps import held_of_cap
from allotment.explain.cell_shares import in_use_by, on_its_kind
from allotment.explain.queues import why_aside
from allotment.model.amounts import (
    BY_TYPE,
    CPU,
    GPU,
    GPU_MEMORY,
    add,
    short,
    vector_of,
    whole_vector,
)
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import NOTHING
from allotment.model.reasons import Blocked, Reason

MOST_HOLDERS = 5

NOBODY_HOLDS = frozenset(
    {Reason.PENDING, Reason.BUDGET, Reason.QUEUE_STOPPED, Reason.NEVER_FITS_NOW}
)
"""Reasons that no end of another job would end."""

DEVICES, CPUS = (GPU,), (CPU,)
OF_DEVICES = frozenset({GPU, GPU_MEMORY})


def holders_of(cluster: Cluster, job: JobId, blocked: Blocked) -> list[JobId]:
    """Return the jobs that leave for a job, or the largest whose end could help it."""
    reservation = cluster.reserved.get(job)
    if reservation is not None:
        awaited = cluster.placed.awaited(reservation)
        return [gang.id for gang in awaited][:MOST_HOLDERS]
    if blocked.reason in NOBODY_HOLDS:
        return []
    if blocked.reason in (Reason.USER_CAP, Reason.QUEUE_LIMIT):
        sizes = ((-held, other) for other, held in held_of_cap(cluster, job))
        return [other for size, other in nsmallest(MOST_HOLDERS, sizes) if size]
    return _largest(cluster, job, blocked)


def _largest(cluster: Cluster, job: JobId, blocked: Blocked) -> list[JobId]:
    """Name the largest holders of any of the parts of which there is too little."""
    shape = cluster.shape_of(job)
    parts = _short(cluster, job, blocked)
    counted = _who_counts(cluster, shape, blocked.reason)
    types = types_wanted(cluster, shape.requests) if counted is None else ()
    if counted is None and parts == DEVICES and not types:
        return _largest_of_all(cluster, job)
    sizes = (
        (tuple(-_amount(cluster, gang, part, types) for part in parts), gang.id)
        for gang in (cluster.gangs.values() if counted is None else counted)
        if gang.id != job
    )
    return [holder for size, holder in nsmallest(MOST_HOLDERS, sizes) if any(size)]


def _short(cluster: Cluster, job: JobId, blocked: Blocked) -> tuple[str, ...]:
    """Name what there is too little of for a job, by what keeps it."""
    shape = cluster.shape_of(job)
    wants_devices = any(request.need.gpu_milli for request in shape.requests)
    usual = DEVICES if wants_devices else CPUS
    if blocked.reason is Reason.QUEUE_SHARE:
        kept = why_aside(cluster, shape)
        parts = kept.parts if kept is not None else ()
        return (
            tuple(dict.fromkeys(GPU if part.startswith(BY_TYPE) else part for part in parts))
            or usual
        )
    if blocked.reason is Reason.QUOTA:
        return usual if cluster.cells is not None else _beyond_share(cluster, job, blocked)
    missing = short(blocked.need, blocked.free)
    if not missing and blocked.reason is Reason.FRAGMENTED:
        missing = _nowhere_enough(cluster, shape)
    return missing or usual


def _beyond_share(cluster: Cluster, job: JobId, blocked: Blocked) -> tuple[str, ...]:
    """Name what a job would go beyond its tenant's guarantee in; nothing where none counts."""
    shape = cluster.shape_of(job)
    tenant = cluster.tenants.get(shape.tenant)
    if tenant is None or shape.opportunistic:
        return ()
    left = cluster.queues.tenants[tenant.name].left.copy()
    add(left, vector_of(blocked.need), -1)
    gang = cluster.gangs.get(job)
    if gang is not None and gang.entitlement is Entitlement.OPPORTUNISTIC:
        add(left, held_vector(gang), -1)  # It would be its tenant's own as a whole.
    return tuple(part for part, amount in left.items() if amount < 0)


def _nowhere_enough(cluster: Cluster, shape: Shape) -> tuple[str, ...]:
    """Name what no machine has as much free of as one task asks for."""
    books = cluster.ledger.books.values()
    free = [whole_vector(book.free()) for book in books if book.open]
    needs = [whole_vector(held_by(request.need)) for request in shape.requests]
    return tuple(
        part
        for part in whole_vector(NOTHING)
        if max((need[part] for need in needs), default=0)
        > max((room[part] for room in free), default=0)
    )


def _who_counts(cluster: Cluster, shape: Shape, reason: Reason) -> Iterable[Gang] | None:
    """Return the jobs whose end could help; None for all jobs."""
    gangs = cluster.gangs
    if cluster.cells is not None:
        named = (on_its_kind if may_borrow(cluster, shape) else in_use_by)(cluster, shape)
        return [gangs[job] for job in named if job in gangs]
    if reason not in (Reason.QUOTA, Reason.QUEUE_SHARE):
        return None
    if reason is Reason.QUEUE_SHARE:
        kept = why_aside(cluster, shape)
        if kept is not None and not kept.whose:
            return None
    return [
        gang
        for gang in gangs.values()
        if gang.tenant == shape.tenant
        # What is borrowed takes nothing of the guarantee.
        and (reason is not Reason.QUOTA or gang.entitlement is Entitlement.GUARANTEED)
    ]


def _amount(cluster: Cluster, gang: Gang, part: str, types: tuple[str, ...]) -> int:
    """Return what a gang holds of a part; of devices, where they are of one of the types."""
    held = whole_vector(gang.held())[part]
    if not held or not types or part not in OF_DEVICES:
        return held
    type_of = cluster.ledger.type_of
    of_them = any(type_of(s.node, index) in types for s in gang.slots for index in s.devices)
    return held if of_them else 0


def _largest_of_all(cluster: Cluster, besides: JobId) -> list[JobId]:
    """Name the gangs with the most devices. O(sizes + gangs of the largest sizes)."""
    found: list[JobId] = []
    for size in sorted(cluster.placed.by_devices, reverse=True):
        if not size or len(found) >= MOST_HOLDERS:
            break
        alike = (gang for gang in cluster.placed.by_devices[size] if gang != besides)
        found += nsmallest(MOST_HOLDERS, alike)
    return found[:MOST_HOLDERS]
