"""Time slices: the gangs of a queue take turns on its devices, each for so long.

Rule: when a job of the queue waits and no place is free, gangs of the same queue that have
had their turn (as many slices as their weight) give way, those of the lowest priority first,
then whichever has run longest; no gang gives way to a less urgent job, and none without
need. A gang is suspended
where what it keeps (memory, that of devices too) leaves room for the other, and comes back to
its own devices; else it is sent away if it saved a checkpoint in this stint, and waits again;
else it is left alone. The first in line that could have its turn once others have had theirs
is not passed: what gives way by then is kept for it. Where a queue packs, two gangs may also
run at once (`packing.py`).

Source: Xiao et al., Gandiva, OSDI 2018, section 3.1 (suspend-resume, quantum of a minute).

Bad at: uneven numbers. Six suspended gangs on four devices stay where they began, so two
devices are shared by two gangs each and two by one; only what starts anew finds another place.
"""

from collections.abc import Callable, Sequence, Set

from msgspec.structs import replace

from allotment.core.cluster import Cluster
from allotment.core.entitle import entitlement_of, resume_entitlement
from allotment.core.gang import Gang, Standing
from allotment.core.plan import PreemptionPlan, Proposals
from allotment.core.preemption.eviction import evict
from allotment.core.preemption.room import preempt
from allotment.core.preemption.search import awaited, search, whole
from allotment.core.rank import Key
from allotment.core.slices import line_of, may_pause
from allotment.core.trial import Trial
from allotment.model.engines import Ability
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import GUARANTEED, Entitlement, Slot
from allotment.model.quantity import Instant
from allotment.policies.rescheduling.displacing import own_place
from allotment.policies.rescheduling.giving_up import idle_place
from allotment.policies.rescheduling.packing import may_pack, packing_lines, packings
from allotment.policies.rescheduling.stints import Line, Stints, may_restart, takes_whole

Places = frozenset[tuple[NodeId, int]]
"""Devices: nodes and indexes."""

NO_DEVICE = -1
EVERYWHERE = None
"""In place of devices: all of them."""


