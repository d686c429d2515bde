"""The way back of a suspended gang to its own devices: what may keep it, in one order.

A cycle lets it resume when no gate is shut, or makes room on its devices where it may. `why`
asks the same gates and puts the first that is shut in words. To ask changes nothing.
"""

from functools import cached_property

import msgspec

from allotment.core.caps import resumes_beyond
from allotment.core.cluster import Cluster
from allotment.core.entitle import resume_entitlement
from allotment.core.gang import Gang
from allotment.core.gates import Gate
from allotment.core.plan import Decision, Resume
from allotment.core.preemption.eviction import evict
from allotment.core.preemption.room import clear_leases
from allotment.core.trial import Trial
from allotment.model.ledger import GUARANTEED, Entitlement, Quota
from allotment.model.quantity import Instant


class WayBack:
    """The gates between one suspended gang and its devices."""

    def __init__(self, cluster: Cluster, gang: Gang, now: Instant) -> None:
        self.cluster = cluster
        self.gang = gang
        self.now = now

    @cached_property
    def entitlement(self) -> Entitlement | None:
        """Return by which entitlement it may resume."""
        return resume_entitlement(self.cluster, self.gang, self.now)

    def first_shut(self) -> Gate | None:
        """Return the first gate that keeps it from resuming now; None if all are open."""
        cluster, gang = self.cluster, self.gang
        gate = None
        if gang.id in cluster.reserved or gang.leaving:
            gate = Gate.RESERVED
        elif resumes_beyond(cluster, gang):
            gate = Gate.CAP
        elif cluster.barred(gang.id, gang.slots, self.now):
            gate = Gate.RESERVATION
        elif self.entitlement is None:
            gate = Gate.RIGHT
        elif not self._leases_free():
            gate = Gate.ROOM if cluster.slots_open(gang.slots) else Gate.NODES
        return gate

    def decision(self) -> Decision | None:
        """Return what lets it resume: at once, or when borrowers have left its devices."""
        cluster, gang, gate = self.cluster, self.gang, self.first_shut()
        if gate is None and self.entitlement is not None:
            return Resume(gang.id, self.entitlement, quota=self._quota())
        if gate is not Gate.ROOM or self.entitlement is not GUARANTEED:
            return None
        with Trial(cluster) as trial:
            plan = clear_leases(trial, gang, self.now)
        if plan is None:
            return None
        plan = msgspec.structs.replace(plan, quota=self._quota())
        return evict(cluster, gang.id, gang.pin, plan, self.now)

    @property
    def is_in_turn(self) -> bool:
        """Whether it could resume if others were preempted for it."""
        shut = self.first_shut() in (Gate.RIGHT, Gate.ROOM)
        return shut and self.cluster.slots_open(self.gang.slots)

    def _quota(self) -> Quota:
        guaranteed = self.entitlement is GUARANTEED
        return self.cluster.guarantee.quota_kept(self.gang) if guaranteed else ()

    def _leases_free(self) -> bool:
        with Trial(self.cluster) as trial:
            return trial.fits(self.gang.slots, self.gang.leases())
