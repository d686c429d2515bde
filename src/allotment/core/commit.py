"""The one door: every proposal is checked again, on the newest state, before it counts.

The planner may be wrong, late, or driven by a foolish policy; what passes here breaks no
invariant. Nothing is searched for: only the proposal is judged. Capacity, caps, cells and
reclaiming are counted here in their own way; by which entitlement a job may have what it
needs, and whether a place is there beside what suspended gangs keep of it, is asked of the
same functions as in the search.
"""

from collections.abc import Sequence

from allotment.core.books import Claim
from allotment.core.caps import beyond, resumes_beyond
from allotment.core.cells.space import shortage, shorter
from allotment.core.cluster import Cluster
from allotment.core.disruption import may_preempt
from allotment.core.entitle import is_due, may_go_on, resume_entitlement
from allotment.core.gang import Gang, ReservedPlace, Standing, held_vector
from allotment.core.lending import kept_from_borrower, takes_kept
from allotment.core.plan import Decision, Demote, Evict, Pack, Place, Promote, Resume, Unreserve
from allotment.core.preemption.eviction import fits_beside
from allotment.core.preemption.search import may_scale_down
from allotment.core.reclaim import may_reclaim
from allotment.core.request import Request, Shape, demand_of, fixed, needs_of, sized
from allotment.core.sharing import borrows
from allotment.core.slices import cpus_are_spare, line_of, slice_end
from allotment.core.trial import Trial
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import GUARANTEED, OPPORTUNISTIC, Placement, Slot, having
from allotment.model.quantity import DEVICE, NOTHING, Instant, Resources
from allotment.model.spec import ANY_ARCH
from allotment.model.tenancy import Preempt


def refusal(cluster: Cluster, decision: Decision, now: Instant) -> str:
    """Return why a decision may not be committed now; empty when it may. O(tasks)."""
    if isinstance(decision, Place):
        place = decision.placement
        if cluster.reservations.all and cluster.barred(place.job, place.slots, now):
            return "a reservation keeps it off"
        return _reserved(cluster, place) if decision.reserved else _place(cluster, place)
    match decision:
        case Resume():
            return _resume(cluster, decision, now)
        case Promote():
            return _promote(cluster, decision)
        case Demote(job, wanted_by):
            return _demote(cluster, job, wanted_by, now)
        case Evict():
            return _evict(cluster, decision, now)
        case Pack(job, beside):
            return _pack(cluster, job, beside, now)
        case Unreserve(job):
            return "" if job in cluster.reserved else "nothing is reserved"


def _place(cluster: Cluster, placement: Placement) -> str:
    waiting, slots = cluster.pending.get(placement.job), placement.slots
    if waiting is None:
        return "the job is not waiting"
    shape = waiting.shape
    if wrong := _wrong_form(cluster, shape, slots):
        return wrong
    shape = fixed(shape, len(slots))
    if wrong := _no_room(cluster, shape.requests, slots):
        return wrong
    if name := takes_kept(cluster, shape, slots, placement.entitlement):
        return f"queue {name} does not lend"
    claim = _claim(shape, placement, needs_of(shape.requests))
    return cluster.guarantee.objection(claim, placement.entitlement)


def _claim(
    shape: Shape, place: Placement | ReservedPlace, needs: tuple[Resources, ...]
) -> Claim:
    """Return what a waiting job would have of its tenant's guarantee in a place."""
    slots, held = place.slots, demand_of(shape.requests)
    return Claim(shape.tenant, shape.pin, slots, needs, place.quota, held, shape.preemptible)


def _wrong_form(cluster: Cluster, shape: Shape, slots: tuple[Slot, ...]) -> str:
    """Check the size and the form of a place for a waiting job, and the caps on it."""
    if shape.most and (wrong := _wrong_size(shape, slots)):
        return wrong
    requests = sized(shape, len(slots)) if shape.most else shape.requests
    return _misfit(cluster, requests, slots) or beyond(cluster, shape, requests, slots)


def _wrong_size(shape: Shape, slots: tuple[Slot, ...]) -> str:
    """Check how many tasks a gang starts with that may be larger or smaller."""
    least, last = len(needs_of(shape.requests)), shape.requests[-1]
    more = len(slots) - least
    if more < 0 or last.count + more > shape.most or more % (last.group or 1):
        return "a gang of that size was not asked for"
    return ""