class InSlices:
    """The rescheduler of a cluster with queues that are sliced."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.order = Stints(cluster.slices, packing_lines(cluster.tenants.values()))
        self._ranked_at = Instant(0)
        self._kept: dict[Line, list[Places | None]] = {}
        """What is kept for the first jobs of queues, in the present pass."""

    # ── when ────────────────────────────────────────────────────────────────────────────

    def looks(self, now: Instant) -> bool:
        return self.order.any_over(now) or self._packs(now)

    def _packs(self, now: Instant) -> bool:
        """Whether a suspended gang may run beside the one that has its devices."""
        return may_pack(self.cluster, self.order.places, now)

    def next_look(self, now: Instant) -> Instant | None:
        waits = len(self.cluster.pending) or self.cluster.placed.resuming
        return self.order.next_end(now) if waits else None

    def rerank(self, now: Instant) -> bool:
        then, self._ranked_at = self._ranked_at, now
        return self.order.ended_between(then, now)

    # ── what ────────────────────────────────────────────────────────────────────────────

    def around(self, decisions: Proposals, now: Instant) -> Proposals:
        self._kept.clear()
        if self.looks(now):
            # A job that found no place may displace gangs that have saved since.
            self.cluster.memos.blocked.clear()
        yield from decisions
        yield from packings(self.cluster, self.order.places, now)

    def reach(self, now: Instant) -> Callable[[Key], bool]:
        some = self.order.any_over(now)
        return lambda _: some  # Any gang may preempt it.

    def deals(self, gang: Gang) -> bool:
        return line_of(gang.standing.shape) in self.cluster.slices

    def suspended(self, now: Instant) -> Sequence[tuple[Key, Gang]]:
        """Return those that may have their devices back now, at most; in job order."""
        busy = self._busy(now)
        found = [
            (_key(gang), gang)
            for gang in self.cluster.placed.resuming.values()
            if self.deals(gang)
            and gang.beside is None
            and (not takes_whole(gang) or busy.isdisjoint(_devices(gang.slots)))
        ]
        return sorted(found, key=lambda pair: pair[0])

    def _busy(self, now: Instant) -> set[tuple[NodeId, int]]:
        """Return the devices of gangs that no gang may preempt now. O(gangs)."""
        over = set(self.order.over(now))
        return {
            (slot.node, index)
            for gang in self.cluster.gangs.values()
            if not gang.suspended and gang.id not in over
            for slot in gang.slots
            for index in slot.devices
        }

    def plan(self, job: Standing, now: Instant) -> PreemptionPlan | None:
        line = line_of(job.shape)
        if line not in self.cluster.slices:
            return None
        suspended = self.cluster.gangs.get(job.id)
        free = [
            gang
            for gang in self._over(line, job, now)
            if not self._is_kept(line, gang)
            and (suspended is None or not _apart(suspended, gang))
        ]
        if not free:
            return None  # No gang that may be preempted is of use to it, now or later.
        if suspended is not None:
            plan = self._way_back(suspended, free, now)
        else:
            plan = self._way_in(job, free, now)
        if plan is None and self._could(job, suspended, now):
            devices = _devices(suspended.slots) if suspended is not None else EVERYWHERE
            self._kept.setdefault(line, []).append(devices)
        return plan

    def _over(self, line: Line, job: Standing, now: Instant) -> list[Gang]:
        """Return gangs of a queue that had their slice and may go for a job, worst first."""
        cluster = self.cluster
        going = awaited(cluster)
        found = [
            gang
            for each in self.order.over(now)
            if (gang := cluster.gangs[each]).priority <= job.priority
            and line_of(gang.standing.shape) == line
            and not (gang.leaving or gang.shrinking or each in going)
        ]
        return sorted(found, key=lambda gang: gang.priority)

    def _is_kept(self, line: Line, gang: Gang) -> bool:
        kept = self._kept.get(line)
        if not kept:
            return False
        own = _devices(gang.slots)
        return any(each is None or not own.isdisjoint(each) for each in kept)

    def _way_in(
        self, waiting: Standing, over: list[Gang], now: Instant
    ) -> PreemptionPlan | None:
        """Find a place for a waiting job: by suspension, or else from checkpoints."""
        pausing = [gang for gang in over if self._can_pause(gang)]
        saved = [gang for gang in over if may_restart(gang, now)]
        if self.cluster.cells is not None:
            plan = self._in_cells(waiting, pausing, now)
            return plan or self._in_cells(waiting, saved, now)
        plan = self._room(waiting, pausing, {gang.id for gang in pausing})
        return plan or self._room(waiting, saved)

    def _room(
        self, waiting: Standing, gangs: list[Gang], pausing: Set[JobId] = frozenset()
    ) -> PreemptionPlan | None:
        """Find a place for a waiting job that some gangs leave."""
        cluster, shape = self.cluster, waiting.shape
        return _left(
            cluster,
            gangs,
            pausing,
            lambda: entitlement_of(cluster, shape),
            lambda _, entitled: idle_place(cluster, shape, entitled),
        )

    def _in_cells(
        self, waiting: Standing, gangs: list[Gang], now: Instant
    ) -> PreemptionPlan | None:
        """Find a place in cells that some gangs leave; all that are sent away have saved."""
        plan = preempt(self.cluster, waiting, gangs, now) if gangs else None
        if plan is None:
            return None
        plan = replace(plan, in_turn=True)
        told = evict(self.cluster, waiting.id, waiting.shape.pin, plan, now)
        safe = all(may_restart(self.cluster.gangs[job], now) for job in told.evict)
        return plan if safe else None

    def _way_back(self, gang: Gang, over: list[Gang], now: Instant) -> PreemptionPlan | None:
        """Find which of those on the devices of a suspended gang leave them."""
        cluster = self.cluster
        pausing = {each.id for each in over if self._can_pause(each)}
        gangs = [each for each in over if each.id in pausing or may_restart(each, now)]
        return _left(
            cluster,
            gangs,
            pausing,
            lambda: resume_entitlement(cluster, gang, now),
            lambda trial, entitled: own_place(trial, gang, entitled),
        )

    def _could(self, job: Standing, suspended: Gang | None, now: Instant) -> bool:
        """Whether a job gets its turn once all gangs of its queue have had theirs."""
        cluster, line = self.cluster, line_of(job.shape)
        with Trial(cluster) as trial:
            for gang in list(cluster.gangs.values()):
                if (
                    gang.priority <= job.priority
                    and line_of(gang.standing.shape) == line
                    and not gang.suspended
                    and not gang.leaving
                    and (suspended is None or not _apart(suspended, gang))
                ):
                    _leaves(trial, gang, pauses=self._can_pause(gang))
            if suspended is not None:
                right = resume_entitlement(cluster, suspended, now)
                return own_place(trial, suspended, right) is not None
            return (
                idle_place(cluster, job.shape, entitlement_of(cluster, job.shape)) is not None
            )

    def _can_pause(self, gang: Gang) -> bool:
        return may_pause(gang) and self.cluster.ledger.can(Ability.SUSPENDS, gang.slots)


def in_slices(cluster: Cluster) -> InSlices | None:
    """Make the rescheduler of a cluster, if any of its queues is sliced."""
    return InSlices(cluster) if cluster.slices else None


def _left(
    cluster: Cluster,
    gangs: Sequence[Gang],
    pausing: Set[JobId],
    entitlement: Callable[[], Entitlement | None],
    place: Callable[[Trial, Entitlement | None], PreemptionPlan | None],
) -> PreemptionPlan | None:
    """Find which of some gangs leave a place, first ones first. O(gangs · place).

    What its tenant is guaranteed stays for one that would borrow: then only borrowers leave.
    """
    owed = [gang for gang in gangs if gang.entitlement is GUARANTEED]

    def find(some: Sequence[Gang]) -> PreemptionPlan | None:
        with Trial(cluster) as trial:

            def fits() -> PreemptionPlan | None:
                entitled = entitlement()
                # They leave in order: if any that is guaranteed its place left, the first did.
                if owed and entitled is not GUARANTEED and owed[0].id not in cluster.gangs:
                    return None
                return place(trial, entitled)

            def stands(plan: PreemptionPlan) -> bool:
                return entitlement() is plan.entitlement

            plan = search(trial, whole(some), fits, stands, pausing=pausing)
            if plan is None:
                return None
            victims = set(plan.evict)
            gone = [gang for gang in some if gang.id in victims]
            if gone != some[: len(gone)]:
                # More were gone when the place was found: look again beside those that stay.
                for gang in gone:
                    _leaves(trial, gang, pauses=gang.id in pausing)
                again = place(trial, plan.entitlement)
                plan = replace(again or plan, evict=plan.evict)
            return replace(plan, in_turn=True)

    plan = find(gangs)
    if plan is None and owed:
        plan = find([gang for gang in gangs if gang.entitlement is not GUARANTEED])
    return plan


def _leaves(trial: Trial, gang: Gang, *, pauses: bool) -> None:
    """Let a gang be gone, or suspended."""
    if pauses:
        trial.suspend(gang)
    else:
        trial.drop(gang.id)


def _apart(one: Gang, other: Gang) -> bool:
    """Whether two gangs have no device in common."""
    nodes = {slot.node for slot in one.slots}
    if not any(slot.node in nodes for slot in other.slots):
        return True
    return _devices(one.slots).isdisjoint(_devices(other.slots))


def _key(gang: Gang) -> Key:
    return ((-gang.priority, gang.suspended_at or gang.placed_at), gang.id)


def _devices(slots: Sequence[Slot]) -> Places:
    """Return the devices of a place; for a task without any its node stands in their place."""
    return frozenset(
        (slot.node, index) for slot in slots for index in (slot.devices or (NO_DEVICE,))
    )
