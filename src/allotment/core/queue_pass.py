"""The queue pass: every waiting job in order, first on guaranteed quota, then as a borrower.

A job that passes all gates (`gates.py`) gets a place. One that does not holds up those behind
it as its queue has it; one that has the right makes others go.

Where the pass goes by equivalence classes, a blocked class of strict queues is met once,
not in each of its queues. So whether it is ahead of a job is asked when that job is met: a
job of the class, without a reserved place, must be before it in its queue. A class holds up
others from where in job order it was blocked to where it lost its right to a place.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from allotment.core.backfill import discipline_of
from allotment.core.caps import capped_out
from allotment.core.cluster import Cluster
from allotment.core.discipline import Next, QueueDiscipline, Strict
from allotment.core.entitle import resume_entitlement, waited_for
from allotment.core.equivalence import STRICT
from allotment.core.fair_order import in_fair_order
from allotment.core.gang import Gang, Standing
from allotment.core.gates import (
    ORDER,
    RESERVED,
    RIGHT,
    ROOM,
    TIER,
    WITHIN,
    Gate,
    Gates,
    aside,
    stages,
)
from allotment.core.memos import remember
from allotment.core.molding import as_large
from allotment.core.plan import Decision, Place, Proposals
from allotment.core.policies import Rescheduler
from allotment.core.rank import Key
from allotment.core.request import Shape
from allotment.model.ids import JobId
from allotment.model.ledger import GUARANTEED, OPPORTUNISTIC, Entitlement
from allotment.model.quantity import Instant
from allotment.model.tenancy import QueueOrder


class HeadOfLine:
    """The blocked queues of one walk."""

    def __init__(self, cluster: Cluster, now: Instant, entitlement: Entitlement) -> None:
        """`entitlement` is that by which jobs get a place in this walk."""
        self._cluster, self._now, self._entitlement = cluster, now, entitlement
        self._queues: dict[tuple[str, str], QueueDiscipline] = {}
        self._classes: dict[Shape, Key] = {}
        """Blocked classes of strict queues, and from where in job order on."""
        self._until: dict[Shape, Key] = {}
        """Up to where, if they are entitled no longer."""
        self.any = False
        """Whether anything was blocked that may hold up others."""

    def block(self, job: Standing, eclass: Shape) -> bool:
        """Note a job that cannot start; return whether others like it are noted as well."""
        if eclass.queue == STRICT:
            # It may be met again: each queue of it that might preempt others is.
            self._classes.setdefault(eclass, self._cluster.pending.key(job.id))
            self.any = True
            return False
        shape = job.shape
        queue = (shape.tenant, shape.queue)
        found = self._queues.get(queue)
        if found is None:
            if self._cluster.orders.of(shape) is QueueOrder.SKIP:
                return False
            found = discipline_of(self._cluster, job, self._now, self._entitlement)
            self._queues[queue] = found
            self.any = True
        return found.blocked(job)

    def of(self, shape: Shape) -> QueueDiscipline | None:
        """Return what holds up the jobs of a queue that were met; None where nothing does."""
        return self._queues.get((shape.tenant, shape.queue))

    def ahead_of(self, job: Standing, eclass: Shape) -> QueueDiscipline | None:
        """Return what holds up a job that is met now; None if nothing does. O(its shapes)."""
        found = self.of(job.shape)
        if found is None and eclass.queue == STRICT and self._class_before(job):
            found = self._queues[job.shape.tenant, job.shape.queue] = Strict()
        return found

    def started(self, job: Standing, at: Key) -> None:
        """Note that a job that was `at` got a place: others may be entitled no longer."""
        ahead = self.of(job.shape)
        if ahead is not None:
            ahead.started(job)
        for eclass in self._classes:
            if eclass.tenant == job.shape.tenant and eclass not in self._until:
                waits = waited_for(self._cluster, eclass, self._entitlement)
                if not waits or capped_out(self._cluster, eclass):
                    self._until[eclass] = at

    def _class_before(self, job: Standing) -> bool:
        """Whether a job of a blocked class is before this one in its queue."""
        cluster = self._cluster
        pending, classes = cluster.pending, cluster.classes
        if not self._classes or classes is None:
            return False
        place = pending.key(job.id)
        for shape in pending.shapes_beside(job):
            other = classes.of(shape)
            begin = self._classes.get(other)
            if begin is None:
                continue
            first = pending.first_of(shape, cluster.reserved, begin)
            end = min(place, self._until.get(other, place))
            if first is not None and first < end:
                return True
        return False


class Placer(Protocol):
    """What finds places for waiting jobs."""

    rescheduler: Rescheduler | None
    """What displaces running gangs now; None if nothing does."""

    def find(self, waiting: Standing, entitled: Entitlement | None) -> Decision | None:
        """Find a place for a job: an empty one, or one that others must leave first."""
        ...

    def preempt_own(self, waiting: Standing) -> Proposals:
        """Preempt less urgent gangs of its tenant for a job, where it has that right."""
        ...

    def reclaim(self, waiting: Standing) -> Proposals:
        """Let a job within its queue's guarantee have back what sibling queues were lent."""
        ...