def _reserved(cluster: Cluster, placement: Placement) -> str:
    place = cluster.reserved.get(placement.job)
    if place is not None and len(placement.slots) > len(place.slots):
        with Trial(cluster) as trial:  # A larger gang than the one it was reserved for.
            trial.unreserve(placement.job)
            return _place(cluster, placement)
    if place is None or place.slots != placement.slots:
        return "nothing like it is reserved"
    if placement.job not in cluster.pending:
        return "the job is not waiting"
    if place.entitlement is not placement.entitlement:
        return "the reserved place has another entitlement"
    if not is_due(cluster, place):
        return "its tenant's share shrank"
    return "" if cluster.ledger.settled(placement.slots) else "the place is not empty yet"


def _resume(cluster: Cluster, decision: Resume, now: Instant) -> str:
    gang = cluster.gangs.get(decision.job)
    if gang is None or not gang.suspended or not gang.wants_resume or gang.leaving:
        return "the gang does not wait to go on"
    if cluster.barred(gang.id, gang.slots, now):
        return "a reservation keeps it off"
    if decision.reserved:
        reserved = cluster.reserved.get(decision.job)
        settled = reserved and is_due(cluster, reserved) and cluster.ledger.settled(gang.slots)
        return "" if settled else "its devices are not free yet"
    if resume_entitlement(cluster, gang, now) is not decision.entitlement:
        return "its tenant's share changed"
    with Trial(cluster) as trial:
        free = trial.fits(gang.slots, gang.leases())
    return "" if free else "its devices are not free"


def _pack(cluster: Cluster, job: JobId, beside: JobId, now: Instant) -> str:
    """A gang may run beside another of its queue, in memory that it kept and on spare CPUs."""
    gang, other = cluster.gangs.get(job), cluster.gangs.get(beside)
    if gang is None or not gang.wants_resume or gang.leaving or gang.beside is not None:
        return "the gang does not wait to go on"
    if gang.keeps:
        return "it gave memory back that it needs"
    if other is None or not other.standing.runs or other.leaving or other.slots != gang.slots:
        return "no gang runs on just its devices"
    queue = cluster.tenants[other.tenant].queue(other.standing.shape.queue)
    same = line_of(gang.standing.shape) == line_of(other.standing.shape)
    if queue is None or not (same and queue.packs and gang.priority == other.priority):
        return "their queue does not pack, or one is more urgent"
    if resumes_beyond(cluster, gang) or cluster.barred(job, gang.slots, now):
        return "a cap or a reservation keeps it off"
    there = [each for each in cluster.placed.resuming.values() if each.beside is not None]
    if any(each.beside == beside for each in there) or not cluster.slots_open(gang.slots):
        return "another runs beside it, or its place is closed"
    return "" if cpus_are_spare(cluster.ledger.books, [*there, gang]) else "no CPUs are spare"


def _demote(cluster: Cluster, job: JobId, wanted_by: JobId, now: Instant) -> str:
    """A gang may lose its guarantee to a job of its own tenant's that is more urgent."""
    gang = cluster.gangs.get(job)
    if gang is None or gang.entitlement is not GUARANTEED or gang.leaving:
        return "the gang has no guarantee to lose"
    if wanted_by not in cluster.pending:
        return "the job is not waiting"
    waiting = cluster.pending[wanted_by]
    may = _may_preempt(cluster, waiting, gang, now) or may_reclaim(cluster, waiting, (gang,))
    return "" if may else "it is no less urgent, or is to be left alone"


def _may_preempt(cluster: Cluster, waiting: Standing, gang: Gang, now: Instant) -> bool:
    """Whether a waiting job may take what a gang of its tenant's has.

    It must have run for as long as its tenant grants it.
    """
    if not may_preempt(cluster.tenants, waiting, gang, now):
        return False
    since = gang.standing.since or gang.placed_at
    return now - since >= cluster.tenants[gang.tenant].preempt_rules.min_run_ms


def _promote(cluster: Cluster, decision: Promote) -> str:
    gang, beside = cluster.gangs.get(decision.job), decision.beside
    if gang is None or gang.entitlement is GUARANTEED or gang.leaving:
        return "the gang does not borrow"
    if kept := kept_from_borrower(cluster, gang):
        return f"queue {kept.account.queue} does not lend"
    if gang.opportunistic:
        return "it never counts as its tenant's own"
    if beside and len(beside) != len(gang.slots):
        return "not one choice of leaves for each task"
    slots = having(gang.slots, beside) if beside else gang.slots
    held, quota = held_vector(gang), decision.quota
    claim = Claim(gang.tenant, gang.pin, slots, gang.needs, quota, held, preemptible=True)
    return cluster.guarantee.objection(claim, GUARANTEED)


