"""Taking turns, two jobs at a time: those that were chosen for each other share devices.

Rule: see `pairs.py`. It needs devices that no two gangs share by themselves
(`Policies.exclusive`).
"""

from collections.abc import Iterator

from allotment.core.books import FreePlace
from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, Standing
from allotment.core.plan import Decision, Evict, Place, PreemptionPlan
from allotment.model.quantity import Instant
from allotment.policies.rescheduling.moves import moves
from allotment.policies.rescheduling.pairs import displace_pairs, join, place_by_partner
from allotment.policies.rescheduling.ports import Moving, Packing, Recounting, Turns
from allotment.policies.rescheduling.taking_turns import TakingTurns, all_jobs


class InPairs(TakingTurns):
    """The rescheduler of a cluster whose devices `packing` deals out to pairs of jobs."""

    def __init__(
        self,
        cluster: Cluster,
        turns: Turns,
        packing: Packing,
        moving: Moving | None = None,
        recounting: Recounting | None = None,
    ) -> None:
        super().__init__(cluster, turns, moving, recounting)
        self.packing = packing

    def _begin(self, now: Instant) -> None:
        super()._begin(now)
        self.packing.deal(all_jobs(self.cluster), now)

    def _joined(self, now: Instant) -> Iterator[Decision]:
        """Propose jobs that join a partner that has a place. O(placed jobs)."""
        cluster = self.cluster
        for job in sorted(cluster.gangs.keys() | cluster.reserved.keys()):
            yield from join(cluster, self.packing, job, now)

    def _joined_to(self, decision: Decision, now: Instant) -> Iterator[Decision]:
        match decision:
            case Place(placement):
                return join(self.cluster, self.packing, placement.job, now)
            case Evict(place):
                return join(self.cluster, self.packing, place.job, now)
            case _:
                return iter(())

    def _displace(self, waiting: Standing, now: Instant) -> PreemptionPlan | None:
        return displace_pairs(self.cluster, self.order, waiting, now)

    def _moves(self, now: Instant) -> Iterator[Decision]:
        order = self.order.best_first(now)
        return moves(self.cluster, order, self._better_place, now)

    def _better_place(self, gang: Gang) -> FreePlace | None:
        """Find where a gang is better off: by its partner, if that has a place."""
        partner = self.cluster.gangs.get(self.packing.partner(gang.id) or gang.id, gang)
        if partner is gang:
            return super()._better_place(gang)
        assert self._moving is not None, "nothing moves without a policy for it"
        slots = place_by_partner(self.cluster, gang, partner, self._moving)
        return None if slots is None else (slots, ())
