"""One scheduling cycle: proposals, each made on the live state as the one before left it.

The stages are numbered as in docs/scheduling.md. Whoever drives a cycle commits each
proposal, or refuses it, before asking for the next; what is only thought of is undone by a
trial.
"""

from collections.abc import Iterable, Iterator

from allotment.core.backfill import Shadow, shadow_of
from allotment.core.caps import capped_out
from allotment.core.cluster import MOST_MEMOS, Cluster
from allotment.core.displacement import Turn, displace, displace_in_cells
from allotment.core.entitle import due_of, entitle, is_due, resume_entitlement
from allotment.core.gang import Gang, Reservation, Standing
from allotment.core.moving import moves
from allotment.core.owed import (
    idle_place,
    in_the_way,
    outranked,
    owed_ever,
    owed_place,
    room_by_demotion,
)
from allotment.core.packing import displace_pairs, everybody, join, joins
from allotment.core.pending import Key
from allotment.core.plan import Decision, Demote, Evict, Place, Promote, Resume, Unreserve
from allotment.core.preemption import clear_leases, make_room
from allotment.core.request import Shape, devices_of, lease_part, needs_of
from allotment.core.trial import Trial
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement, Placement
from allotment.model.quantity import Instant
from allotment.model.tenancy import Preempt, QueueOrder

GUARANTEED, OPPORTUNISTIC = Entitlement.GUARANTEED, Entitlement.OPPORTUNISTIC

Proposals = Iterator[Decision]

_FIRST: Key = ((), JobId(0))
"""A place in line before everybody's."""


def proposals(cluster: Cluster, now: Instant) -> Proposals:
    """Say, one by one, who starts, resumes, is promoted or must go."""
    # 1. Promises: hand over places whose last holder left; drop those on closed nodes.
    if cluster.reservations:
        yield from _keep_promises(cluster)
    # 2. Promote borrowers whose tenant has room in its guarantee again.
    if cluster.borrowers and _room_may_be_back(cluster):
        yield from _promote(cluster)
    # 3. Suspended gangs that want to go on get their own devices first.
    if cluster.resuming:
        yield from _resume(cluster, now)
    if is_turn(cluster, now):
        _deal_anew(cluster, now)
    yield from joins(cluster)
    # 4. In order: what tenants are owed, by eviction of borrowers if need be.
    # 5. In order: what is left, to whoever may borrow.
    if len(cluster.pending) and not _in_vain(cluster, now):
        yield from _Line(cluster, now).serve()
    # 6. At a turn, running gangs go where they are better off.
    if is_turn(cluster, now):
        yield from moves(cluster, now)


def _in_vain(cluster: Cluster, now: Instant) -> bool:
    """Tell, at a glance, that nobody who came since the last look can start.

    True only where nothing was given back since, nobody has to make way, and no job holds
    up another: then it is enough that all who came ask for more devices than are free.
    """
    if not cluster.all_skip or cluster.seen_version != cluster.ledger.version:
        return False
    came = cluster.pending.came
    if is_turn(cluster, now) or cluster.leaving:
        return False
    if not cluster.is_settled() and not all(shape.opportunistic for shape in came):
        return False  # Somebody's own job may send borrowers away.
    free = cluster.ledger.whole_free
    return all(shape.devices > free for shape in came)


def _deal_anew(cluster: Cluster, now: Instant) -> None:
    """Let policies that look at everybody do so: who counts anew, who shares with whom."""
    recounting, packing = cluster.policies.recounting, cluster.policies.packing
    if recounting is not None and recounting.recount(everybody(cluster), now):
        cluster.rank_anew(now)
    if packing is not None:
        packing.deal(everybody(cluster), now)


def is_turn(cluster: Cluster, now: Instant) -> bool:
    """Tell whether running gangs may be asked to make way, or to move, now."""
    turns = cluster.policies.turns
    return turns is not None and turns.next(now) == now


# ── 1 ───────────────────────────────────────────────────────────────────────────────────