def _evict(cluster: Cluster, decision: Evict, now: Instant) -> str:
    place = decision.place
    if place.job in cluster.reserved:
        return "it has a place reserved already"
    if wrong := _stays(cluster, decision, now):
        return wrong
    if place.job in place.victims:
        return _move(cluster, decision, now)
    if any(job not in (*decision.evict, *decision.suspend) for job in decision.demote):
        return "only a gang that is evicted or suspended loses its guarantee"
    if cluster.barred(place.job, place.slots, now):
        return "a reservation keeps it off"
    return _terms(cluster, decision, now)


def _terms(cluster: Cluster, decision: Evict, now: Instant) -> str:
    """Check what is taken over, in what way others leave, and the job's entitlement."""
    place = decision.place
    for job in decision.revoke:
        if wrong := _keeps_reserved(cluster, job, place):
            return wrong
    if decision.shrink and (wrong := _shrink(cluster, decision, now)):
        return wrong
    if (decision.suspend or decision.moves) and (wrong := _gently(cluster, decision, now)):
        return wrong
    return _reserved_is_due(cluster, decision, now)


def _shrink(cluster: Cluster, decision: Evict, now: Instant) -> str:
    """Return which gang may not be made to shrink to so many tasks; empty when all may."""
    reserved = decision.place
    if len(dict(decision.shrink)) < len(decision.shrink):
        return "a gang is to shrink twice"
    lent: list[Gang] = []
    rest: list[Gang] = []
    for job, tasks in decision.shrink:
        gang = cluster.gangs.get(job)
        may = (
            gang is not None
            and may_scale_down(cluster, gang)
            and gang.least <= tasks < len(gang.slots)
            and not (len(gang.slots) - tasks) % gang.step
            and job not in (*reserved.victims, reserved.job)
        )
        if gang is None or not may:
            return f"job {job} may not be made to shrink"
        if not (_must_yield(cluster, gang, reserved, now) or _lends(cluster, gang, reserved)):
            lent.append(gang)
            rest.append(gang.of_size(tasks))
    if not lent:
        return ""
    # What the queues of both lose at once must be beyond their guarantees.
    gone = (cluster.gangs[job] for job in reserved.victims)
    own = [gang for gang in gone if gang.entitlement is GUARANTEED]
    parts = [gang.surplus(len(r.slots)) for gang, r in zip(lent, rest, strict=True)]
    may = _lent_back(cluster, reserved, [*parts, *own], rest)
    return "" if may else f"job {lent[0].id} may not be made to shrink"


def _lends(cluster: Cluster, gang: Gang, reserved: ReservedPlace) -> bool:
    """Whether a gang of a queue that grows has its surplus only until others want it."""
    grows = gang.gauge is not None and gang.gauge.most
    own = gang.entitlement is OPPORTUNISTIC or cluster.tenant_of(reserved.job) == gang.tenant
    return bool(grows) and own and reserved.entitlement is gang.entitlement


def _lent_back(
    cluster: Cluster, reserved: ReservedPlace, lent: Sequence[Gang], rest: Sequence[Gang] = ()
) -> bool:
    """Whether a job may have back what gangs of sibling queues were lent."""
    line = cluster.pending
    return reserved.job in line and may_reclaim(cluster, line[reserved.job], lent, rest)


def _gently(cluster: Cluster, decision: Evict, now: Instant) -> str:
    """Check that some may be frozen, and that others go where it is free."""
    reserved = decision.place
    if any(
        not cluster.gangs[job].standing.runs or cluster.gangs[job].shrinking
        for job in decision.suspend
    ):
        return "only a running gang can be suspended"
    if decision.suspend and not fits_beside(cluster, decision, decision.suspend):
        return "the suspended gangs keep too much of it"
    with Trial(cluster) as trial:
        for job in decision.revoke:
            trial.unreserve(job)
        trial.hold(reserved.slots, reserved.needs)
        for move in decision.moves:
            if wrong := _moves_on(cluster, move, decision.evict):
                return wrong
            if cluster.barred(move.job, move.slots, now):
                return "a reservation keeps it off"
            trial.hold(move.slots, move.needs)
    return ""


