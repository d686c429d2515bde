"""Why a job waits: the first gate that is shut, in words.

`question.py` asks the gates of the queue pass about one job. The first that is shut is the
reason, so it does not change while the world does not. Where the configuration or broken
hardware is the cause, that is said instead. Jobs that are not eligible (held, waiting for a
dependency, a back-off, an array cap) are explained by the engine, which knows those things.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, ReservedPlace, Standing
from allotment.core.gates import Gate
from allotment.core.request import Shape, total_of
from allotment.core.resuming import WayBack
from allotment.core.sharing import entitle
from allotment.core.trial import Trial
from allotment.explain.budgets import last_renewed, why_used_up
from allotment.explain.caps import why_capped, why_not_resumed
from allotment.explain.cell_words import listed
from allotment.explain.engines import bound, unable
from allotment.explain.free import free_for, lacking
from allotment.explain.in_cells import (
    fits_mended_cells,
    why_mended_cells,
    why_never_in_cells,
    why_no_cells,
    why_no_right_in_cells,
    why_soon_in_cells,
)
from allotment.explain.mended import mend_all
from allotment.explain.others import why_others
from allotment.explain.protected import with_protected
from allotment.explain.question import Question
from allotment.explain.queues import why_aside, why_bypassed
from allotment.explain.turns import next_turn
from allotment.model.amounts import vector_of
from allotment.model.quantity import (
    NOTHING,
    Instant,
    Resources,
    show_millis,
    show_resources,
)
from allotment.model.reasons import Blocked, Reason
from allotment.model.tenancy import QueueOrder


def explain(cluster: Cluster, waiting: Standing, now: Instant) -> Blocked:
    """Return the dominant reason why this waiting job has not started. O(nodes + jobs)."""
    blocked = judge(cluster, waiting, now)
    if cluster.disruption is not None:
        blocked = with_protected(cluster, waiting, blocked, now)
    need, free = total_of(waiting.shape.requests), free_for(cluster, waiting.shape.requests)
    ahead, first = cluster.pending.ahead_of(waiting)
    return Blocked(
        reason=blocked.reason,
        message=blocked.message + _size_words(waiting.shape),
        need=need,
        free=free,
        position=ahead + 1,
        ahead=first,
        until=blocked.until,
        hint=blocked.hint,
    )


def _size_words(shape: Shape) -> str:
    """Return how many tasks it waits for, where it may be larger or smaller."""
    if not shape.most:
        return ""
    fewest = shape.requests[-1].count
    return f" It starts once there is room for {fewest:,} of its {shape.most:,} tasks."


def judge(cluster: Cluster, waiting: Standing, now: Instant) -> Blocked:
    """Return the dominant reason without what is free and what is ahead.

    Where nodes are set aside it is the one that would hold without; if none would, the
    reservation.
    """
    if not cluster.reservations.all:
        return _answer(Question(cluster, waiting, now))
    unhindered = msgspec.structs.replace(waiting, shape=_bare(waiting.shape))
    blocked = _answer(Question(cluster, unhindered, now))
    if blocked.reason is not Reason.PENDING:
        return blocked
    with cluster.fenced(waiting.shape, now):
        behind_mask = _answer(Question(cluster, waiting, now))
    if behind_mask.reason is Reason.PENDING:
        return behind_mask
    return _why_set_aside(cluster, waiting.shape, now)


def _bare(shape: Shape) -> Shape:
    """Return the same shape as if there were no reservations."""
    return msgspec.structs.replace(shape, span_ms=0, enters=())


def _answer(asked: Question) -> Blocked:
    """Put the first gate that is shut in words."""
    gate = asked.first_shut(asked.job)
    if (
        gate in CAUSED
        and (cause := _never(asked) or why_others(asked) or _when_mended(asked)) is not None
    ):
        return cause
    return _next_cycle(asked) if gate is None else WORDS[gate](asked)


def _never(asked: Question) -> Blocked | None:
    """Return what of the configuration keeps a job from ever starting, if anything does."""
    if asked.cluster.guarantee.ever_starts(asked.job.shape):
        return None
    return _wording(asked.cluster).never(asked)


def _never_counted(asked: Question) -> Blocked:
    shape = asked.job.shape
    if shape.pin:
        return Blocked(
            Reason.NEVER_FITS_NOW,
            f"Its pinned cell {shape.pin} is gone: no tenant has cells any more.",
            hint=f"Change the job: `allot edit {asked.job.id} --set pin=`.",
        )
    need = show_resources(total_of(shape.requests))
    if cannot := unable(asked.cluster, shape.requests):
        hint = f"Change the job: `allot edit {asked.job.id}`."
        return Blocked(Reason.NEVER_FITS_NOW, cannot, hint=hint)
    only = bound(asked.cluster, shape.requests)
    return Blocked(
        Reason.NEVER_FITS_NOW,
        f"No machine in the configuration can hold it: it needs {need}.{only}",
        hint="Change the job (allot edit) or ask the administrator for larger nodes.",
    )


def _when_mended(asked: Question) -> Blocked | None:
    """Return that it would fit if all hardware were up, if it would not otherwise."""
    if not asked.fits_nowhere:
        return None
    return _wording(asked.cluster).mended(asked)


def _mended_counted(asked: Question) -> Blocked | None:
    cluster, shape = asked.cluster, asked.asking.shape
    with Trial(cluster) as trial:
        if cluster.find(shape.requests) is not None:
            return None  # Only its share is too small.
        mend_all(trial)
        if cluster.find(shape.requests) is None:
            return None
    return Blocked(
        Reason.NODES_UNAVAILABLE,
        "It would fit if all hardware were up: some is drained, lost or broken.",
        hint="See `allot nodes` and `allot health`.",
    )


def _next_cycle(asked: Question) -> Blocked:
    """Return that nothing keeps a job."""
    if asked.preempts:
        how = "it preempts less urgent jobs of its own tenant"
    else:
        how = _wording(asked.cluster).soon(asked)
    return Blocked(Reason.PENDING, f"Nothing is in its way; {how} in the next cycle.")


# ── what each gate says ─────────────────────────────────────────────────────────────────


def _capped(asked: Question) -> Blocked:
    """Report that it may hold no more now, or that its budget is used up."""
    cluster, shape, now = asked.cluster, asked.job.shape, asked.now
    if (capped := why_capped(cluster, shape)) is not None:
        return capped
    account = last_renewed(cluster, shape, now)
    assert account is not None, "the gate is shut"
    return why_used_up(account, total_of(shape.requests), now)


def _out_of_turn(asked: Question) -> Blocked:
    """Report for which queue of its tenant what is left is kept."""
    found = why_aside(asked.cluster, asked.job.shape)
    assert found is not None, "the gate is shut"
    return found.blocked


def _no_right(asked: Question) -> Blocked:
    """Report how much of its tenant's share is in use."""
    cluster, shape = asked.cluster, asked.asking.shape
    if shape.tenant not in cluster.tenants:
        return _tenant_gone(shape.tenant)
    return _wording(cluster).no_right(asked)


