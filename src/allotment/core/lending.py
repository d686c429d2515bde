"""What queues that do not lend keep from the other queues of their tenant.

Rule: what such a queue is guaranteed and does not use is its own part of what its tenant is
owed. No job of another queue gets any of it on the tenant's grounds, unless within its own
queue's guarantee. Such a job may borrow instead what other tenants leave idle, as long as
so much stays idle as is kept. Devices of one type that are kept stay free as such, on
whatever grounds somebody asks; those that borrowers could be sent away from count as free
to who may do so. Of devices by type only whole ones are counted.
"""

from collections.abc import Iterator, Sequence

import msgspec

from allotment.core.caps import NO_TYPE
from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, Standing
from allotment.core.plan import Evict
from allotment.core.quota import Kept
from allotment.core.reclaim import need_of, within
from allotment.core.request import Request, Shape, held_by, needs_of
from allotment.core.trial import Trial
from allotment.model.amounts import BY_TYPE, FIELDS, of_type
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import DEVICE, NOTHING, Resources


def kept_of_share(cluster: Cluster, shape: Shape) -> Kept | None:
    """Return what a job would take of its tenant's guarantee that is another queue's own."""
    if within(cluster, shape):
        return None
    left = share_left(cluster, shape.tenant)
    return _lacking(cluster, shape.tenant, shape.queue, need_of(cluster, shape), left)


def kept_from_borrower(cluster: Cluster, gang: Gang) -> Kept | None:
    """Return what a borrower would take of its tenant's guarantee that is another queue's."""
    queue = gang.standing.shape.queue
    need = cluster.held_on(gang.slots, gang.kept())
    for branch in cluster.queues.chain(gang.tenant, queue):
        if branch.holds_within(need):
            return None
    return _lacking(cluster, gang.tenant, queue, need, share_left(cluster, gang.tenant))


def kept_of_idle(cluster: Cluster, shape: Shape, due: Entitlement | None) -> Kept | None:
    """Return what a job would take of idle devices that is kept free for another queue."""
    if within(cluster, shape):
        return None
    if shape.tenant in cluster.queues.keeps_types:
        for request, lent in _kinds(cluster, shape, due):
            if not lent:
                kinds = {of_type(kind) for kind in request.types or cluster.device_types}
                kept = cluster.queues.kept(shape.tenant, shape.queue)
                return next(each for each in kept if each.part in kinds)
    if due is Entitlement.GUARANTEED:
        return None
    need, left = need_of(cluster, shape), cluster.ledger.free()
    return _lacking(cluster, shape.tenant, shape.queue, need, left)


def of_types_lent(cluster: Cluster, shape: Shape, due: Entitlement | None) -> Shape:
    """Return the same shape with only those types of devices that are not kept from it."""
    if shape.tenant not in cluster.queues.keeps_types or within(cluster, shape):
        return shape
    requests = tuple(
        request
        if len(lent) == len(request.types or cluster.device_types)
        else msgspec.structs.replace(request, types=lent or NO_TYPE)
        for request, lent in _kinds(cluster, shape, due)
    )
    return msgspec.structs.replace(shape, requests=requests)


def narrowed_to_lent(cluster: Cluster, waiting: Standing, due: Entitlement | None) -> Standing:
    """Let a job ask only for types of devices that are not kept from it."""
    if not cluster.queues.keeps_types:
        return waiting
    shape = of_types_lent(cluster, waiting.shape, due)
    if shape == waiting.shape:
        return waiting
    return msgspec.structs.replace(waiting, shape=shape)


def share_left(cluster: Cluster, tenant: str) -> Resources:
    """Return what is left of a tenant's guarantee."""
    used = cluster.use.guaranteed.get(tenant, NOTHING) + cluster.use.reserved(tenant)
    return cluster.tenants[tenant].guaranteed - used


def _lacking(
    cluster: Cluster, tenant: str, queue: str, need: dict[str, int], left: Resources
) -> Kept | None:
    """Return what is kept of what is left, if there is too little of it for that and a job."""
    total: dict[str, int] = {}
    for kept in cluster.queues.kept(tenant, queue):
        part = kept.part
        if part not in FIELDS or not need.get(part):
            continue
        total[part] = total.get(part, 0) + kept.amount
        if getattr(left, FIELDS[part]) - need[part] < total[part]:
            return kept
    return None


# ── devices of one type ─────────────────────────────────────────────────────────────────


def _kinds(
    cluster: Cluster, shape: Shape, due: Entitlement | None
) -> Iterator[tuple[Request, tuple[str, ...]]]:
    """Return each request for devices with the types of them of which it leaves enough.

    All that may be of a type is counted as if it were.
    """
    here = cluster.device_types
    kept: dict[str, int] = {}
    for each in cluster.queues.kept(shape.tenant, shape.queue):
        kept[each.part] = kept.get(each.part, 0) + each.amount
    most: dict[str, int] = {}
    for request in shape.requests:
        for kind in request.types or here:
            held = held_by(request.need).gpu_milli * request.count
            most[kind] = most.get(kind, 0) + held
    for request in shape.requests:
        kinds = request.types or here
        if request.need.gpu_milli:
            kinds = tuple(
                kind
                for kind in kinds
                if (owed := kept.get(of_type(kind), 0)) == 0
                or free_of_type(cluster, kind, due) - most[kind] >= owed
            )
        yield request, kinds


def free_of_type(cluster: Cluster, kind: str, due: Entitlement | None) -> int:
    """Count the free devices of a type, in thousandths, and those that can be freed."""
    free = cluster.ledger.whole_free_of(kind) * DEVICE
    if due is not Entitlement.GUARANTEED:
        return free
    for gangs in cluster.placed.borrowers.values():
        for gang in gangs.values():
            free += cluster.held_on(gang.slots, gang.kept()).get(of_type(kind), 0)
    return free


# ── a place, task by task ───────────────────────────────────────────────────────────────
#
# The line asks by what a job wants, before a place is looked for. Here the place is known: the
# committer asks, and whoever found one that others make way for.


def takes_kept(cluster: Cluster, shape: Shape, slots: Sequence[Slot], due: Entitlement) -> str:
    """Name the queue whose own part a job would take by a place; '' if it takes of none.

    Asked only of tenants in `cluster.queues.keeps`. O(queues that do not lend), and
    O(borrowers) where one keeps devices by type.
    """
    need = cluster.held_on(slots, needs_of(shape.requests))
    left = (
        share_left(cluster, shape.tenant)
        if due is Entitlement.GUARANTEED
        else cluster.ledger.free()
    )
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
            return kept.account.queue
    return ""


def promise_takes_kept(cluster: Cluster, shape: Shape, decision: Evict) -> str:
    """Whether so is a place that others make way for, now or once they have."""
    promise = decision.place
    here = (promise.slots, promise.entitlement)
    if not takes_kept(cluster, shape, *here):
        return ""
    # What its tenant's own give up for it is there, and no longer counts as their queues'.
    with Trial(cluster) as trial:
        for job in decision.revoke:
            if cluster.reserved[job].entitlement is Entitlement.GUARANTEED:
                trial.unreserve(job)
        for job in promise.victims:
            gang = cluster.gangs[job]
            if gang.tenant == shape.tenant and gang.entitlement is Entitlement.GUARANTEED:
                trial.drop(job)
        for job, tasks in decision.shrink:
            trial.scale_down(cluster.gangs[job], tasks)
        return takes_kept(cluster, shape, *here)