def _moves_on(cluster: Cluster, move: ReservedPlace, evict: tuple[JobId, ...]) -> str:
    """Check that what is idle elsewhere may be reserved for an evicted gang."""
    if move.job not in evict or move.victims != (move.job,):
        return "only an evicted gang continues elsewhere"
    gang = cluster.gangs[move.job]
    if gang.suspended or move.entitlement is not OPPORTUNISTIC:
        return "a gang that continues elsewhere borrows there"
    if not borrows(cluster, gang.tenant, preemptible=gang.preemptible):
        return f"tenant {gang.tenant} may not borrow"
    return _misfit(cluster, gang.requests, move.slots) or _no_room(
        cluster, gang.requests, move.slots
    )


def _stays(cluster: Cluster, decision: Evict, now: Instant) -> str:
    """Return which of the victims need not go; empty when all must."""
    reserved = decision.place
    lent: list[Gang] = []
    for victim in reserved.victims:
        gang = cluster.gangs.get(victim)
        if gang is None:
            return f"job {victim} is gone already"
        if victim not in decision.evict and victim not in decision.suspend:
            continue
        if gang.leaving:
            return f"job {victim} may not be evicted"
        if not _must_yield(cluster, gang, reserved, now):
            lent.append(gang)
    if not lent or _lent_back(cluster, reserved, lent):
        return ""
    return f"job {lent[0].id} may not be evicted"


def _keeps_reserved(cluster: Cluster, job: JobId, wanted: ReservedPlace) -> str:
    """Return why another may not take over a reserved place; empty when it may."""
    reserved = cluster.reserved.get(job)
    if reserved is None:
        return f"job {job} has no reserved place to lose"
    if wanted.entitlement is not GUARANTEED:
        return "only a guaranteed job takes a place from another"
    if reserved.entitlement is OPPORTUNISTIC:
        return ""
    if wanted.job not in cluster.pending or job in cluster.placed.leaving:
        return f"the place of job {job} stays reserved"
    taker, holder = cluster.pending[wanted.job], cluster.standing_of(job)
    tenant = cluster.tenants.get(taker.shape.tenant)
    may = (
        tenant is not None
        and tenant.preempt is not Preempt.NONE
        and holder is not None
        and holder.shape.tenant == tenant.name
        and holder.priority < taker.priority
    )
    return "" if may else f"job {job} is no less urgent"


def _move(cluster: Cluster, decision: Evict, now: Instant) -> str:
    """Check that a gang may go from where it is to a place that is free.

    In cells it gives up those that it has for those of its new place, there and then.
    """
    place, gang = decision.place, cluster.gangs[decision.place.job]
    others = decision.shrink or place.victims != (gang.id,)
    if others or place.entitlement is not gang.entitlement:
        return "a move concerns no other gang"
    if gang.suspended and not may_go_on(cluster, gang, now):
        return "its tenant's share changed"
    with Trial(cluster) as trial:  # It may keep some of what it has.
        trial.drop(gang.id)
        wrong = _misfit(cluster, gang.requests, place.slots) or _no_room(
            cluster, gang.requests, place.slots
        )
    if wrong or not cluster.guarantee.spaces or gang.entitlement is not GUARANTEED:
        return wrong
    if decision.demote != place.victims:
        return "it has its cells still"
    return _reserved_is_guaranteed(cluster, decision, gang.standing.shape)


def _must_yield(cluster: Cluster, gang: Gang, reserved: ReservedPlace, now: Instant) -> bool:
    """Whether a gang has to go for a reserved place: it borrows, or its turn is over."""
    if reserved.entitlement is GUARANTEED and gang.entitlement is OPPORTUNISTIC:
        return True
    if _frozen_in_its_way(cluster, gang, reserved):
        return True
    if reserved.job in cluster.pending and _may_preempt(
        cluster, cluster.pending[reserved.job], gang, now
    ):
        return True
    if cluster.displaces(now) is None:
        return False
    if reserved.job == gang.id:
        return gang.preemptible
    if cluster.slices:
        return _had_its_slice(cluster, gang, reserved, now)
    return _ranks_behind(cluster, gang, reserved, now)


def _had_its_slice(cluster: Cluster, gang: Gang, reserved: ReservedPlace, now: Instant) -> bool:
    """Whether a gang ran for its time slice, and a job of its queue, no less urgent, waits."""
    end, waiting = slice_end(cluster.slices, gang), cluster.standing_of(reserved.job)
    if end is None or end > now or waiting is None:
        return False
    same = line_of(waiting.shape) == line_of(gang.standing.shape)
    own = same and reserved.entitlement is gang.entitlement
    return own and waiting.priority >= gang.priority


