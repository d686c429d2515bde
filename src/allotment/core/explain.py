"""Why a job waits: the same questions as the cycle's, asked for one job, with the answer kept.

The reason given is the first that holds in the order of `Reason`, so it does not change
while the world does not. Jobs that are not in line (held, waiting for a dependency, a
back-off, an array cap) are explained by the engine, which knows those things.
"""

from allotment.core.bounds import behind_the_overtaken
from allotment.core.caps import capped_out, narrowed_to_caps, why_capped, why_not_resumed
from allotment.core.cells.words import listed
from allotment.core.cluster import Cluster
from allotment.core.conservative import beside_promises
from allotment.core.discipline import first_delayed
from allotment.core.entitle import due_of, is_used_up, resume_entitlement
from allotment.core.explain_cells import judge_in_cells
from allotment.core.explain_mercy import with_protected
from allotment.core.explain_windows import judge_in_windows, set_aside
from allotment.core.free_of import free_for, lacking
from allotment.core.gang import Gang, ReservedPlace, Standing
from allotment.core.guarantee import guarantee_of
from allotment.core.head_of_line import discipline_of, promised_ahead
from allotment.core.lending import narrowed_to_lent
from allotment.core.preemption.owner import clear_devices
from allotment.core.queue_stages import why_aside
from allotment.core.request import Shape, lease_part, total_of
from allotment.core.trial import Trial
from allotment.core.used_up import why_used_up
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import NOTHING, Instant, Resources, show_resources
from allotment.model.reasons import Blocked, Reason
from allotment.model.tenancy import QueueOrder


def explain(cluster: Cluster, waiting: Standing, now: Instant) -> Blocked:
    """Return the dominant reason why this job in line has not started. O(nodes + jobs)."""
    blocked = judge(cluster, waiting, now)
    if cluster.mercy is not None:
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
    """Return the dominant reason without what is free and who is ahead."""
    if (promise := cluster.reserved.get(waiting.id)) is not None:
        return _promised(cluster, promise)
    if (capped := _capped(cluster, waiting.shape, now)) is not None:
        return capped
    if cluster.windows.all:
        return judge_in_windows(cluster, waiting, now, _in_its_place)
    return _in_its_place(cluster, waiting, now)


def _in_its_place(cluster: Cluster, waiting: Standing, now: Instant) -> Blocked:
    """Return the dominant reason, of a job without a promise, as the books are now."""
    waiting = narrowed_to_caps(cluster, waiting)
    if cluster.queues.any and (kept := why_aside(cluster, waiting.shape)) is not None:
        return kept.blocked
    if cluster.queues.keeps_types:
        waiting = narrowed_to_lent(cluster, waiting, due_of(cluster, waiting.shape))
    judged = _judge if cluster.cells is None else judge_in_cells
    found = judged(cluster, waiting, now)
    if cluster.overtaking is None:
        return found
    return behind_the_overtaken(cluster, waiting, found)


def _judge(cluster: Cluster, waiting: Standing, now: Instant) -> Blocked:
    shape = waiting.shape
    need = total_of(shape.requests)
    if (never := _never(cluster, waiting, need)) is not None:
        return never
    due = due_of(cluster, shape)
    fits = _fits(cluster, waiting, due, now)
    if not fits and _fits_with_all_nodes(cluster, waiting):
        return Blocked(
            Reason.NODES_UNAVAILABLE,
            "It would fit if all hardware were up: some is drained, lost or broken.",
            hint="See `allot nodes` and `allot health`.",
        )
    if due is None and shape.opportunistic and shape.tenant in cluster.tenants:
        return Blocked(
            Reason.QUOTA,
            f"It runs only on what is idle, and tenant {shape.tenant} may not borrow.",
        )
    if due is None:
        return _over_quota(cluster, shape.tenant, need)
    if cluster.orders.of(shape) is QueueOrder.STRICT:
        head = _held_up_by(cluster, waiting, due, now)
        if head is not None:
            return Blocked(
                Reason.BEHIND,
                f"Job {head.id} is before it in queue {shape.queue}, which is first come, "
                "first served.",
                hint=f"See `allot why {head.id}`.",
            )
    if fits:
        return _beside_others(cluster, waiting, due, now)
    missing = ", ".join(lacking(cluster, shape.requests))
    if missing:
        return Blocked(
            Reason.CAPACITY, f"Others hold what it needs; too little is free of: {missing}."
        )
    free = free_for(cluster, shape.requests)
    return Blocked(
        Reason.FRAGMENTED,
        f"{show_resources(free)} is free in sum, but not where one task needs it together.",
        hint="Smaller tasks (fewer devices or less memory each) would fit sooner.",
    )


