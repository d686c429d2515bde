"""Caps of users, groups and queues in words: what is held of what may be."""

from collections.abc import Iterator

from allotment.core.caps import cap_on_resuming, cap_reached, is_stopped, leases_of
from allotment.core.cluster import Cluster
from allotment.core.gang import Gang
from allotment.core.quota import Account
from allotment.core.request import Shape
from allotment.model.amounts import JOBS, Vector, show_bare, show_part
from allotment.model.ids import JobId
from allotment.model.reasons import Blocked, Reason


def why_capped(cluster: Cluster, shape: Shape) -> Blocked | None:
    """Return what is held of what may be, or that the queue is stopped, if that keeps a job."""
    if (shape.tenant, shape.queue) in cluster.stops:
        queue = cluster.trees[shape.tenant].stopped(shape.queue)
        name = queue.name if queue else shape.queue
        return Blocked(
            Reason.QUEUE_STOPPED,
            f"Queue {name} of {shape.tenant} is stopped: no job in it starts.",
            hint="It starts when the administrator opens the queue again.",
        )
    if not cluster.queues.is_counted or (found := cap_reached(cluster, shape)) is None:
        return None
    return _words(*found, dict(cluster.queues.need_of(shape)))


def why_not_resumed(cluster: Cluster, gang: Gang) -> Blocked | None:
    """Return which cap keeps a suspended gang from resuming, if any does."""
    if is_stopped(cluster, gang):
        return why_capped(cluster, gang.standing.shape)
    found = cap_on_resuming(cluster, gang)
    return _words(*found, leases_of(cluster, gang)) if found else None


def _words(account: Account, part: str, need: Vector) -> Blocked:
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
        hint = f"It starts when jobs of {name} end."
        reason = Reason.USER_CAP
    else:
        message = (
            f"Queue {account.queue} of {account.tenant} holds {show_bare(part, held)} of the "
            f"{show_part(part, most)} that it may hold at once{needs}."
        )
        hint = f"It starts when jobs of queue {account.queue} end."
        reason = Reason.QUEUE_LIMIT
    if alone and part == JOBS:
        hint = "No job may start there: move it (allot edit JOB --set queue=NAME)."
    elif alone:
        hint = "It alone needs more than this limit: ask for less (allot edit)."
    return Blocked(reason, message, hint=hint)


def alone_too_large(cluster: Cluster, shape: Shape) -> tuple[str, str] | None:
    """Return what a job needs, and what of it it may ever hold, where it can never start."""
    need = cluster.queues.need_of(shape)
    return _too_much(cluster, shape, {p: n for p, n in need.items() if p != JOBS})


def never_within(cluster: Cluster, shape: Shape) -> tuple[str, str] | None:
    """Report it, also where no job at all may hold a place."""
    return _too_much(cluster, shape, cluster.queues.need_of(shape))


def _too_much(cluster: Cluster, shape: Shape, need: Vector) -> tuple[str, str] | None:
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


def held_of_cap(cluster: Cluster, job: JobId) -> Iterator[tuple[JobId, int]]:
    """Return what others hold of the part of a cap that keeps a job: whose ends would help."""
    gang = cluster.gangs.get(job)
    found = (
        cap_on_resuming(cluster, gang) if gang else cap_reached(cluster, cluster.shape_of(job))
    )
    if found is None:
        return
    account, part = found
    for other in cluster.gangs.values():
        if other.id != job and account in cluster.queues.of(other.standing.shape.who):
            held = cluster.held_on(other.slots, other.kept())
            yield other.id, 1 if part == JOBS else held.get(part, 0)