def _ranks_behind(cluster: Cluster, gang: Gang, reserved: ReservedPlace, now: Instant) -> bool:
    """Whether a gang ranks behind a job of its tenant that displaces it."""
    if reserved.entitlement is not gang.entitlement:
        return False  # A borrower evicts no gang that is within its tenant's guarantee.
    waiting = cluster.standing_of(reserved.job)
    if waiting is None:
        return False
    ordering = cluster.policies.ordering
    mine, theirs = ordering.rank(waiting, now), ordering.rank(gang.standing, now)
    moved = (*theirs.key[:-1], theirs.key[-1] + theirs.slope * now)
    return waiting.shape.tenant == gang.tenant and (mine.key, waiting.id) < (moved, gang.id)


def _frozen_in_its_way(cluster: Cluster, gang: Gang, reserved: ReservedPlace) -> bool:
    """Whether a gang gave up its cells, and keeps what another tenant is guaranteed there."""
    return (
        cluster.guarantee.clears_suspended
        and reserved.entitlement is GUARANTEED
        and gang.suspended
        and gang.preemptible
        and gang.tenant != cluster.tenant_of(reserved.job)
        and _keeps_some_of(gang, reserved)
    )


def _keeps_some_of(gang: Gang, reserved: ReservedPlace) -> bool:
    """Whether a suspended gang keeps any of what a place needs, where it needs it."""
    hosts: dict[NodeId, Resources] = {}
    devices: set[tuple[NodeId, int]] = set()
    for slot, kept in zip(gang.slots, gang.needs, strict=True):
        hosts[slot.node] = hosts.get(slot.node, NOTHING) + kept
        if kept.gpu_memory:
            devices.update((slot.node, index) for index in slot.devices)
    for slot, need in zip(reserved.slots, reserved.needs, strict=True):
        kept = hosts.get(slot.node, NOTHING)
        if (need.memory and kept.memory) or (need.disk and kept.disk):
            return True
        if need.gpu_memory and any((slot.node, index) in devices for index in slot.devices):
            return True
    return False


def _reserved_is_due(cluster: Cluster, decision: Evict, now: Instant) -> str:
    """Return why no place may be reserved for a job, once others lost theirs."""
    place = decision.place
    if not cluster.slots_open(place.slots):
        return "a part of the place is closed or broken"
    gang = cluster.gangs.get(place.job)
    if gang is not None:
        with Trial(cluster) as trial:
            _without(trial, decision, decision.revoke)
            entitled = resume_entitlement(cluster, gang, now) is place.entitlement
        return "" if gang.wants_resume and entitled else "it may not resume as that"
    if place.job not in cluster.pending:
        return "the job is not waiting"
    shape = cluster.pending[place.job].shape
    if wrong := _wrong_form(cluster, shape, place.slots):
        return wrong
    shape = fixed(shape, len(place.slots))
    if name := _reserved_takes_kept(cluster, shape, decision):
        return f"queue {name} does not lend"
    return _reserved_is_guaranteed(cluster, decision, shape)


def _reserved_is_guaranteed(cluster: Cluster, decision: Evict, shape: Shape) -> str:
    """Check a place against its tenant's quota as it will be without its own victims.

    In cells it goes where they are, or where it could go once their cells are free. Where
    hardware is lost only the first may be left: cells given up would be others' then.
    """
    with cluster.guarantee.keeping(shape.tenant, decision.place.pin):
        wrong = _guaranteed_without(cluster, decision, shape)
    wrong = wrong or _costs_others(cluster, decision)
    return wrong and _guaranteed_without(cluster, decision, shape)


def _costs_others(cluster: Cluster, decision: Evict) -> str:
    """Report if others lack more cells for it that some are given up and others taken."""
    spaces = cluster.guarantee.spaces
    if not any(space.broken for space in spaces):
        return ""
    before = shortage(spaces)
    with Trial(cluster) as trial:
        _without(trial, decision, decision.revoke)
        between = shortage(spaces)
        trial.reserve(decision.place)
        after = shortage(spaces)
    harm = shorter(before, after) and shorter(between, after)
    return "others would be guaranteed fewer cells than before" if harm else ""


def _guaranteed_without(cluster: Cluster, decision: Evict, shape: Shape) -> str:
    reserved = decision.place
    claim = _claim(shape, reserved, reserved.needs)
    with Trial(cluster) as trial:
        _without(trial, decision, decision.revoke)
        return cluster.guarantee.objection(claim, reserved.entitlement)