def _keep_promises(cluster: Cluster) -> Proposals:
    for job, promise in sorted(cluster.reservations.items()):
        kept = cluster.slots_open(promise.slots) and is_due(cluster, promise)
        if not kept:
            yield Unreserve(job)
        elif job in cluster.leaving:
            continue  # It moves, and is not gone yet.
        elif cluster.ledger.settled(promise.slots):
            if job in cluster.gangs:
                yield Resume(job, promise.entitlement, reserved=True, quota=promise.quota)
            else:
                placement = Placement(job, promise.slots, promise.entitlement, promise.quota)
                yield Place(placement, reserved=True)


# ── 2 ───────────────────────────────────────────────────────────────────────────────────


def _room_may_be_back(cluster: Cluster) -> bool:
    """Tell whether anything was given back since borrowers were last looked at.

    Where urgent jobs may take what a borrower were given, their going counts too.
    """
    return cluster.seen_version != cluster.ledger.version or any(
        tenant.preempt is not Preempt.NONE for tenant in cluster.tenants.values()
    )


def _promote(cluster: Cluster) -> Proposals:
    for tenant, gangs in sorted(cluster.borrowers.items()):
        for gang in sorted(gangs.values(), key=lambda gang: (gang.placed_at, gang.id)):
            if gang.opportunistic or gang.leaving:
                continue
            if cluster.cells is not None:
                if gang.suspended:
                    continue
                if not _more_urgent(cluster, gang) and (quota := cluster.quota_kept(gang)):
                    yield Promote(gang.id, quota)
                continue
            due = entitle(cluster, tenant, gang.held(), preemptible=True)
            if due is GUARANTEED:
                yield Promote(gang.id)


def _more_urgent(cluster: Cluster, gang: Gang) -> bool:
    """Tell whether a waiting job would at once take from a gang what it were given.

    The room is for that job: it may be just what the gang had to give up.
    """
    tenant = cluster.tenants.get(gang.tenant)
    return (
        tenant is not None
        and tenant.preempt is not Preempt.NONE
        and any(
            waiting.priority > gang.priority and waiting.shape.tenant == gang.tenant
            for waiting in cluster.pending.all()
        )
    )


# ── 3 ───────────────────────────────────────────────────────────────────────────────────


def _resume(cluster: Cluster, now: Instant) -> Proposals:
    for _, gang in sorted(cluster.resuming.items()):
        if gang.id in cluster.reservations or gang.leaving:
            continue
        entitlement = resume_entitlement(cluster, gang)
        if entitlement is None:
            continue
        quota = cluster.quota_kept(gang) if entitlement is GUARANTEED else ()
        if _leases_free(cluster, gang):
            yield Resume(gang.id, entitlement, quota=quota)
        elif entitlement is GUARANTEED:
            leases = tuple(lease_part(need) for need in gang.needs)
            with Trial(cluster) as trial:
                room = clear_leases(trial, gang, now)
            if room is not None:
                yield _eviction(
                    cluster,
                    Reservation(
                        gang.id, gang.slots, leases, entitlement, room.victims, quota, gang.pin
                    ),
                )


def _leases_free(cluster: Cluster, gang: Gang) -> bool:
    with Trial(cluster) as trial:
        trial.take_leases(gang)
        return cluster.ledger.settled(gang.slots)


def _eviction(cluster: Cluster, reservation: Reservation) -> Evict:
    gangs = [cluster.gangs[job] for job in reservation.victims]
    tell = tuple(gang.id for gang in gangs if not gang.leaving)
    if cluster.cells is None:
        return Evict(reservation, tell)
    own = tuple(gang.id for gang in gangs if gang.entitlement is GUARANTEED)
    return Evict(reservation, tell, own)


# ── 4 and 5 ─────────────────────────────────────────────────────────────────────────────