def _no_right_counted(asked: Question) -> Blocked:
    cluster, shape = asked.cluster, asked.asking.shape
    if shape.opportunistic:
        return Blocked(
            Reason.QUOTA,
            f"It runs only on idle resources, and tenant {shape.tenant} may not borrow.",
        )
    return _over_quota(cluster, shape.tenant, total_of(shape.requests))


def _bypassed(asked: Question) -> Blocked:
    """Report which job before it was overtaken too often."""
    return why_bypassed(asked.cluster, asked.job)


def _held_up(asked: Question) -> Blocked:
    """Report which job before it in its queue it may not pass."""
    ahead, queue = asked.ahead, asked.job.shape.queue
    match asked.cluster.orders.of(asked.job.shape):
        case QueueOrder.STRICT:
            how = "in which no job overtakes a blocked job"
        case QueueOrder.EASY:
            how = "and could start later if this job started first"
        case _:
            how = "and could start later than planned if this job started first"
    return Blocked(
        Reason.BEHIND,
        f"Job {ahead} is before it in queue {queue}, {how}.",
        hint=f"See `allot why {ahead}`.",
    )


def _no_room(asked: Question) -> Blocked:
    """Report what others hold of what it needs, or which job is before it."""
    if not asked.fits_nowhere:
        return _held_up(asked)  # There is room, but on devices that those before it need.
    return _wording(asked.cluster).no_room(asked)


