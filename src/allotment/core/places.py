"""A place for a waiting job: an empty one, or one that others must leave first."""

from collections.abc import Iterable

from allotment.core.cluster import Cluster
from allotment.core.entitle import due_of
from allotment.core.gang import Gang, Standing
from allotment.core.guarantee import guarantee_of
from allotment.core.owed import owed_place
from allotment.core.packing import rotate_pairs
from allotment.core.plan import Decision, Demote, Evict, Place, Proposals
from allotment.core.preemption.candidates import borrowed_places
from allotment.core.preemption.eviction import evict
from allotment.core.preemption.owner import clear_cells, clear_devices
from allotment.core.preemption.search import PreemptionPlan
from allotment.core.preemption.tenant import (
    fits_by_demotion,
    losers,
    preempt,
    preempt_lower,
)
from allotment.core.rank import Key
from allotment.core.reclaim import shrinkable, surplus
from allotment.core.request import devices_of
from allotment.core.rotation import rotate, rotate_in_cells
from allotment.core.trial import Trial
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement, Placement
from allotment.model.quantity import Instant
from allotment.model.tenancy import Preempt

GUARANTEED, OPPORTUNISTIC = Entitlement.GUARANTEED, Entitlement.OPPORTUNISTIC

_FIRST: Key = ((), JobId(0))
"""A place in line before every other."""


def is_turn(cluster: Cluster, now: Instant) -> bool:
    """Whether running gangs may be asked to make way, or to move, now."""
    turns = cluster.policies.turns
    return turns is not None and turns.next(now) == now


class Places:
    """Finds places during one cycle, and remembers which gangs were sent away for them."""

    def __init__(self, cluster: Cluster, now: Instant, *, turn: bool) -> None:
        self.cluster = cluster
        self.now = now
        self.turn = turn
        self.sent: list[Gang] = []
        """Gangs that were sent away, and are not gone yet."""
        for promise in cluster.reserved.values() if self.turn else ():
            self.send(promise.victims)

    def find(self, waiting: Standing, due: Entitlement | None) -> Decision | None:
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
        if due is GUARANTEED and self._some_may_go():
            with Trial(cluster) as trial:
                plan = clear_devices(trial, requests, self.now)
            if plan is not None:
                return self._evict(waiting, plan)
        if (
            self.turn
            and cluster.pending.key(waiting.id) < self.worst()
            and (plan := self._rotate(waiting)) is not None
        ):
            return self._evict(waiting, plan)
        return None

    def _find_cells(self, waiting: Standing, due: Entitlement | None) -> Decision | None:
        """Find a place in the tenant's cells, or on idle ones."""
        cluster, shape = self.cluster, waiting.shape
        if due is GUARANTEED:
            found = owed_place(cluster, shape)
            if found is None:
                return None
            if not found.borrowers and cluster.slots_free(found.slots, shape.requests):
                return Place(Placement(waiting.id, found.slots, due, found.quota))
            with Trial(cluster) as trial:
                plan = clear_cells(trial, shape, found, self.now)
            if plan is None:
                return None
            if plan.is_free and cluster.slots_free(plan.slots, shape.requests):
                return Place(Placement(waiting.id, plan.slots, due, plan.quota))
            return self._evict(waiting, plan)
        if (
            due is OPPORTUNISTIC
            and (slots := guarantee_of(cluster).idle_place(shape.requests)) is not None
        ):
            return Place(Placement(waiting.id, slots, due))
        if (
            self.turn
            and not self._stands_back(waiting)
            and cluster.pending.key(waiting.id) < self.worst()
            and (plan := rotate_in_cells(cluster, waiting, self.now)) is not None
        ):
            return self._evict(waiting, plan)
        return None

    def outrank(self, waiting: Standing) -> Proposals:
        """Let less urgent gangs of its tenant's make way for a job, where it has that right."""
        cluster, shape = self.cluster, waiting.shape
        if not cluster.outranking or shape.opportunistic:
            return
        plan = preempt_lower(cluster, waiting, self.now)
        if (
            plan is not None
            and cluster.tenants[shape.tenant].preempt is Preempt.DEMOTE
            and fits_by_demotion(cluster, waiting, plan, self.now)
        ):
            for loser in losers(cluster, waiting, plan):
                yield Demote(loser, waiting.id)
            if not plan.revoke:
                return
            plan = preempt_lower(cluster, waiting, self.now)
        if plan is not None:
            yield self._evict(waiting, plan)

    def reclaim(self, waiting: Standing) -> Proposals:
        """Let a job within its queue's guarantee have back what sibling queues were lent."""
        cluster, shape, now = self.cluster, waiting.shape, self.now
        holders, shrinking = surplus(cluster, waiting), shrinkable(cluster, waiting)
        if not (holders or shrinking) or shape.pin:
            return
        if cluster.cells is None:
            plan = preempt(cluster, waiting, holders, now)
            if plan is not None and fits_by_demotion(cluster, waiting, plan, now):
                # They are in no job's way: they run on, on what is idle.
                for loser in losers(cluster, waiting, plan):
                    yield Demote(loser, waiting.id)
                if (decision := self.find(waiting, due_of(cluster, shape))) is not None:
                    yield decision
                return
        plan = preempt(cluster, waiting, holders, now, shrinking)
        if plan is not None:
            yield self._evict(waiting, plan)

    def _rotate(self, waiting: Standing) -> PreemptionPlan | None:
        by_pairs = self.cluster.policies.packing is not None
        return (rotate_pairs if by_pairs else rotate)(self.cluster, waiting, self.now)

    def _some_may_go(self) -> bool:
        """Whether there are borrowers, or gangs that leave and that no turn looks at."""
        cluster = self.cluster
        return (
            bool(cluster.placed.borrowers)
            or bool(cluster.placed.leaving and not self.turn)
            or bool(cluster.placed.parting and not self.turn)
            or bool(borrowed_places(cluster))
        )

    def _evict(self, waiting: Standing, plan: PreemptionPlan) -> Evict:
        """Reserve a place that others make way for."""
        return evict(self.cluster, waiting.id, waiting.shape.pin, plan, self.now)

    def send(self, victims: Iterable[JobId]) -> list[Gang]:
        """Note which gangs were sent away; return those that are still there."""
        gangs = self.cluster.gangs
        there = [gangs[job] for job in victims if job in gangs]
        self.sent += there
        return there

    def _stands_back(self, waiting: Standing) -> bool:
        """Whether a gang that was sent away comes before this job, and may return.

        By now enough may come free for it too; a job that takes that would be sent away at
        once. So the job waits until they are gone, and stand in line themselves.
        """
        cluster, running = self.cluster, self.cluster.running
        if not self.sent or running is None:
            return False
        spare = guarantee_of(cluster).coming_free(waiting.shape)
        place = cluster.pending.key(waiting.id)
        return any(
            gang.tenant == waiting.shape.tenant
            and devices_of(gang.requests) <= spare
            and running.key(gang.id, self.now) < place
            for gang in self.sent
        )

    def worst(self) -> Key:
        """Return the place in line from which on no gang can be displaced."""
        running = self.cluster.running
        if not self.turn or running is None:
            return _FIRST
        return running.worst(self.now) or _FIRST