class _Line:
    """Walks the line once for what tenants are owed, and again for what may be borrowed.

    All jobs of a shape have the same entitlement, and only its loss can come while we
    walk, so a shape is left out from its first job on that is not due or does not fit.
    """

    def __init__(self, cluster: Cluster, now: Instant) -> None:
        self.cluster = cluster
        self.now = now
        self.turn = is_turn(cluster, now)
        running = cluster.running
        self.stable = running is None or not running.rising
        self.others = False
        self.held_up: set[tuple[str, str]] = set()
        """Lines that wait for their first job to find room in its tenant's cells."""
        self.again = False
        self.sent: list[Gang] = []
        """Those who were sent away, and are not gone yet."""
        for promise in cluster.reservations.values() if self.turn else ():
            self._send(promise.victims)
        if len(cluster.blocked) > MOST_MEMOS:
            cluster.blocked.clear()

    def serve(self) -> Proposals:
        reopened = True
        while reopened:
            self.held_up.clear()
            reopened = False
            yield from self._walks(GUARANTEED)
            if self.others:
                for decision in self._walks(OPPORTUNISTIC):
                    yield decision
                    # Whom a borrower held up in its tenant's own cells may go on now.
                    reopened = reopened or self._line_of(decision) in self.held_up

    def _line_of(self, decision: Decision) -> tuple[str, str]:
        gang = self.cluster.gangs.get(decision.placement.job) if (
            isinstance(decision, Place)
        ) else None  # fmt: skip
        return (gang.tenant, gang.standing.shape.queue) if gang else ("", "")

    def _walks(self, entitlement: Entitlement) -> Proposals:
        """Walk anew when one job's turn freed more than it needs.

        Who was left out before may fit there, and come before those who are next.
        """
        self.again = True
        while self.again:
            self.again = False
            yield from self._walk(entitlement)

    def _walk(self, entitlement: Entitlement) -> Proposals:
        cluster = self.cluster
        skip = self._skippable(entitlement)
        closed: dict[tuple[str, str], Shadow | None] = {}
        leap: dict[Shape, Key] = {}
        for waiting in cluster.pending.in_order(skip, leap):
            shape = waiting.shape
            if self._passed_over(waiting, skip):
                continue
            due = due_of(cluster, shape)
            line = (shape.tenant, shape.queue)
            if due is not entitlement and not (due is None and self._may_displace(entitlement)):
                skip.add(shape)
                yield from self._leave_out(waiting, due, entitlement, closed)
            elif line in closed and not self._passes(closed[line], waiting, skip, leap):
                continue
            elif (
                self._known_blocked(shape, entitlement, cluster.pending.key(waiting.id))
                or (decision := self._find(waiting, due)) is None
            ):
                skip.add(shape)
                if due is not None:
                    self._note_blocked(waiting, entitlement, closed)
            else:
                yield decision
                yield from join(cluster, waiting.id)
                if waiting.id in cluster.pending and waiting.id not in cluster.reservations:
                    skip.add(shape)  # It was refused.
                    continue
                if (shadow := closed.get(line)) is not None:
                    shadow.took(waiting, self.now)
                if self._frees_more(waiting, decision):
                    # Who was known to be blocked may fit beside it.
                    cluster.blocked.clear()
                    self.again = True
                    return

    def _passed_over(self, waiting: Standing, skip: set[Shape]) -> bool:
        """Tell whether a job needs no look now, and holds up nobody.

        It has a promise, its shape is too large, or its user has all one user may have.
        """
        cluster = self.cluster
        if capped_out(cluster, waiting.shape) or (
            cluster.all_skip and self._too_large(waiting.shape)
        ):
            skip.add(waiting.shape)
            return True
        return waiting.id in cluster.reservations

    def _passes(
        self, shadow: Shadow | None, waiting: Standing, skip: set[Shape], leap: dict[Shape, Key]
    ) -> bool:
        """Tell whether a job may go before a blocked one; if not, who of its shape is next."""
        cluster, shape = self.cluster, waiting.shape
        if shadow is None or shadow.at is None or self._too_large(shape):
            skip.add(shape)
            return False
        if shadow.admits(waiting, self.now):
            return True
        following = cluster.pending.next_to_end(waiting, shadow.at - self.now)
        if following is None:
            skip.add(shape)
        else:
            leap[shape] = following
        return False

    def _too_large(self, shape: Shape) -> bool:
        """Tell whether too few devices are free in all, and nobody can be made to leave."""
        cluster = self.cluster
        return (
            shape.devices > cluster.ledger.whole_free and not self.turn and cluster.is_settled()
        )

    def _frees_more(self, waiting: Standing, decision: Decision) -> bool:
        """Tell whether those who are told to go hold more than the job that takes a turn."""
        if not self.turn or not isinstance(decision, Evict):
            return False
        freed = sum(gang.held().gpu_milli for gang in self._send(decision.evict))
        return freed > waiting.gpu_milli

    def _send(self, victims: Iterable[JobId]) -> list[Gang]:
        """Note who was sent away; give those who are still there."""
        gangs = self.cluster.gangs
        there = [gangs[job] for job in victims if job in gangs]
        self.sent += there
        return there

    def _stands_back(self, waiting: Standing) -> bool:
        """Tell whether somebody who was sent away comes before this job, and may return.

        By now enough may come free for them too; whoever takes it would be sent away at
        once. So the job waits until they are gone, and stand in line themselves.
        """
        cluster, running = self.cluster, self.cluster.running
        if not self.sent or running is None:
            return False
        if cluster.cells is not None:
            # Who leaves is in nobody's way there, and what is promised is taken.
            spare = cluster.cells.room_of(waiting.shape.tenant, waiting.shape.pin)
        else:
            ledger = cluster.ledger
            spare = ledger.whole_free - ledger.owed
            spare += sum(devices_of(gang.requests) for gang in cluster.leaving.values())
        place = cluster.pending.key(waiting.id)
        return any(
            gang.tenant == waiting.shape.tenant
            and devices_of(gang.requests) <= spare
            and running.key(gang.id, self.now) < place
            for gang in self.sent
        )

    def _may_displace(self, entitlement: Entitlement) -> bool:
        """Tell whether who has no right to more may take a place of its own tenant's now."""
        return self.turn and entitlement is OPPORTUNISTIC

    def _skippable(self, entitlement: Entitlement) -> set[Shape]:
        """Give the shapes that cannot start, and that nobody else has to queue behind.

        They are known to be blocked, or the devices free in all are too few and nobody
        could be made to leave.
        """
        cluster = self.cluster
        if not cluster.any_skip:
            return set()
        free = cluster.ledger.whole_free
        settled = cluster.is_settled()
        worst = self._worst() if self.turn else None
        known = self._known_blocked
        return {
            shape
            for shape, head in cluster.pending.heads()
            if (
                (settled and shape.devices > free and (worst is None or head >= worst))
                or known(shape, entitlement, head)
            )
            and (cluster.all_skip or cluster.order_of(shape) is QueueOrder.SKIP)
        }

    def _worst(self) -> Key:
        """Give the place in line from which on nobody can be displaced."""
        running = self.cluster.running
        if not self.turn or running is None:
            return _FIRST
        return running.worst(self.now) or _FIRST

    def _known_blocked(self, shape: Shape, entitlement: Entitlement, head: Key) -> bool:
        """Tell whether nothing has changed for this shape since it did not fit.

        At a turn a job that ranks better may displace more; and where ranks get worse by
        the clock, everybody may.
        """
        seen = self.cluster.blocked.get((shape, entitlement))
        if seen is None or seen[0] != self.cluster.ledger.version:
            return False
        return not self.turn or (self.stable and head >= seen[1])

    def _note_blocked(
        self,
        waiting: Standing,
        entitlement: Entitlement,
        closed: dict[tuple[str, str], Shadow | None],
    ) -> None:
        shape = waiting.shape
        key = self.cluster.pending.key(waiting.id)
        self.cluster.blocked[shape, entitlement] = (self.cluster.ledger.version, key)
        self._close(waiting, closed)

    def _close(self, waiting: Standing, closed: dict[tuple[str, str], Shadow | None]) -> None:
        """Let a job that cannot start hold up those behind it, as its queue has it."""
        shape = waiting.shape
        line = (shape.tenant, shape.queue)
        if line in closed:
            return
        match self.cluster.order_of(shape):
            case QueueOrder.STRICT:
                closed[line] = None
            case QueueOrder.EASY:
                closed[line] = shadow_of(self.cluster, waiting, self.now)
            case QueueOrder.SKIP:
                pass

    def _find(self, waiting: Standing, due: Entitlement | None) -> Decision | None:
        """Find a place for a job: an empty one, or one that others must leave first."""
        cluster, requests = self.cluster, waiting.shape.requests
        if cluster.cells is not None:
            return self._find_cells(waiting, due)
        if due is not None:
            slots = cluster.find(requests)
            if slots is not None:
                return Place(Placement(waiting.id, slots, due))
        if self._stands_back(waiting):
            return None
        if due is GUARANTEED and self._somebody_may_go():
            with Trial(cluster) as trial:
                room = make_room(trial, requests, self.now)
            if room is not None:
                place = Placement(waiting.id, room.slots, due)
                return self._reserve(waiting, place, room.victims)
        if (
            self.turn
            and cluster.pending.key(waiting.id) < self._worst()
            and (found := self._displace(waiting)) is not None
        ):
            place = Placement(waiting.id, found.slots, found.entitlement)
            return self._reserve(waiting, place, found.victims)
        return None

    def _find_cells(self, waiting: Standing, due: Entitlement | None) -> Decision | None:
        """Find a place in the tenant's cells, or on idle ones."""
        cluster, shape = self.cluster, waiting.shape
        if due is GUARANTEED:
            found = owed_place(cluster, shape)
            if found is None:
                return None
            place = Placement(waiting.id, found.slots, due, found.quota)
            if not found.borrowers and cluster.slots_free(found.slots, shape.requests):
                return Place(place)
            victims = in_the_way(cluster, shape, found, self.now)
            return None if victims is None else self._reserve(waiting, place, victims)
        if due is OPPORTUNISTIC and (slots := idle_place(cluster, shape)) is not None:
            return Place(Placement(waiting.id, slots, due))
        if (
            self.turn
            and not self._stands_back(waiting)
            and cluster.pending.key(waiting.id) < self._worst()
            and (turn := displace_in_cells(cluster, waiting, self.now)) is not None
        ):
            return self._reserve(waiting, turn.place, turn.victims)
        return None

    def _leave_out(
        self,
        waiting: Standing,
        due: Entitlement | None,
        entitlement: Entitlement,
        closed: dict[tuple[str, str], Shadow | None],
    ) -> Proposals:
        """See to a job that is not due in this walk.

        If its tenant's cells have no room for it now, then, as on a cluster of the tenant's
        own, it makes less urgent gangs go, or holds up those behind it; unless even all of
        the tenant's cells were too few.
        """
        self.others = self.others or due is OPPORTUNISTIC or self.turn
        if entitlement is not GUARANTEED or self.cluster.cells is None:
            return
        yield from self._outrank(waiting)
        shape = waiting.shape
        if owed_ever(self.cluster, shape):
            self._close(waiting, closed)
            self.held_up |= closed.keys()

    def _outrank(self, waiting: Standing) -> Proposals:
        """Let less urgent gangs of its tenant's make way for a job, where it has that right."""
        cluster = self.cluster
        if cluster.cells is None or waiting.shape.opportunistic:
            return
        way = outranked(cluster, waiting, self.now)
        if way is None:
            return
        tenant = cluster.tenants[waiting.shape.tenant]
        if tenant.preempt is Preempt.DEMOTE and room_by_demotion(
            cluster, waiting.shape, way.losers
        ):
            for loser in way.losers:
                yield Demote(loser, waiting.id)
            return
        found = way.found
        place = Placement(waiting.id, found.slots, GUARANTEED, found.quota)
        yield self._reserve(waiting, place, (*way.losers, *found.borrowers))

    def _displace(self, waiting: Standing) -> Turn | None:
        by_pairs = self.cluster.policies.packing is not None
        return (displace_pairs if by_pairs else displace)(self.cluster, waiting, self.now)

    def _somebody_may_go(self) -> bool:
        """Tell whether there are borrowers, or such as leave and whom no turn looks at."""
        cluster = self.cluster
        return any(cluster.borrowers.values()) or bool(cluster.leaving and not self.turn)

    def _reserve(
        self,
        waiting: Standing,
        place: Placement,
        victims: tuple[JobId, ...],
    ) -> Evict:
        shape = waiting.shape
        needs = needs_of(shape.requests)
        return _eviction(
            self.cluster,
            Reservation(
                waiting.id,
                place.slots,
                needs,
                place.entitlement,
                victims,
                place.quota,
                shape.pin,
            ),
        )