def _beside_others(
    cluster: Cluster, waiting: Standing, due: Entitlement, now: Instant
) -> Blocked:
    """Report whom a job that fits would delay, where nobody may; or that nothing keeps it."""
    order, heads = cluster.orders.of(waiting.shape), list[Standing]()
    if order is QueueOrder.CONSERVATIVE:
        heads = promised_ahead(cluster, waiting, due)
    elif order is QueueOrder.EASY and (head := _held_up_by(cluster, waiting, due, now)):
        heads = [head]
    if not heads:
        return _next_cycle()
    made = discipline_of(cluster, heads[0], now, due)
    ahead = first_delayed(made, heads, waiting, lambda job: _place(cluster, job, due, now))
    return _next_cycle() if ahead is None else beside_promises(ahead, waiting.shape.queue)


def _next_cycle() -> Blocked:
    return Blocked(Reason.PENDING, "Nothing is in its way; it starts in the next cycle.")


def _never(cluster: Cluster, waiting: Standing, need: Resources) -> Blocked | None:
    """Return what of the configuration keeps a job from ever starting, if anything does."""
    shape = waiting.shape
    if shape.pin:
        return Blocked(
            Reason.NEVER_FITS_NOW,
            f"Its pinned cell {shape.pin} is gone: shares are no longer cells.",
            hint=f"Change the job: `allot edit {waiting.id} --set pin=`.",
        )
    if not cluster.ever_fits(shape):
        return Blocked(
            Reason.NEVER_FITS_NOW,
            f"No machine in the configuration can hold it: it needs {show_resources(need)}.",
            hint="Change the job (allot edit) or ask the administrator for larger nodes.",
        )
    return None


def _promised(cluster: Cluster, place: ReservedPlace) -> Blocked:
    """Report whom it waits for who has its place."""
    victims = [cluster.gangs[job] for job in place.victims if job in cluster.gangs]
    tenant = cluster.tenant_of(place.job)
    own = sum(1 for gang in victims if gang.tenant == tenant)
    who = " and ".join(
        _count(number, word)
        for number, word in ((len(victims) - own, "borrower"), (own, "job"))
        if number
    )
    who += " of its own tenant" if own else ""
    if surplus := _surplus(cluster, place):
        who += (" and " if who else "") + _count(surplus, "surplus task")
    nodes = listed(list(dict.fromkeys(cluster.nodes[s.node].name for s in place.slots)))
    return Blocked(
        Reason.WAITING_FOR_VICTIMS,
        f"A place on {nodes} is reserved; {who or 'nobody'} must leave it first.",
    )


def _surplus(cluster: Cluster, reserved: ReservedPlace) -> int:
    """Count the surplus tasks that are on their way out of a promised place."""
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


def _fits(cluster: Cluster, waiting: Standing, due: Entitlement | None, now: Instant) -> bool:
    return _place(cluster, waiting, due, now) is not None


def _place(
    cluster: Cluster, waiting: Standing, due: Entitlement | None, now: Instant
) -> tuple[Slot, ...] | None:
    """Find where a job could start, or go when others are told to leave."""
    requests = waiting.shape.requests
    with Trial(cluster) as trial:
        found = trial.find(requests)
        if found is None and due is Entitlement.GUARANTEED:
            room = clear_devices(trial, requests, now)
            return None if room is None else room.slots
        return found


def _fits_with_all_nodes(cluster: Cluster, waiting: Standing) -> bool:
    with Trial(cluster) as trial:
        trial.open_all()
        return trial.find(waiting.shape.requests) is not None


