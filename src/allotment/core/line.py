"""The walk of the line: first for what tenants are owed, then for what may be borrowed.

Whoever cannot start holds up those behind it as its queue has it; who has the right makes
others go.
"""

from collections.abc import Generator, Iterator

from allotment.core.bounds import Bounds
from allotment.core.caps import capped_out, caps_matter, narrowed_to_caps
from allotment.core.cluster import Cluster
from allotment.core.discipline import Filter, Next
from allotment.core.entitle import due_of
from allotment.core.fair_order import in_fair_order
from allotment.core.gang import Standing
from allotment.core.guarantee import guarantee_of
from allotment.core.head_of_line import HeadOfLine
from allotment.core.lending import narrowed_to_lent
from allotment.core.memos import remember
from allotment.core.molding import as_large
from allotment.core.packing import join
from allotment.core.pending import Key
from allotment.core.places import Places
from allotment.core.plan import Decision, Evict, Place, Proposals
from allotment.core.queue_stages import Stage, aside, barred, stages
from allotment.core.request import Shape
from allotment.core.windows import NOWHERE
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant
from allotment.model.tenancy import QueueOrder

GUARANTEED, OPPORTUNISTIC = Entitlement.GUARANTEED, Entitlement.OPPORTUNISTIC


class Line:
    """Walks the line once for what tenants are owed, and again for what may be borrowed.

    All jobs of a shape have the same entitlement, and only its loss can come while we
    walk, so a shape is left out from its first job on that is not due or does not fit.
    """

    def __init__(self, cluster: Cluster, now: Instant, *, turn: bool) -> None:
        self.cluster = cluster
        self.now = now
        self.turn = turn
        self.places = Places(cluster, now, turn=turn)
        self.capped = caps_matter(cluster)
        running = cluster.running
        self.stable = running is None or not running.rising
        self.others = False
        self.held_up: set[str] = set()
        """Tenants with lines that wait for their first job to find room in its own share."""
        self.again = False
        self.bounded = Bounds(cluster) if cluster.overtaking is not None else None
        """Who holds up others since it was overtaken often enough."""
        self.kinds = cluster.kinds
        self.ahead = HeadOfLine(cluster, now, GUARANTEED)
        """The queues of this walk with a blocked job."""
        self.anywhere = Filter(cluster, ())
        self.left_out: set[Shape] = set()
        """Shapes of which the first that was not due in this walk was seen to."""
        self.stage = Stage.REST
        """Whose turn it is, where queues have guarantees or soft limits."""

    def serve(self) -> Proposals:
        return self._staged() if self.cluster.queues.any else self._serve()

    def _staged(self) -> Proposals:
        for stage in stages(self.cluster):
            self.stage = stage
            if stage is Stage.WITHIN:
                yield from self._walks(GUARANTEED)
            else:
                yield from self._serve()

    def _serve(self) -> Proposals:
        reopened = True
        while reopened:
            self.held_up.clear()
            reopened = False
            walk = self._walks if self.turn else self._walk
            yield from walk(GUARANTEED)
            if self.others:
                for decision in walk(OPPORTUNISTIC):
                    yield decision
                    # Whom a borrower held up in its tenant's own share may go on now.
                    reopened = reopened or self._tenant_of(decision) in self.held_up

    def _tenant_of(self, decision: Decision) -> str:
        if not isinstance(decision, Place):
            return ""
        gang = self.cluster.gangs.get(decision.placement.job)
        return gang.tenant if gang else ""

    def _walks(self, entitlement: Entitlement) -> Proposals:
        """Walk anew when one job's turn freed more than it needs.

        Who was left out before may fit there, and come before those who are next.
        """
        self.again = True
        while self.again:
            self.again = False
            yield from self._walk(entitlement)

    def _walk(  # noqa: C901 - one branch for each thing that may come of a job
        self, entitlement: Entitlement
    ) -> Proposals:
        cluster = self.cluster
        if entitlement is OPPORTUNISTIC and self._nothing_fits(entitlement):
            return
        self.ahead = HeadOfLine(cluster, self.now, entitlement)
        self.left_out = set()
        skip = self._skippable(entitlement)
        leap: dict[Shape, Key] = {}
        for waiting in self._in_order(skip, leap):
            shape = waiting.shape
            kind = shape if self.kinds is None else self.kinds.of(shape)
            if self._passed_over(waiting, kind, skip):
                continue
            asking = narrowed_to_caps(cluster, waiting) if self.capped else waiting
            due = self._due(asking.shape)
            if cluster.queues.any and self._stands_aside(waiting, skip):
                continue
            asking = narrowed_to_lent(cluster, asking, due) if self.capped else asking
            if due is not entitlement and not (due is None and self._may_displace(entitlement)):
                yield from self._not_due(waiting, asking, kind, due, entitlement, skip)
            elif (where := self._allowed(waiting, asking, kind, skip, leap)) is None:
                continue
            elif (decision := self._decision(asking, kind, due, entitlement, where)) is None:
                if due is not None and where.by_type:
                    self._crowded_out(waiting, skip, leap)
                elif due is None or not self._note_blocked(waiting, kind, entitlement):
                    skip.add(kind)
                yield from self._reclaim(asking)
            else:
                at = cluster.pending.key(waiting.id)
                decision = self._at_its_size(decision, shape)
                cluster.fence(NOWHERE)
                yield decision
                yield from join(cluster, waiting.id, self.now)
                if waiting.id in cluster.pending and waiting.id not in cluster.reserved:
                    skip.add(shape)  # It was refused.
                elif self._ends_with(waiting, at, decision, entitlement):
                    return
        cluster.fence(NOWHERE)

    def _unfenced(self, decisions: Proposals, shape: Shape) -> Proposals:
        """Hand on what was found behind the fence of a job, each with the fence taken down."""
        cluster = self.cluster
        for decision in decisions:
            cluster.fence(NOWHERE)
            yield decision
            if cluster.windows.all:
                cluster.fence(cluster.windows.shut_to(shape, self.now))

    def _due(self, shape: Shape) -> Entitlement | None:
        """Return on what grounds a job may have a place, on the nodes that windows leave it."""
        cluster = self.cluster
        if cluster.windows.all:
            cluster.fence(cluster.windows.shut_to(shape, self.now))
        return due_of(cluster, shape)

    def _stands_aside(
        self,
        waiting: Standing,
        skip: set[Shape],
    ) -> bool:
        """Whether a job's queue leaves the room to others now."""
        cluster, shape = self.cluster, waiting.shape
        if not cluster.queues.chain(shape.tenant, shape.queue):
            if self.stage is Stage.REST:
                return False
            skip.add(shape)
            return True
        if aside(cluster, shape, self.stage):
            # In its queue it holds its place: nobody passes who would not otherwise.
            if self.ahead.block(waiting, shape):
                return True
        elif not barred(cluster, shape, self.stage):
            return False
        skip.add(shape)
        return True

    def _reclaim(self, waiting: Standing) -> Proposals:
        """Let a job within its queue's guarantee have back what others of its tenant hold."""
        cluster = self.cluster
        if (
            self.stage is Stage.WITHIN
            and waiting.id in cluster.pending
            and waiting.id not in cluster.reserved
        ):
            yield from self._unfenced(self.places.reclaim(waiting), waiting.shape)

    def _in_order(self, skip: set[Shape], leap: dict[Shape, Key]) -> Iterator[Standing]:
        cluster = self.cluster
        if cluster.claimants is None:
            return cluster.pending.in_order(skip, leap)
        return in_fair_order(cluster.pending, cluster.claimants, skip, leap, self.now)

    def _at_its_size(
        self,
        decision: Decision,
        shape: Shape,
    ) -> Decision:
        """Let a gang that may be larger have what fits now, unless it goes before others."""
        passes = self.ahead.of(shape) is not None
        if not shape.most or passes or not isinstance(decision, Place):
            return decision
        return Place(as_large(self.cluster, shape, decision.placement))

    def _allowed(
        self,
        waiting: Standing,
        asking: Standing,
        kind: Shape,
        skip: set[Shape],
        leap: dict[Shape, Key],
    ) -> Filter | None:
        """Return where a job may start; None if it waits for one before it in its queue."""
        ahead = self.ahead.ahead_of(waiting, kind)
        if ahead is None:
            return self.anywhere
        room = not self._too_large(waiting.shape)
        where = ahead.may_start(asking) if room else None
        if where is None:
            self._go_on(ahead.turned_down(asking, room=room), waiting.shape, skip, leap)
        return where

    def _crowded_out(self, waiting: Standing, skip: set[Shape], leap: dict[Shape, Key]) -> None:
        """Go on from a job that has no place beside those before it: a shorter one may."""
        ahead = self.ahead.of(waiting.shape)
        assert ahead is not None, "it was told on which types it may start"
        self._go_on(ahead.turned_down(waiting, room=True), waiting.shape, skip, leap)

    def _go_on(
        self, following: Key | Next, shape: Shape, skip: set[Shape], leap: dict[Shape, Key]
    ) -> None:
        """Go on with a job of a shape, behind one that may not start."""
        if following is Next.NONE:
            skip.add(shape)
        elif following is not Next.IN_ORDER:
            leap[shape] = following

    def _decision(
        self,
        asking: Standing,
        kind: Shape,
        due: Entitlement | None,
        walk: Entitlement,
        where: Filter,
    ) -> Decision | None:
        """Find a place for a job, unless it is known that there is none."""
        if self._known_blocked(kind, walk, self.cluster.pending.key(asking.id)):
            return None
        found = self.places.find(where.narrowed(asking), due)
        match found:
            case Place(placement):
                slots = placement.slots
            case Evict(promise):
                slots = promise.slots
            case _:
                return found
        return found if where.admits(slots) else None

    def _ends_with(
        self,
        waiting: Standing,
        at: Key,
        decision: Decision,
        entitlement: Entitlement,
    ) -> bool:
        """Take note that a job that was `at` got a place; tell whether the walk is over."""
        self.ahead.started(waiting, at)
        if self.turn and self._frees_more(waiting, decision):
            # Who was known to be blocked may fit beside it.
            self.cluster.memos.blocked.clear()
            self.again = True
        return self.again or self._nothing_fits(entitlement)

    def _passed_over(self, waiting: Standing, kind: Shape, skip: set[Shape]) -> bool:
        """Whether a job needs no look now, and holds up nobody.

        It has a promise, its shape is too large, its user has all one user may have, or one
        that was overtaken often enough is before it.
        """
        cluster = self.cluster
        if (self.capped and capped_out(cluster, waiting.shape)) or (
            cluster.orders.all_skip
            and not cluster.windows.all
            and self._too_large(waiting.shape)
        ):
            skip.add(kind)
            return True
        if self.bounded is not None and self.bounded.holds_up(waiting):
            skip.add(waiting.shape)
            return True
        return waiting.id in cluster.reserved

    def _nothing_fits(self, entitlement: Entitlement) -> bool:
        """Whether it is plain that nobody makes room and too few devices are free for all."""
        cluster = self.cluster
        if self.turn or (entitlement is GUARANTEED and not cluster.is_settled()):
            return False
        return cluster.pending.all_larger(cluster.ledger.whole_free)

    def _too_large(self, shape: Shape) -> bool:
        """Whether too few devices are free in all, and nobody can be made to leave."""
        cluster = self.cluster
        return (
            shape.devices > cluster.ledger.whole_free and not self.turn and cluster.is_settled()
        )

    def _frees_more(self, waiting: Standing, decision: Decision) -> bool:
        """Whether those who are told to go hold more than the job that takes a turn."""
        if not isinstance(decision, Evict):
            return False
        freed = sum(gang.held().gpu_milli for gang in self.places.send(decision.evict))
        return freed > waiting.gpu_milli

    def _may_displace(self, entitlement: Entitlement) -> bool:
        """Whether who has no right to more may take a place of its own tenant's now."""
        return self.turn and entitlement is OPPORTUNISTIC

    def _skippable(self, entitlement: Entitlement) -> set[Shape]:
        """Return the shapes that cannot start, and that nobody else has to queue behind.

        They are known to be blocked, or the devices free in all are too few and nobody
        could be made to leave.
        """
        cluster = self.cluster
        if not cluster.orders.any_skip:
            return set()
        free = cluster.ledger.whole_free
        settled = cluster.is_settled()
        worst = self.places.worst() if self.turn else None
        known = self._known_blocked
        return {
            shape
            for shape, head in cluster.pending.heads()
            if (
                (settled and shape.devices > free and (worst is None or head >= worst))
                or known(shape, entitlement, head)
            )
            and (cluster.orders.all_skip or cluster.orders.of(shape) is QueueOrder.SKIP)
        }

    def _known_blocked(self, shape: Shape, entitlement: Entitlement, head: Key) -> bool:
        """Whether nothing has changed for this shape since it did not fit.

        At a turn a job that ranks better may displace more; and where ranks get worse by
        the clock, everybody may.
        """
        seen = self.cluster.memos.blocked.get((shape, entitlement))
        if seen is None or seen[0] != self.cluster.ledger.version:
            return False
        return not self.turn or (self.stable and head >= seen[1])

    def _note_blocked(
        self,
        waiting: Standing,
        kind: Shape,
        entitlement: Entitlement,
    ) -> bool:
        """Note a job that has no place; return whether others of its shape matter even so."""
        key = self.cluster.pending.key(waiting.id)
        version = self.cluster.ledger.version
        remember(self.cluster.memos.blocked, (kind, entitlement), (version, key))
        return self._hold_up(waiting, kind)

    def _hold_up(self, waiting: Standing, kind: Shape) -> bool:
        """Let a job that cannot start hold up those behind it: alone, or as one of its kind.

        One that could never start, as the configuration is now, holds up nobody.
        """
        if not guarantee_of(self.cluster).ever_starts(waiting.shape):
            return False
        return self.ahead.block(waiting, kind)

    def _not_due(
        self,
        waiting: Standing,
        asking: Standing,
        kind: Shape,
        due: Entitlement | None,
        entitlement: Entitlement,
        skip: set[Shape],
    ) -> Proposals:
        """See to a job that is not due in this walk, but may reclaim what its queue is owed."""
        behind = self.ahead.of(waiting.shape) is not None
        if not (yield from self._leave_out(waiting, kind, due, entitlement)):
            # Whether it may make others give way is a matter of its urgency.
            skip.add(waiting.shape if self.cluster.outranking else kind)
        if not behind:
            yield from self._reclaim(asking)

    def _leave_out(
        self,
        waiting: Standing,
        kind: Shape,
        due: Entitlement | None,
        entitlement: Entitlement,
    ) -> Generator[Decision, None, bool]:
        """See to a job that is not due in this walk; return whether others like it matter.

        If its tenant's share has no room for it now, then, as on a cluster of the tenant's
        own, it makes less urgent gangs go, or holds up those behind it; unless even the
        whole share were too little.
        """
        self.others = self.others or due is OPPORTUNISTIC or self.turn
        if entitlement is not GUARANTEED:
            return False
        cluster, shape = self.cluster, waiting.shape
        order = cluster.orders.of(shape)
        first = cluster.outranking and shape not in self.left_out
        self.left_out.add(shape)
        if first and not (
            order is QueueOrder.STRICT and self.ahead.ahead_of(waiting, kind) is not None
        ):
            # What others gave up for a job behind one that is blocked would help nobody.
            asking = narrowed_to_caps(cluster, waiting)
            asking = narrowed_to_lent(cluster, asking, due)
            yield from self._unfenced(self.places.outrank(asking), shape)
        passes = cluster.orders.all_skip or order is QueueOrder.SKIP
        if passes or not guarantee_of(cluster).could_fit(shape):
            return False
        self.held_up.add(shape.tenant)
        return self._hold_up(waiting, kind)
