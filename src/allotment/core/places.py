"""A place for a waiting job: an empty one, or one that others must leave first."""

from allotment.core.cluster import Cluster
from allotment.core.entitle import entitlement_of
from allotment.core.gang import Standing
from allotment.core.own_cells import guaranteed_place
from allotment.core.plan import Decision, Demote, Evict, Place, PreemptionPlan, Proposals
from allotment.core.policies import Rescheduler
from allotment.core.preemption.eviction import evict
from allotment.core.preemption.room import (
    clear_cells,
    clear_devices,
    fits_by_demotion,
    losers,
    preempt,
    preempt_lower,
)
from allotment.core.preemption.search import borrowed_places
from allotment.core.reclaim import shrinkable, surplus
from allotment.core.trial import Trial
from allotment.model.ledger import GUARANTEED, OPPORTUNISTIC, Entitlement, Placement
from allotment.model.quantity import Instant
from allotment.model.tenancy import Preempt


class Places:
    """Finds places during one cycle; a rescheduler finds some where there is none by itself."""

    def __init__(
        self, cluster: Cluster, now: Instant, rescheduler: Rescheduler | None = None
    ) -> None:
        self.cluster = cluster
        self.now = now
        self.rescheduler = rescheduler

    def find(self, waiting: Standing, entitled: Entitlement | None) -> Decision | None:
        """Find a place for a job: an empty one, or one that others must leave first."""
        cluster, requests = self.cluster, waiting.shape.requests
        if cluster.cells is not None:
            return self._find_cells(waiting, entitled)
        if entitled is not None:
            slots = cluster.find(requests)
            if slots is not None:
                return Place(Placement(waiting.id, slots, entitled))
        if entitled is GUARANTEED and self._some_may_go():
            with Trial(cluster) as trial:
                plan = clear_devices(trial, requests, self.now)
            if plan is not None:
                return self._evict(waiting, plan)
        return self._displace(waiting)

    def _find_cells(self, waiting: Standing, entitled: Entitlement | None) -> Decision | None:
        """Find a place in the tenant's cells, or on idle ones."""
        cluster, shape = self.cluster, waiting.shape
        if entitled is GUARANTEED:
            found = guaranteed_place(cluster, shape)
            if found is None:
                return None
            if not found.borrowers and cluster.slots_free(found.slots, shape.requests):
                return Place(Placement(waiting.id, found.slots, entitled, found.quota))
            with Trial(cluster) as trial:
                plan = clear_cells(trial, shape, found, self.now)
            if plan is None:
                return None
            others = plan.evict or plan.revoke or plan.shrink
            if not others and cluster.slots_free(plan.slots, shape.requests):
                return Place(Placement(waiting.id, plan.slots, entitled, plan.quota))
            return self._evict(waiting, plan)
        if (
            entitled is OPPORTUNISTIC
            and (slots := cluster.guarantee.idle_place(shape.requests)) is not None
        ):
            return Place(Placement(waiting.id, slots, entitled))
        return self._displace(waiting)

    def preempt_own(self, waiting: Standing) -> Proposals:
        """Preempt less urgent gangs of its tenant for a job, where it has that right."""
        cluster, shape = self.cluster, waiting.shape
        if not cluster.preempts or shape.opportunistic:
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
                if (decision := self.find(waiting, entitlement_of(cluster, shape))) is not None:
                    yield decision
                return
        plan = preempt(cluster, waiting, holders, now, shrinking)
        if plan is not None:
            yield self._evict(waiting, plan)

    def _displace(self, waiting: Standing) -> Decision | None:
        """Find a place in that of gangs that rank behind a job."""
        rescheduler = self.rescheduler
        plan = rescheduler.plan(waiting, self.now) if rescheduler is not None else None
        return self._evict(waiting, plan) if plan is not None else None

    def _some_may_go(self) -> bool:
        """Whether there are borrowers, or gangs that leave and that no rescheduler looks at."""
        cluster, placed = self.cluster, self.cluster.placed
        leaving = self.rescheduler is None and (placed.leaving or placed.parting)
        return bool(placed.borrowers or leaving or borrowed_places(cluster))

    def _evict(self, waiting: Standing, plan: PreemptionPlan) -> Evict:
        """Reserve a place that others have to leave first."""
        return evict(self.cluster, waiting.id, waiting.shape.pin, plan, self.now)