def _no_room_counted(asked: Question) -> Blocked:
    cluster, requests = asked.cluster, asked.asking.shape.requests
    only = bound(cluster, requests)
    if missing := ", ".join(lacking(cluster, requests)):
        return Blocked(
            Reason.CAPACITY,
            f"Others hold what it needs; too little is free of: {missing}.{only}",
        )
    free = show_resources(free_for(cluster, requests))
    return Blocked(
        Reason.FRAGMENTED,
        f"{free} is free in sum, but not where one task needs it together.{only}",
        hint="Smaller tasks (fewer devices or less memory each) would fit sooner.",
    )


def _reserved(asked: Question) -> Blocked:
    """Report which jobs must leave its reserved place first."""
    cluster, reserved = asked.cluster, asked.cluster.reserved[asked.job.id]
    victims = cluster.placed.awaited(reserved)
    tenant = cluster.tenant_of(reserved.job)
    own = sum(1 for gang in victims if gang.tenant == tenant)
    who = " and ".join(
        _count(number, word)
        for number, word in ((len(victims) - own, "borrower"), (own, "job"))
        if number
    )
    who += " of its own tenant" if own else ""
    if surplus := _surplus(cluster, reserved):
        who += (" and " if who else "") + _count(surplus, "surplus task")
    nodes = listed(list(dict.fromkeys(cluster.nodes[s.node].name for s in reserved.slots)))
    first = f"; {who} must leave it first" if who else ""
    return Blocked(Reason.WAITING_FOR_VICTIMS, f"A place on {nodes} is reserved{first}.")


def _surplus(cluster: Cluster, reserved: ReservedPlace) -> int:
    """Count the surplus tasks that are on their way out of a reserved place."""
    if not cluster.placed.parting:
        return 0
    place = {(slot.node, index) for slot in reserved.slots for index in slot.devices}
    return sum(
        any((slot.node, index) in place for index in slot.devices)
        for gang in cluster.placed.parting.values()
        for slot in gang.slots
    )


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _over_quota(cluster: Cluster, tenant_name: str, need: Resources) -> Blocked:
    tenant = cluster.tenants.get(tenant_name)
    if tenant is None:
        return _tenant_gone(tenant_name)
    used = cluster.queues.tenants[tenant_name].own()
    hint = "It starts when jobs of the same tenant end."
    if entitle(cluster, tenant_name, vector_of(need), preemptible=False, alone=True) is None:
        hint = "It needs more than the whole guarantee: ask for less, or let it borrow."
    return Blocked(
        Reason.QUOTA,
        f"Tenant {tenant_name} is guaranteed {show_resources(tenant.guaranteed)} and uses "
        f"{show_resources(used)} of it; {show_resources(need)} more would exceed it, and "
        + ("this job may not be preempted." if tenant.borrow else "the tenant may not borrow."),
        hint=hint,
    )


def _tenant_gone(name: str) -> Blocked:
    return Blocked(
        Reason.QUOTA,
        f"Tenant {name} is no longer in the configuration.",
        hint="Move the job: allot edit JOB --set tenant=NAME.",
    )


Words = Callable[[Question], Blocked]

WORDS: Mapping[Gate, Words] = {
    Gate.RESERVED: _reserved,
    Gate.CAP: _capped,
    Gate.TIER: _out_of_turn,
    Gate.RIGHT: _no_right,
    Gate.BYPASSED: _bypassed,
    Gate.ORDER: _held_up,
    Gate.ROOM: _no_room,
}

CAUSED = frozenset({Gate.RIGHT, Gate.BYPASSED, Gate.ORDER, Gate.ROOM})
"""Gates that may be shut as the configuration changed, or as hardware is down."""


# ── what depends on the form of quotas ──────────────────────────────────────────────────


class _Wording(NamedTuple):
    """Answers that are put in other words where quotas are in cells."""

    never: Words
    mended: Callable[[Question], Blocked | None]
    soon: Callable[[Question], str]
    no_right: Words
    no_room: Words
    no_right_back: Callable[[Cluster, str, Resources], Blocked]


def _wording(cluster: Cluster) -> _Wording:
    if cluster.cells is not None:
        return _Wording(
            never=_never_in_cells,
            mended=_mended_in_cells,
            soon=why_soon_in_cells,
            no_right=_no_right_in_cells,
            no_room=why_no_cells,
            no_right_back=_no_cells_back,
        )
    return _Wording(
        never=_never_counted,
        mended=_mended_counted,
        soon=_soon_counted,
        no_right=_no_right_counted,
        no_room=_no_room_counted,
        no_right_back=_over_quota,
    )


