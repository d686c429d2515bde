"""What queues that do not lend keep from the other queues of their tenant.

Rule: what such a queue is guaranteed and does not use is its own part of what its tenant is
guaranteed. No job of another queue gets any of it by the tenant's guarantee, unless within
its own queue's guarantee. Such a job may borrow instead what other tenants leave idle, as
long as so much stays idle as is kept. Devices of one type that are kept stay free as such, by
whatever entitlement a job asks; those that borrowers could be evicted from count as free for
a job that may do so. Of devices by type only whole ones are counted.
"""

from collections.abc import Iterator, Sequence

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, Standing
from allotment.core.quota import NO_TYPE, Account
from allotment.core.request import Request, Shape, needs_of
from allotment.model.amounts import BY_TYPE, Vector, add, of_type, whole_vector
from allotment.model.ledger import GUARANTEED, Entitlement, Slot
from allotment.model.quantity import DEVICE


class Kept(msgspec.Struct, frozen=True, gc=False):
    """What a queue that does not lend is guaranteed, and does not use."""

    account: Account
    part: str
    amount: int


def kept_from(cluster: Cluster, tenant: str, queue: str) -> Iterator[Kept]:
    """Return what a job of a queue must leave to others that do not lend."""
    around = cluster.queues.chain(tenant, queue)
    for account in cluster.queues.keeps.get(tenant, ()):
        if account not in around:
            for part, spare in account.spare().items():
                yield Kept(account, part, spare)


def kept_of_share(cluster: Cluster, shape: Shape) -> Kept | None:
    """Return what a job would take of its tenant's guarantee that is another queue's own."""
    if cluster.queues.within(shape):
        return None
    left = cluster.queues.tenants[shape.tenant].left
    return _lacking(cluster, shape.tenant, shape.queue, cluster.queues.need_of(shape), left)


def kept_from_borrower(cluster: Cluster, gang: Gang) -> Kept | None:
    """Return what a borrower would take of its tenant's guarantee that is another queue's."""
    if gang.tenant not in cluster.queues.keeps:
        return None
    queue = gang.standing.shape.queue
    need = cluster.held_on(gang.slots, gang.kept())
    for branch in cluster.queues.chain(gang.tenant, queue):
        if branch.holds_within(need):
            return None
    return _lacking(cluster, gang.tenant, queue, need, cluster.queues.tenants[gang.tenant].left)


def kept_of_idle(cluster: Cluster, shape: Shape, by: Entitlement | None) -> Kept | None:
    """Return what a job would take of idle devices that is kept free for another queue."""
    if cluster.queues.within(shape):
        return None
    if shape.tenant in cluster.queues.keeps_types:
        for request, lent in _kinds(cluster, shape, by):
            if not lent:
                kinds = {of_type(kind) for kind in request.types or cluster.device_types}
                kept = kept_from(cluster, shape.tenant, shape.queue)
                return next(each for each in kept if each.part in kinds)
    if by is GUARANTEED:
        return None
    need, left = cluster.queues.need_of(shape), whole_vector(cluster.ledger.free())
    return _lacking(cluster, shape.tenant, shape.queue, need, left)


def of_types_lent(cluster: Cluster, shape: Shape, by: Entitlement | None) -> Shape:
    """Return the same shape with only those types of devices that are not kept from it."""
    if shape.tenant not in cluster.queues.keeps_types or cluster.queues.within(shape):
        return shape
    requests = tuple(
        request
        if len(lent) == len(request.types or cluster.device_types)
        else msgspec.structs.replace(request, types=lent or NO_TYPE)
        for request, lent in _kinds(cluster, shape, by)
    )
    return msgspec.structs.replace(shape, requests=requests)


def narrowed_to_lent(cluster: Cluster, waiting: Standing, by: Entitlement | None) -> Standing:
    """Let a job ask only for types of devices that are not kept from it."""
    return waiting.asking(of_types_lent(cluster, waiting.shape, by))


def _lacking(
    cluster: Cluster, tenant: str, queue: str, need: Vector, left: Vector
) -> Kept | None:
    """Return what is kept of what is left, if there is too little of it for that and a job."""
    total: Vector = {}
    for kept in kept_from(cluster, tenant, queue):
        part = kept.part
        if part not in left or not need.get(part):
            continue
        add(total, {part: kept.amount})
        if left[part] - need[part] < total[part]:
            return kept
    return None


# ── devices of one type ─────────────────────────────────────────────────────────────────


def _kinds(
    cluster: Cluster, shape: Shape, by: Entitlement | None
) -> Iterator[tuple[Request, tuple[str, ...]]]:
    """Return each request for devices with the types of them of which it leaves enough.

    All that may be of a type is counted as if it were.
    """
    here = cluster.device_types
    kept, most = Vector(), Vector()
    for each in kept_from(cluster, shape.tenant, shape.queue):
        add(kept, {each.part: each.amount})
    for request in shape.requests:
        milli = request.need.gpu_milli * request.count
        add(most, {of_type(kind): milli for kind in request.types or here})
    for request in shape.requests:
        kinds = request.types or here
        if request.need.gpu_milli:
            kinds = tuple(
                kind
                for kind in kinds
                if (mine := kept.get(of_type(kind), 0)) == 0
                or free_of_type(cluster, kind, by) - most[of_type(kind)] >= mine
            )
        yield request, kinds


def free_of_type(cluster: Cluster, kind: str, by: Entitlement | None) -> int:
    """Count the free devices of a type, in thousandths, and those that can be freed."""
    free = cluster.ledger.whole_free_of(kind) * DEVICE
    if by is not GUARANTEED:
        return free
    for gangs in cluster.placed.borrowers.values():
        for gang in gangs.values():
            free += cluster.held_on(gang.slots, gang.kept()).get(of_type(kind), 0)
    return free


# ── a place, task by task ───────────────────────────────────────────────────────────────
#
# The queue pass asks by what a job wants, before a place is looked for. Here the place is
# known: the committer asks, and the search for one that others have to leave.


def takes_kept(cluster: Cluster, shape: Shape, slots: Sequence[Slot], by: Entitlement) -> str:
    """Name the queue whose own part a job would take by a place; '' if it takes of none.

    O(queues that do not lend), and O(borrowers) where one keeps devices by type.
    """
    if shape.tenant not in cluster.queues.keeps:
        return ""
    need = cluster.held_on(slots, needs_of(shape.requests))
    left = (
        cluster.queues.tenants[shape.tenant].left
        if by is GUARANTEED
        else whole_vector(cluster.ledger.free())
    )
    total: Vector = {}
    for kept in kept_from(cluster, shape.tenant, shape.queue):
        part, wanted = kept.part, need.get(kept.part, 0)
        add(total, {part: kept.amount})
        if not wanted:
            continue
        if part.startswith(BY_TYPE):
            there = free_of_type(cluster, part.removeprefix(BY_TYPE), by)
        else:
            there = left[part]
        if there - wanted < total[part] and not cluster.queues.within(shape):
            return kept.account.queue
    return ""
