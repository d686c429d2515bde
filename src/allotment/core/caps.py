"""What a user, a group or a queue may hold at once, by whatever entitlement.

Rule: where there is a cap, what its jobs hold and have reserved, their tenant's own and
borrowed together, never grows beyond it. A job that would go beyond it is passed over, and
holds up no other. A cap that is lowered takes nothing away. Where a cap counts devices of one
type, a job that takes several types looks for a place only among those of which there is
still enough for all of it.
"""

from collections.abc import Sequence

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, Standing
from allotment.core.quota import NO_TYPE, Account, Who, asked
from allotment.core.request import Request, Shape, needs_of, total_of
from allotment.model.amounts import BY_TYPE, JOBS, Vector, of_type
from allotment.model.ids import JobId
from allotment.model.ledger import Slot


def caps_matter(cluster: Cluster) -> bool:
    """Whether there is any cap, closed budget or stopped queue at all."""
    return cluster.queues.is_counted or bool(cluster.stops)


def capped_out(cluster: Cluster, shape: Shape) -> bool:
    """Whether a job may not start now: by a cap, a budget, or as its queue is stopped."""
    if is_used_up(cluster, shape.who, shape.requests):
        return True
    if not cluster.queues.is_counted and not cluster.stops:
        return False
    return (shape.tenant, shape.queue) in cluster.stops or cap_reached(
        cluster, shape
    ) is not None


def is_used_up(cluster: Cluster, who: Who, requests: tuple[Request, ...]) -> bool:
    """Whether a budget that counts a job is used up, and it asks for devices."""
    return (
        cluster.queues.used_up > 0
        and any(account.used_up for account in cluster.queues.of(who))
        and total_of(requests).gpu_milli > 0
    )


def beyond(
    cluster: Cluster, shape: Shape, requests: tuple[Request, ...], slots: Sequence[Slot]
) -> str:
    """Return which cap keeps a job from just this place; '' if none. For the committer."""
    if (shape.tenant, shape.queue) in cluster.stops:
        return f"queue {shape.queue} is stopped"
    if not cluster.queues.is_counted:
        return ""
    more = cluster.held_on(slots, needs_of(requests))
    more[JOBS] = 1
    over = _exceeded(cluster, shape.who, more)
    return "" if over is None else f"{_whose(over[0])} has all of {over[1]} that it may"


def _exceeded(cluster: Cluster, who: Who, more: Vector) -> tuple[Account, str] | None:
    """Find the first of the accounts that so much more would overdraw, and in what."""
    for account in cluster.queues.of(who):
        if part := account.exceeded(more):
            return account, part
    return None


def _whose(account: Account) -> str:
    if account.user:
        return f"user {account.user}"
    return f"group {account.group}" if account.group else f"queue {account.queue}"


def cap_reached(cluster: Cluster, shape: Shape) -> tuple[Account, str] | None:
    """Find the first account that a job would overdraw, and in what."""
    queues = cluster.queues
    charged = queues.of(shape.who)
    if not charged:
        return None
    over = _exceeded(cluster, shape.who, queues.need_of(shape))
    if over is not None or not queues.by_type:
        return over
    for request in narrowed(cluster, shape).requests:
        if request.types == NO_TYPE:
            return next(
                (account, part)
                for account in charged
                for part in account.limit
                if part.startswith(BY_TYPE)
            )
    return None


def resumes_beyond(cluster: Cluster, gang: Gang) -> bool:
    """Whether a suspended gang may not have its devices and CPU back now."""
    return (
        is_stopped(cluster, gang)
        or cap_on_resuming(cluster, gang) is not None
        or is_used_up(cluster, gang.standing.shape.who, gang.requests)
    )


def is_stopped(cluster: Cluster, gang: Gang) -> bool:
    """Whether the queue of a placed gang is stopped."""
    return (gang.tenant, gang.standing.shape.queue) in cluster.stops


def cap_on_resuming(cluster: Cluster, gang: Gang) -> tuple[Account, str] | None:
    """Find the first account that a suspended gang would overdraw, and in what."""
    if not cluster.queues.is_counted:
        return None
    return _exceeded(cluster, gang.standing.shape.who, leases_of(cluster, gang))


def leases_of(cluster: Cluster, gang: Gang) -> Vector:
    """Return what a suspended gang needs to resume."""
    return cluster.held_on(gang.slots, gang.leases())


def is_over(cluster: Cluster, job: JobId) -> bool:
    """Whether a reserved place must be dropped: its cap was lowered, or its queue stopped."""
    shape = cluster.shape_of(job)
    if (shape.tenant, shape.queue) in cluster.stops:
        return True
    if not cluster.queues.is_counted:
        return False
    return any(account.overdrawn() for account in cluster.queues.of(shape.who))


# ── devices of one type ─────────────────────────────────────────────────────────────────


def narrowed(cluster: Cluster, shape: Shape) -> Shape:
    """Return the same shape with only those types of devices of which it may have more."""
    if not cluster.queues.by_type:
        return shape
    caps = [a for a in cluster.queues.of(shape.who) if any(map(_by_type, a.limit))]
    if not caps:
        return shape
    here = cluster.device_types
    sure = asked(shape.requests, here)
    requests = tuple(_narrowed(r, shape.requests, sure, here, caps) for r in shape.requests)
    return msgspec.structs.replace(shape, requests=requests)


def _narrowed(
    request: Request,
    beside: tuple[Request, ...],
    sure: Vector,
    here: tuple[str, ...],
    caps: Sequence[Account],
) -> Request:
    kinds = request.types or here
    if len(kinds) <= 1 or not request.need.gpu_milli:
        return request
    left = tuple(
        kind
        for kind in kinds
        if not any(
            account.exceeded({of_type(kind): _at_most(kind, beside, sure, here)})
            for account in caps
        )
    )
    return msgspec.structs.replace(request, types=left or NO_TYPE)


def _at_most(
    kind: str, requests: tuple[Request, ...], sure: Vector, here: tuple[str, ...]
) -> int:
    """Sum up what a gang would hold of a type if all tasks that may, did."""
    loose = sum(
        request.need.gpu_milli * request.count
        for request in requests
        if len(request.types or here) > 1 and kind in (request.types or here)
    )
    return loose + sure.get(of_type(kind), 0)


def _by_type(part: str) -> bool:
    return part.startswith(BY_TYPE)


def narrowed_to_caps(cluster: Cluster, waiting: Standing) -> Standing:
    """Let a job ask only for types of devices of which it may have more."""
    return waiting.asking(narrowed(cluster, waiting.shape))