def _soon_counted(_: Question) -> str:
    return "it starts"


def _never_in_cells(asked: Question) -> Blocked:
    return why_never_in_cells(asked.cluster, asked.job.shape)


def _no_right_in_cells(asked: Question) -> Blocked:
    return why_no_right_in_cells(asked.cluster, asked.asking.shape)


def _mended_in_cells(asked: Question) -> Blocked | None:
    cluster, shape = asked.cluster, asked.asking.shape
    return why_mended_cells(cluster, shape) if fits_mended_cells(cluster, shape) else None


# ── reservations ─────────────────────────────────────────────────────────────────────────────


def _why_set_aside(cluster: Cluster, shape: Shape, now: Instant) -> Blocked:
    """Name the reservation that keeps a job off its nodes: one does."""
    barring, span_ms = cluster.reservations.barring(shape, now), shape.span_ms
    first = barring[0]
    names = [cluster.nodes[node].name for node in first.nodes if node in cluster.nodes]
    what = "in maintenance" if first.for_nobody else "reserved for others"
    whose = f"{listed(names)}: {first.name}" + (f" ({first.reason})" if first.reason else "")
    until = Instant(max(reservation.end for reservation in barring))
    if now >= first.begin:
        left = show_millis(first.end - now)
        return Blocked(
            Reason.RESERVATION,
            f"The nodes on which it would fit are {what} for another {left}: {whose}.",
            until=until,
            hint="See `allot reservations`.",
        )
    ahead = show_millis(first.begin - now)
    runs = (
        f"it may run for {show_millis(span_ms)}" if span_ms >= 0 else "its run time is unknown"
    )
    return Blocked(
        Reason.RESERVATION,
        f"The nodes on which it would fit are {what} in {ahead}, and {runs}: {whose}.",
        until=until,
        hint=f"With a max_run_time below {ahead} it could run before (allot edit).",
    )


# ── suspended gangs ─────────────────────────────────────────────────────────────────────


def _no_right_back(cluster: Cluster, gang: Gang, need: Resources) -> Blocked:
    """Return why a suspended gang may not have what it let go."""
    if gang.tenant not in cluster.tenants:
        return _tenant_gone(gang.tenant)
    return _wording(cluster).no_right_back(cluster, gang.tenant, need)


def _no_cells_back(_: Cluster, tenant: str, __: Resources) -> Blocked:
    return Blocked(
        Reason.QUOTA,
        f"Tenant {tenant} has no cells left where its memory is, and it may not borrow.",
        hint="It resumes when jobs of the same tenant end.",
    )


def _used_up(cluster: Cluster, gang: Gang, need: Resources, now: Instant) -> Blocked:
    """Return which budget keeps a suspended gang from resuming."""
    account = last_renewed(cluster, gang.standing.shape, now)
    assert account is not None, "the gate is shut"
    return why_used_up(account, need, now)


def explain_resume(cluster: Cluster, gang: Gang, now: Instant) -> Blocked:
    """Return why a suspended gang that should resume does not."""
    need = NOTHING
    for part in gang.leases():
        need += part
    blocked = _why_not_back(cluster, gang, need, now)
    if blocked.reason in (Reason.RESUMING, Reason.QUOTA):
        blocked = next_turn(cluster, gang, now) or blocked
    return Blocked(
        blocked.reason,
        blocked.message,
        need=need,
        free=free_for(cluster, gang.requests),
        until=blocked.until,
        hint=blocked.hint,
    )


def _why_not_back(cluster: Cluster, gang: Gang, need: Resources, now: Instant) -> Blocked:
    """Put the first gate between a suspended gang and its devices in words."""
    match WayBack(cluster, gang, now).first_shut():
        case Gate.CAP:
            return why_not_resumed(cluster, gang) or _used_up(cluster, gang, need, now)
        case Gate.RESERVATION:
            return _why_set_aside(cluster, gang.standing.shape, now)
        case Gate.RIGHT:
            return _no_right_back(cluster, gang, need)
        case Gate.NODES:
            return Blocked(
                Reason.NODES_UNAVAILABLE,
                "Its memory is on hardware that is drained, lost or broken now.",
                hint="See `allot nodes` and `allot health`, or end it: `allot cancel`.",
            )
        case _:
            return Blocked(Reason.RESUMING, "Other jobs use its devices.")