def _without(trial: Trial, decision: Evict, revoked: Sequence[JobId]) -> None:
    """Take from a tenant's own victims what they give up, and drop some reserved places."""
    cluster, reserved = trial.cluster, decision.place
    for job in revoked:
        trial.unreserve(job)
    tenant = cluster.tenant_of(reserved.job)
    for victim in reserved.victims:
        gang = cluster.gangs[victim]
        if gang.tenant == tenant and gang.entitlement is GUARANTEED:
            trial.drop(victim)
    for job, tasks in decision.shrink:
        trial.scale_down(cluster.gangs[job], tasks)


def _misfit(cluster: Cluster, requests: tuple[Request, ...], slots: tuple[Slot, ...]) -> str:
    """Check the form of a place: one slot a task, right devices, right host, open nodes."""
    first, within = requests[0], requests[0].within
    if len(slots) == 1 == len(requests) == first.count and not (within or first.group):
        return _misfit_of_one(cluster, first, slots[0])  # Most gangs are of one.
    tasks = [request for request in requests for _ in range(request.count)]
    if len(tasks) != len(slots):
        return "not one slot for each task"
    if within and not cluster.guarantee.together(within, slots):
        return f"not within one {within}"
    books = cluster.ledger.books
    if not first.engine and len({books[slot.node].engine for slot in slots}) > 1:
        return "not on one engine"
    if wrong := _parted(cluster, requests, slots):
        return wrong
    for request, slot in zip(tasks, slots, strict=True):
        if wrong := _misfit_of_one(cluster, request, slot):
            return wrong
    return ""


def _parted(cluster: Cluster, requests: tuple[Request, ...], slots: tuple[Slot, ...]) -> str:
    """Check that each group of tasks lies together, where a role has groups."""
    first = 0
    for request in requests:
        end = first + request.count
        size, level = request.group, request.group_within
        for at in range(first, end, size) if size else ():
            if not cluster.guarantee.together(level, slots[at : min(end, at + size)]):
                return f"a group of {size} tasks is not within one {level}"
        first = end
    return ""


def _misfit_of_one(cluster: Cluster, request: Request, slot: Slot) -> str:
    book = cluster.ledger.books.get(slot.node)
    if book is None or not book.open:
        return f"node {slot.node} takes no work"
    if request.arch is not ANY_ARCH and request.arch is not book.arch:
        return f"node {slot.node} has another architecture"
    if not book.serves(request):
        return f"the engine of node {slot.node} is another, or not able to"
    if not book.sound(slot.devices):
        return f"devices of node {slot.node} are broken"
    if len(set(slot.devices)) != -(-request.need.gpu_milli // DEVICE):
        return "not the number of devices asked for"
    if request.types and any(book.types[i] not in request.types for i in slot.devices):
        return "not the device type asked for"
    return ""


def _no_room(cluster: Cluster, requests: tuple[Request, ...], slots: tuple[Slot, ...]) -> str:
    """Add up what the slots take on each node and device, and compare with what is free."""
    books = cluster.ledger.books
    if len(slots) == 1 and books[slots[0].node].has(slots[0], requests[0].need):
        return ""  # Most gangs are of one.
    host: dict[NodeId, Resources] = {}
    milli: dict[tuple[NodeId, int], int] = {}
    memory: dict[tuple[NodeId, int], int] = {}
    tasks = (request.need for request in requests for _ in range(request.count))
    for need, slot in zip(tasks, slots, strict=True):
        host[slot.node] = host.get(slot.node, NOTHING) + need
        for index in slot.devices:
            place = (slot.node, index)
            milli[place] = milli.get(place, 0) + need.gpu_milli // len(slot.devices)
            memory[place] = memory.get(place, 0) + need.gpu_memory
    for node, taken in host.items():
        if not books[node].host_fits(taken):
            return f"node {node} has too little CPU, memory or disk"
    for (node, index), amount in milli.items():
        book = books[node]
        if amount > book.device_milli[index] or (
            memory[node, index] and memory[node, index] > book.device_memory[index]
        ):
            return f"device {index} of node {node} is in use"
    return ""


def _reserved_takes_kept(cluster: Cluster, shape: Shape, decision: Evict) -> str:
    """Whether so is a place that others have to leave, now or once they have left."""
    here = (decision.place.slots, decision.place.entitlement)
    if not takes_kept(cluster, shape, *here):
        return ""
    # What its tenant's own give up for it is there, and no longer counts as their queues'.
    held = cluster.reserved
    owed = [job for job in decision.revoke if held[job].entitlement is GUARANTEED]
    with Trial(cluster) as trial:
        _without(trial, decision, owed)
        return takes_kept(cluster, shape, *here)
