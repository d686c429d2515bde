"""Time slices: the gangs of a queue take turns on its devices, each for so long.

Rule: when a job of the queue waits and no place is free, gangs of the same queue that have
had their turn (as many slices as their weight) give way, those of the lowest priority first,
then whichever has run longest; no gang gives way to a less urgent job. A gang is suspended
where what it keeps (memory, that of devices too) leaves room for the other, and comes back to
its own devices; else it is sent away if it saved a checkpoint in this stint, and waits again;
else it is left alone. The first in line that could have its turn once others have had theirs
is not passed: what gives way by then is kept for it. Where a queue packs, two gangs may also
run at once (`packing.py`).

Source: Xiao et al., Gandiva, OSDI 2018, section 3.1 (suspend-resume, quantum of a minute).

Bad at: uneven numbers. Six suspended gangs on four devices stay where they began, so two
devices are shared by two gangs each and two by one; only what starts anew finds another place.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from allotment.core.cluster import Cluster
from allotment.core.entitle import entitlement_of, resume_entitlement
from allotment.core.gang import Gang, Standing
from allotment.core.plan import PreemptionPlan, Proposals
from allotment.core.preemption.eviction import evict
from allotment.core.preemption.room import preempt
from allotment.core.preemption.search import awaited
from allotment.core.rank import Key
from allotment.core.request import lease_part, needs_of
from allotment.core.slices import line_of, may_pause
from allotment.core.trial import Trial
from allotment.model.engines import Ability
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import GUARANTEED, Entitlement, Slot
from allotment.model.quantity import DEVICE, Instant, Resources
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
        """What is kept for those first in line, in the present pass."""

    # ── when ────────────────────────────────────────────────────────────────────────────

    def looks(self, now: Instant) -> bool:
        return self.order.any_over(now) or self._packs(now)

    def _packs(self, now: Instant) -> bool:
        """Whether a suspended gang may go on beside the one that has its devices."""
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
        return lambda _: some  # It may give way to any.

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
        """Return the devices of gangs that give way to none now. O(gangs)."""
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
            return None  # Nothing that gives way could be of use to it, now or later.
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
        plan = self._cleared(waiting, pausing, now, keeps=True)
        return plan or self._cleared(waiting, saved, now, keeps=False)

    def _cleared(
        self, waiting: Standing, gangs: list[Gang], now: Instant, *, keeps: bool
    ) -> PreemptionPlan | None:
        """Find a place that some gangs leave, first ones first; none goes in vain."""
        if not gangs:
            return None
        if self.cluster.cells is not None:
            plan = preempt(self.cluster, waiting, gangs, now)
            return self._harmless(waiting, plan, now) if plan is not None else None
        plan = _room(self.cluster, waiting, gangs, keeps=keeps)
        if plan is None or plan.entitlement is GUARANTEED:
            return plan
        # What its tenant is owed stays for one that would borrow.
        borrowers = [gang for gang in gangs if gang.entitlement is not GUARANTEED]
        plan = _room(self.cluster, waiting, borrowers, keeps=keeps)
        return plan if plan is None or plan.entitlement is not GUARANTEED else None

    def _harmless(
        self, waiting: Standing, plan: PreemptionPlan, now: Instant
    ) -> PreemptionPlan | None:
        """Return a plan if all that it sends away have saved."""
        plan = replace(plan, in_turn=True)
        told = evict(self.cluster, waiting.id, waiting.shape.pin, plan, now)
        safe = all(may_restart(self.cluster.gangs[job], now) for job in told.evict)
        return plan if safe else None

    def _way_back(self, gang: Gang, over: list[Gang], now: Instant) -> PreemptionPlan | None:
        """Find which of those on the devices of a suspended gang leave them."""
        cluster = self.cluster
        gangs = [each for each in over if self._can_pause(each) or may_restart(each, now)]
        leases = tuple(lease_part(need) for need in gang.needs)
        with Trial(cluster) as trial:

            def without(some: Sequence[Gang]) -> Entitlement | None:
                mark = trial.mark()
                for other in some:
                    trial.drop(other.id)
                entitled = resume_entitlement(cluster, gang, now)
                fits = entitled is not None and trial.fits(gang.slots, leases)
                trial.rollback(mark)
                owed = any(other.entitlement is GUARANTEED for other in some)
                return entitled if fits and (entitled is GUARANTEED or not owed) else None

            gone, entitled = gangs, without(gangs)
            if not gangs or entitled is None:
                return None
            for other in reversed(gangs[:-1]):
                fewer = [each for each in gone if each is not other]
                if without(fewer) is entitled:
                    gone = fewer
        quota = cluster.guarantee.quota_kept(gang) if entitled is GUARANTEED else ()
        evict = tuple(other.id for other in gone)
        return PreemptionPlan(gang.slots, leases, quota, entitled, evict, in_turn=True)

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
                    trial.drop(gang.id)
                    if self._can_pause(gang):
                        trial.hold(gang.slots, _keeps(gang))
            if suspended is not None:
                leases = tuple(lease_part(need) for need in suspended.needs)
                right = resume_entitlement(cluster, suspended, now)
                return right is not None and trial.fits(suspended.slots, leases)
            right = entitlement_of(cluster, job.shape)
            return right is not None and cluster.find(job.shape.requests) is not None

    def _can_pause(self, gang: Gang) -> bool:
        return may_pause(gang) and self.cluster.ledger.can(Ability.SUSPENDS, gang.slots)


def in_slices(cluster: Cluster) -> InSlices | None:
    """Make the rescheduler of a cluster, if any of its queues is sliced."""
    return InSlices(cluster) if cluster.slices else None


def _room(
    cluster: Cluster, waiting: Standing, gangs: list[Gang], *, keeps: bool
) -> PreemptionPlan | None:
    """Find a place once some gangs are gone, or suspended; O(gangs² · search) at worst."""
    requests = waiting.shape.requests
    needs = needs_of(requests)
    with Trial(cluster) as trial:

        def without(some: Sequence[Gang]) -> tuple[tuple[Slot, ...], Entitlement] | None:
            mark = trial.mark()
            for gang in some:
                trial.drop(gang.id)
                if keeps:
                    trial.hold(gang.slots, _keeps(gang))
            entitled = entitlement_of(cluster, waiting.shape)
            slots = cluster.find(requests) if entitled is not None else None
            trial.rollback(mark)
            return None if entitled is None or slots is None else (slots, entitled)

        count = _fewest(cluster, waiting, gangs)
        found = without(gangs[:count])
        while found is None and count < len(gangs):
            count += 1
            found = without(gangs[:count])
        if found is None:
            return None
        gone = gangs[:count]
        for gang in reversed(gone[:-1]):
            fewer = [other for other in gone if other is not gang]
            other = without(fewer)
            if other is not None and other[1] is found[1]:
                gone, found = fewer, other
    victims: tuple[JobId, ...] = tuple(gang.id for gang in gone)
    slots, entitled = found
    return PreemptionPlan(slots, needs, entitlement=entitled, evict=victims, in_turn=True)


def _fewest(cluster: Cluster, waiting: Standing, gangs: list[Gang]) -> int:
    """Return how many of the first gangs hold enough devices, by numbers alone."""
    missing = waiting.gpu_milli - cluster.ledger.whole_free * DEVICE
    for count, gang in enumerate(gangs, start=1):
        missing -= gang.held().gpu_milli
        if missing <= 0:
            return count
    return max(1, len(gangs))


def _keeps(gang: Gang) -> tuple[Resources, ...]:
    """Return what each task of a gang keeps while it is suspended."""
    return tuple(need - lease_part(need) for need in gang.needs)


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