def _holds_up(cluster: Cluster, head: Standing, due: Entitlement, now: Instant) -> bool:
    """Whether a job that waits really stands in the way of those who are due on `due`.

    Who is owed a place holds up those who are, also while others of its tenant have it.
    """
    shape = head.shape
    if head.id in cluster.reserved or capped_out(cluster, shape):
        return False
    if not guarantee_of(cluster).ever_starts(shape):
        return False
    with cluster.fenced(shape, now):
        theirs = due_of(cluster, shape)
        if theirs is not due:
            return due is Entitlement.GUARANTEED and guarantee_of(cluster).could_fit(shape)
        return not _fits(cluster, head, theirs, now)


def _held_up_by(
    cluster: Cluster, waiting: Standing, due: Entitlement, now: Instant
) -> Standing | None:
    """Return the first job before this one in its queue that stands in the way. O(shapes)."""
    pending, promised = cluster.pending, cluster.reserved
    groups = pending.ahead(waiting)
    first = [next((job for job in group if job.id not in promised), None) for group in groups]
    heads = [head for head in first if head is not None]
    for head in sorted(heads, key=lambda each: pending.key(each.id)):
        if _holds_up(cluster, head, due, now):
            return head
    return None


def _over_quota(cluster: Cluster, tenant_name: str, need: Resources) -> Blocked:
    tenant = cluster.tenants.get(tenant_name)
    if tenant is None:
        return Blocked(
            Reason.QUOTA,
            f"Tenant {tenant_name} is no longer in the configuration.",
            hint="Move the job: allot edit JOB --set tenant=NAME.",
        )
    used = cluster.use.guaranteed.get(tenant_name, NOTHING)
    hint = "It starts when jobs of the same tenant end."
    if cluster.policies.sharing.entitle(need, NOTHING, tenant, preemptible=False) is None:
        hint = "It needs more than the whole share: ask for less, or let it borrow."
    return Blocked(
        Reason.QUOTA,
        f"Tenant {tenant_name} is guaranteed {show_resources(tenant.guaranteed)} and uses "
        f"{show_resources(used)} of it; {show_resources(need)} more would exceed it, and "
        + ("this job may not be preempted." if tenant.borrow else "the tenant may not borrow."),
        hint=hint,
    )


def _capped(cluster: Cluster, shape: Shape, now: Instant) -> Blocked | None:
    """Report that it may hold no more now, or that its budget is used up, if so."""
    if (capped := why_capped(cluster, shape)) is not None:
        return capped
    if not cluster.used_up.closed or not cluster.used_up.holds_back(shape):
        return None
    account = cluster.used_up.longest(shape.tenant, shape.queue, shape.user, now)
    return why_used_up(account, total_of(shape.requests), now)


def _no_right_back(cluster: Cluster, gang: Gang, need: Resources) -> Blocked:
    """Return why a suspended gang may not have what it let go."""
    if cluster.cells is None or gang.tenant not in cluster.tenants:
        return _over_quota(cluster, gang.tenant, need)
    return Blocked(
        Reason.QUOTA,
        f"Its memory is where tenant {gang.tenant} has no cells left for it, and it may not "
        "borrow.",
        hint="It goes on when jobs of the same tenant end.",
    )


def explain_resume(cluster: Cluster, gang: Gang, now: Instant) -> Blocked:
    """Return why a suspended gang that wants to go on does not."""
    need = NOTHING
    for part in gang.needs:
        need += lease_part(part)
    if (capped := why_not_resumed(cluster, gang)) is not None:
        blocked = capped
    elif is_used_up(cluster, gang):
        queue = gang.standing.shape.queue
        account = cluster.used_up.longest(gang.tenant, queue, gang.user, now)
        blocked = why_used_up(account, need, now)
    elif resume_entitlement(cluster, gang, now) is None:
        blocked = _no_right_back(cluster, gang, need)
    elif cluster.barred(gang.id, gang.slots, now):
        blocked = set_aside(cluster, gang.standing.shape, now)
    elif cluster.slots_open(gang.slots):
        blocked = Blocked(Reason.RESUMING, "Its devices are in use by others.")
    else:
        blocked = Blocked(
            Reason.NODES_UNAVAILABLE,
            "Its memory is on hardware that is drained, lost or broken now.",
            hint="See `allot nodes` and `allot health`, or end it: `allot cancel`.",
        )
    return Blocked(
        blocked.reason,
        blocked.message,
        need=need,
        free=free_for(cluster, gang.requests),
        until=blocked.until,
        hint=blocked.hint,
    )
