"""What a user, a group or a queue may hold at once, on whatever grounds.

Rule: where there is a cap, what its jobs hold and are promised, their tenant's own and
borrowed together, never grows beyond it. A job that would go beyond it is passed over, and
holds up nobody. A cap that is lowered takes nothing away. Where a cap counts devices of one
type, a job that takes several types looks for a place only among those of which there is
still enough for all of it.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, Standing
from allotment.core.quota import Account
from allotment.core.request import Request, Shape, lease_part, needs_of, total_of
from allotment.model.amounts import BY_TYPE, JOBS, of_type, parts_of, show_bare, show_part
from allotment.model.ids import JobId
from allotment.model.ledger import Slot
from allotment.model.reasons import Blocked, Reason

Parts = dict[str, int]


def caps_matter(cluster: Cluster) -> bool:
    """Whether there is any cap, closed budget or stopped queue at all."""
    return bool(cluster.used_up.closed or cluster.queues.is_counted or cluster.stops)


def capped_out(cluster: Cluster, shape: Shape) -> bool:
    """Whether a job may not start now: by a cap, a budget, or as its queue is stopped."""
    if cluster.used_up.closed and cluster.used_up.holds_back(shape):
        return True
    if not cluster.queues.is_counted and not cluster.stops:
        return False
    return (shape.tenant, shape.queue) in cluster.stops or _full(cluster, shape) is not None


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
    for account in cluster.queues.of(shape.who):
        if part := account.exceeded(more):
            return f"{_whose(account)} has all of {part} that it may"
    return ""


def _full(cluster: Cluster, shape: Shape) -> tuple[Account, str] | None:
    """Find the first account that a job would overdraw, and in what."""
    queues = cluster.queues
    charged = queues.of(shape.who)
    if not charged:
        return None
    more = asked(shape.requests, cluster.device_types if queues.by_type else ())
    for account in charged:
        if part := account.exceeded(more):
            return account, part
    if not queues.by_type:
        return None
    for request in narrowed(cluster, shape).requests:
        if request.types == NO_TYPE:
            return next(
                (account, part)
                for account in charged
                for part in account.limit
                if part.startswith(BY_TYPE)
            )
    return None


def held_of_cap(cluster: Cluster, job: JobId) -> Iterator[tuple[JobId, int]]:
    """Return what others hold of the part of a cap that keeps a job: whose ends would help."""
    gang = cluster.gangs.get(job)
    found = _resuming(cluster, gang) if gang else _full(cluster, cluster.shape_of(job))
    if found is None:
        return
    account, part = found
    for other in cluster.gangs.values():
        if other.id != job and account in cluster.queues.of(other.standing.shape.who):
            held = cluster.held_on(other.slots, other.kept())
            yield other.id, 1 if part == JOBS else held.get(part, 0)


def resumes_beyond(cluster: Cluster, gang: Gang) -> bool:
    """Whether a suspended gang may not have its devices and CPU back now."""
    return _stopped(cluster, gang) or _resuming(cluster, gang) is not None


def _stopped(cluster: Cluster, gang: Gang) -> bool:
    return (gang.tenant, gang.standing.shape.queue) in cluster.stops


def _resuming(cluster: Cluster, gang: Gang) -> tuple[Account, str] | None:
    if not cluster.queues.is_counted:
        return None
    more = _leases(cluster, gang)
    for account in cluster.queues.of(gang.standing.shape.who):
        if part := account.exceeded(more):
            return account, part
    return None


def _leases(cluster: Cluster, gang: Gang) -> Parts:
    return cluster.held_on(gang.slots, [lease_part(need) for need in gang.needs])


def is_over(cluster: Cluster, job: JobId) -> bool:
    """Whether a promise may not be kept: its cap was lowered, or its queue stopped."""
    shape = cluster.shape_of(job)
    if (shape.tenant, shape.queue) in cluster.stops:
        return True
    if not cluster.queues.is_counted:
        return False
    return any(account.overdrawn() for account in cluster.queues.of(shape.who))


# ── devices of one type ─────────────────────────────────────────────────────────────────

NO_TYPE = ("",)
"""Stands where a cap leaves a task no type of device at all."""


@lru_cache(maxsize=4_096)
def asked(requests: tuple[Request, ...], types: tuple[str, ...]) -> Parts:
    """Return what a gang will hold for certain; devices by type where only one will do.

    `types` are those of the cluster, or none where nobody asks for types.
    """
    more = parts_of(total_of(requests))
    more[JOBS] = 1
    for request in requests if types else ():
        if len(kinds := request.types or types) == 1 and request.need.gpu_milli:
            part = of_type(kinds[0])
            more[part] = more.get(part, 0) + request.need.gpu_milli * request.count
    return more


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
    sure: Parts,
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
    kind: str, requests: tuple[Request, ...], sure: Parts, here: tuple[str, ...]
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
    shape = narrowed(cluster, waiting.shape)
    if shape is waiting.shape:
        return waiting
    return msgspec.structs.replace(waiting, shape=shape)


# ── words ───────────────────────────────────────────────────────────────────────────────


def why_capped(cluster: Cluster, shape: Shape) -> Blocked | None:
    """Return what is held of what may be, or that the queue is stopped, if that keeps a job."""
    if (shape.tenant, shape.queue) in cluster.stops:
        queue = cluster.trees[shape.tenant].stopped(shape.queue)
        name = queue.name if queue else shape.queue
        return Blocked(
            Reason.QUEUE_STOPPED,
            f"Queue {name} of {shape.tenant} is stopped: nothing in it starts.",
            hint="It starts when the administrator opens the queue again.",
        )
    if not cluster.queues.is_counted or (found := _full(cluster, shape)) is None:
        return None
    types = cluster.device_types if cluster.queues.by_type else ()
    return _words(*found, dict(asked(shape.requests, types)))


def why_not_resumed(cluster: Cluster, gang: Gang) -> Blocked | None:
    """Return which cap keeps a suspended gang from going on, if any does."""
    if _stopped(cluster, gang):
        return why_capped(cluster, gang.standing.shape)
    found = _resuming(cluster, gang)
    return _words(*found, _leases(cluster, gang)) if found else None


def _words(account: Account, part: str, need: Parts) -> Blocked:
    held, most = account.use.get(part, 0), account.limit[part]
    wanted = need.get(part, 0)
    needs = f"; it needs {show_part(part, wanted)}" if wanted and part != JOBS else ""
    alone = bool(account.too_much(need))
    if account.user or account.group:
        name = account.user or f"group {account.group}"
        one = "one user" if account.user else "one group"
        where = account.tenant
        if account.queue:
            where = f"queue {account.queue} of {where}"
        message = (
            f"{name} holds {show_bare(part, held)} of the {show_part(part, most)} that {one} "
            f"of {where} may hold at once{needs}."
        )
        hint = f"It starts when jobs of {name}'s end."
        reason = Reason.USER_CAP
    else:
        message = (
            f"Queue {account.queue} of {account.tenant} holds {show_bare(part, held)} of the "
            f"{show_part(part, most)} that it may hold at once{needs}."
        )
        hint = f"It starts when jobs of queue {account.queue} end."
        reason = Reason.QUEUE_LIMIT
    if alone and part == JOBS:
        hint = "Nothing starts there as it is: move it (allot edit JOB --set queue=NAME)."
    elif alone:
        hint = "It needs more than that by itself: ask for less (allot edit)."
    return Blocked(reason, message, hint=hint)


def _whose(account: Account) -> str:
    if account.user:
        return f"user {account.user}"
    return f"group {account.group}" if account.group else f"queue {account.queue}"


def alone_too_large(cluster: Cluster, shape: Shape) -> tuple[str, str] | None:
    """Return what a job needs, and what of it it may ever hold, where it can never start."""
    types = cluster.device_types if cluster.queues.by_type else ()
    need = asked(shape.requests, types)
    return _too_much(cluster, shape, {p: n for p, n in need.items() if p != JOBS})


def never_within(cluster: Cluster, shape: Shape) -> tuple[str, str] | None:
    """Report it, also where no job at all may hold a place."""
    types = cluster.device_types if cluster.queues.by_type else ()
    return _too_much(cluster, shape, asked(shape.requests, types))


def _too_much(cluster: Cluster, shape: Shape, need: Parts) -> tuple[str, str] | None:
    for account in cluster.queues.of(shape.who):
        part = account.too_much(need)
        if not part:
            continue
        who = "one user" if account.user else "one group" if account.group else ""
        where = f"queue {account.queue}" if account.queue else f"tenant {account.tenant}"
        scope = f"{who} of {where}" if who else where
        most = show_part(part, account.limit[part])
        return show_part(part, need[part]), f"{scope} may hold {most}"
    return None