class QueuePass(Gates):
    """Walks all waiting jobs once for guaranteed places, again for what may be borrowed.

    All jobs of a shape have the same entitlement, and only its loss can come during a walk.
    So a shape is left out from the first of its jobs on that is not entitled or does not fit.
    """

    entitlement: Entitlement
    """By which entitlement this walk gives places."""
    ahead: HeadOfLine
    """The queues of this walk with a blocked job."""
    left_out: set[Shape]
    """Shapes of which the first that was not entitled in this walk was seen to."""
    skip: set[Shape]
    """Shapes, or classes of them, that are not looked at again in this walk."""
    leap: dict[Shape, Key]
    """Shapes of which the next to be looked at is this one."""
    eclass: Shape
    """The class of the job that is at the gates."""

    def __init__(
        self,
        cluster: Cluster,
        now: Instant,
        places: Placer,
        resume: Callable[[Gang], Decision | None],
    ) -> None:
        """`places` finds a place for each job that may have one; `resume` leads gangs back."""
        super().__init__(cluster, now, places.rescheduler)
        self.places = places
        self.resume = resume
        self.others = False
        self.held_up: set[str] = set()
        """Tenants with lines that wait for their first job to find room in its own share."""
        self.classes = cluster.classes
        self._sized = cluster.orders.all_skip and not cluster.reservations.all

    def serve(self) -> Proposals:
        return self._staged() if self.cluster.queues.any else self._serve()

    def _staged(self) -> Proposals:
        for stage in stages(self.cluster):
            self.stage = stage
            if stage is WITHIN:
                yield from self._walk(GUARANTEED)
            else:
                yield from self._serve()

    def _serve(self) -> Proposals:
        reopened = True
        while reopened:
            self.held_up.clear()
            reopened = False
            yield from self._walk(GUARANTEED)
            if self.others and not self._nothing_fits(OPPORTUNISTIC):
                for decision in self._walk(OPPORTUNISTIC):
                    yield decision
                    # What a borrower held up in its tenant's own share may start now.
                    reopened = reopened or self._tenant_of(decision) in self.held_up

    def _tenant_of(self, decision: Decision) -> str:
        if not isinstance(decision, Place):
            return ""
        gang = self.cluster.gangs.get(decision.placement.job)
        return gang.tenant if gang else ""

    def _walk(self, entitlement: Entitlement) -> Proposals:
        """Lead all jobs in order through the gates; yield a place for each that passes them."""
        self._begin(entitlement)
        masked = self.cluster.reservations.all
        first_shut = self._first_shut_on_its_nodes if masked else self.first_shut
        for waiting in self._with_suspended():
            if not isinstance(waiting, Standing):
                yield from self._lead_back(waiting)
                continue
            shape = waiting.shape
            self.eclass = shape if self.classes is None else self.classes.of(shape)
            if self._sized and self.is_too_large(waiting):
                self.skip.add(self.eclass)
                continue
            gate = first_shut(waiting)
            if gate is not None:
                yield from self._stopped(gate, waiting)
                continue
            at = self.cluster.pending.key(waiting.id)
            yield self.decision
            if waiting.id in self.cluster.pending and not self.is_reserved(waiting):
                self.skip.add(shape)  # It was refused.
                continue
            if self.ahead.any:
                self.ahead.started(waiting, at)
            if self._nothing_fits(entitlement):
                return

    def _begin(self, entitlement: Entitlement) -> None:
        """Forget what was found out in the walk before."""
        self.entitlement = entitlement
        self.ahead = HeadOfLine(self.cluster, self.now, entitlement)
        self.left_out = set()
        self.leap = {}
        self.skip = self._skippable(entitlement)

    def _first_shut_on_its_nodes(self, waiting: Standing) -> Gate | None:
        """Return the first gate that is shut, on the nodes that reservations leave a job."""
        with self.cluster.fenced(waiting.shape, self.now):
            return self.first_shut(waiting)

    def _masked(self, decisions: Proposals, shape: Shape) -> Proposals:
        """Look for each decision on the nodes that reservations leave a job, and hand it on."""
        while True:
            with self.cluster.fenced(shape, self.now):
                decision = next(decisions, None)
            if decision is None:
                return
            yield decision

    def _lead_back(self, gang: Gang) -> Proposals:
        """Let a suspended gang resume where others would start, if necessary in its turn."""
        right = resume_entitlement(self.cluster, gang, self.now)
        self.others = self.others or right is OPPORTUNISTIC or self.rescheduler is not None
        displaces = right is None and self._may_displace(self.entitlement)
        if right is not self.entitlement and not displaces:
            return
        decision = self.resume(gang)
        if decision is not None:
            yield decision

    def _stopped(self, gate: Gate, waiting: Standing) -> Iterable[Decision]:
        """See to a job that a gate keeps from starting, and to those behind it."""
        shape = waiting.shape
        if gate is RESERVED or gate is ORDER:
            return ()
        if self.is_bypassed(waiting):
            # No gang is preempted for it, and it holds up nothing: what was overtaken does.
            self.skip.add(shape)
        elif gate is TIER:
            self._lose_turn(waiting)
        elif gate is RIGHT:
            return self._lack_right(waiting)
        elif gate is ROOM:
            self._lack_room(waiting)
            return self._reclaim(self.asking)
        else:
            self.skip.add(self.eclass)
        return ()

    # ── the gates ───────────────────────────────────────────────────────────────────────

    def gives_places_by(self, entitled: Entitlement | None) -> bool:
        return entitled is self.entitlement or (
            entitled is None and self._may_displace(self.entitlement)
        )

    def ahead_of(self, job: Standing) -> QueueDiscipline | None:
        return self.ahead.ahead_of(job, self.eclass)

    def is_held_up(self, job: Standing) -> bool:
        if not self.ahead.any:
            self.where = None
            return False
        shut = super().is_held_up(job)
        if shut:
            ahead, room = self.ahead.of(job.shape), not self.is_too_large(job)
            assert ahead is not None, "it holds up the job"
            self._go_on(ahead.turned_down(self.asking, room=room), job.shape)
        return shut

    def place_for(self, asking: Standing) -> Decision | None:
        if self._known_blocked(self.eclass, asking.id):
            return None
        found = self.places.find(asking, self.entitled)
        return self._at_its_size(found, asking.shape) if asking.shape.most else found

    # ── what is stopped ─────────────────────────────────────────────────────────────────

    def _lose_turn(self, waiting: Standing) -> None:
        """Pass over a job whose queue leaves the room to others now."""
        cluster, shape = self.cluster, waiting.shape
        # In its queue it holds its place: nothing passes that would not otherwise.
        stays = cluster.queues.chain(shape.tenant, shape.queue) and aside(
            cluster, shape, self.stage
        )
        if not (stays and self.ahead.block(waiting, shape)):
            self.skip.add(shape)

    def _lack_room(self, waiting: Standing) -> None:
        """Note a job that has no place: it may hold up those behind it."""
        if self.entitled is not None and self.where is not None and self.where.by_type:
            # Beside those before it; a shorter one may have a place.
            ahead = self.ahead.of(waiting.shape)
            assert ahead is not None, "it was told on which types it may start"
            self._go_on(ahead.turned_down(waiting, room=True), waiting.shape)
        elif self.entitled is None or not self._note_blocked(waiting):
            self.skip.add(self.eclass)

    def _reclaim(self, waiting: Standing) -> Iterable[Decision]:
        """Let a job within its queue's guarantee have back what others of its tenant hold."""
        if self.stage is not WITHIN or self.is_reserved(waiting):
            return ()
        if waiting.id not in self.cluster.pending:
            return ()
        return self._masked(self.places.reclaim(waiting), waiting.shape)

    def _with_suspended(self) -> Iterator[Standing | Gang]:
        """Go through all jobs in order, and suspended gangs, each before its tenant's next."""
        rescheduler, resuming = self.cluster.rescheduler, self.cluster.placed.resuming
        back = list(rescheduler.suspended(self.now)) if rescheduler and resuming else []
        return self._between(back) if back else self._in_order()

    def _between(self, back: list[tuple[Key, Gang]]) -> Iterator[Standing | Gang]:
        for waiting in self._in_order():
            if back:
                at, tenant = self.cluster.pending.key(waiting.id), waiting.shape.tenant
                first = [each for each in back if each[0] < at and each[1].tenant == tenant]
                for each in first:
                    back.remove(each)
                    yield each[1]
            yield waiting
        for _, gang in back:
            yield gang

    def _in_order(self) -> Iterator[Standing]:
        cluster, skip, leap = self.cluster, self.skip, self.leap
        if cluster.claimants is None:
            return cluster.pending.in_order(skip, leap)
        return in_fair_order(cluster.pending, cluster.claimants, skip, leap, self.now)

    def _at_its_size(self, decision: Decision | None, shape: Shape) -> Decision | None:
        """Let a gang that may be larger have what fits now, unless it goes before others."""
        if not isinstance(decision, Place) or self.ahead.of(shape):
            return decision
        return Place(as_large(self.cluster, shape, decision.placement))

    def _go_on(self, following: Key | Next, shape: Shape) -> None:
        """Continue with a job of a shape, behind one that may not start."""
        if following is Next.NONE:
            self.skip.add(shape)
        elif following is not Next.IN_ORDER:
            self.leap[shape] = following

    def _nothing_fits(self, entitlement: Entitlement) -> bool:
        """Whether it is plain that nothing makes room and too few devices are free for all."""
        cluster = self.cluster
        if self.rescheduler is not None or (cluster.rescheduler and cluster.placed.resuming):
            return False
        if entitlement is GUARANTEED and not cluster.is_settled():
            return False
        return cluster.pending.all_larger(cluster.ledger.whole_free)

    def _may_displace(self, entitlement: Entitlement) -> bool:
        """Whether a job that has no right to more may take a place of its own tenant's now."""
        return self.rescheduler is not None and entitlement is OPPORTUNISTIC

    def _skippable(self, entitlement: Entitlement) -> set[Shape]:
        """Return the shapes that cannot start, and that no other has to queue behind.

        They are known to be blocked, or the devices free in all are too few and no job
        could be made to leave.
        """
        cluster = self.cluster
        if not cluster.orders.any_skip:
            return set()
        free, settled = cluster.ledger.whole_free, cluster.is_settled()
        blocked = cluster.memos.blocked.at(cluster.ledger.version, entitlement)
        head = cluster.pending.head
        reaches = self.rescheduler.reach(self.now) if self.rescheduler is not None else None
        found = {
            shape
            for shape in cluster.pending.shapes()
            if (settled and shape.devices > free and not (reaches and reaches(head(shape))))
            or (shape in blocked and (reaches is None or head(shape) >= blocked[shape]))
        }
        if cluster.orders.all_skip:
            return found
        return {shape for shape in found if cluster.orders.of(shape) is QueueOrder.SKIP}

    def _known_blocked(self, shape: Shape, job: JobId) -> bool:
        """Whether nothing has changed for this shape since it did not fit.

        A job that ranks better may displace more.
        """
        cluster = self.cluster
        seen = cluster.memos.blocked.at(cluster.ledger.version, self.entitlement).get(shape)
        if seen is None or self.rescheduler is None:
            return seen is not None
        return cluster.pending.key(job) >= seen

    def _note_blocked(self, waiting: Standing) -> bool:
        """Note a job that has no place; return whether others of its shape matter even so."""
        cluster = self.cluster
        blocked = cluster.memos.blocked.at(cluster.ledger.version, self.entitlement)
        remember(blocked, self.eclass, cluster.pending.key(waiting.id))
        return self._hold_up(waiting)

    def _hold_up(self, waiting: Standing) -> bool:
        """Let a job that cannot start hold up those behind it: alone, or as one of its class.

        One that could never start, as the configuration is now, holds up none.
        """
        if not self.cluster.guarantee.ever_starts(waiting.shape):
            return False
        return self.ahead.block(waiting, self.eclass)

    def _lack_right(self, waiting: Standing) -> Iterable[Decision]:
        """See to a job not entitled in this walk that may reclaim its queue's guarantee.

        As on a cluster of the tenant's own it makes less urgent gangs go, or holds up those
        behind it; unless even the whole share were too little.
        """
        asking, behind = self.asking, self.ahead.of(waiting.shape) is not None
        self.others |= self.entitled is OPPORTUNISTIC or self.rescheduler is not None
        if self.cluster.preempts and self.entitlement is GUARANTEED:
            return self._urge(waiting, behind=behind)
        if self.entitlement is OPPORTUNISTIC or not self._matters_behind(waiting):
            # Whether it may preempt others depends on its urgency.
            self.skip.add(waiting.shape if self.cluster.preempts else self.eclass)
        return () if behind else self._reclaim(asking)

    def _urge(self, waiting: Standing, *, behind: bool) -> Proposals:
        """Let the first of its shape make less urgent gangs of its tenant go."""
        cluster, shape, asking = self.cluster, waiting.shape, self.asking
        strict = cluster.orders.of(shape) is QueueOrder.STRICT
        first = shape not in self.left_out
        self.left_out.add(shape)
        if first and not (strict and self.ahead.ahead_of(waiting, self.eclass) is not None):
            # What others gave up for a job behind one that is blocked would help none.
            if cluster.disruption is not None and not shape.opportunistic:
                cluster.disruption.look_again(waiting, cluster.gangs.values(), self.now)
            yield from self._masked(self.places.preempt_own(asking), shape)
        if not self._matters_behind(waiting):
            self.skip.add(shape)
        if not behind:
            yield from self._reclaim(asking)

    def _matters_behind(self, waiting: Standing) -> bool:
        """Let a job that its tenant has no room for hold up others; say if its like matter."""
        cluster, shape = self.cluster, waiting.shape
        passes = cluster.orders.of(shape) is QueueOrder.SKIP
        if passes or not cluster.guarantee.could_fit(shape):
            return False
        self.held_up.add(shape.tenant)
        return self._hold_up(waiting)
