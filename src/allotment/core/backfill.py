"""EASY backfilling: who may go before a blocked job without delaying it.

The blocked job gets a promise in time: the instant at which, if everybody ends when
expected, enough is free for it (the shadow), and what is left beside it then (the spare
devices). Others may start now if they end by then, or take no more than the spare.

Source: Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; Mu'alem and Feitelson,
TPDS 12(6), 2001. Counted are devices; what is free where is left to the placement.
"""

from allotment.core.cluster import Cluster
from allotment.core.gang import Standing
from allotment.core.own_share import enough_of, left_of
from allotment.core.ports import Estimates
from allotment.core.request import total_of
from allotment.core.shadow import enough_beside
from allotment.model.ledger import Entitlement
from allotment.model.quantity import DEVICE, Instant


class Shadow:
    """The promise to a blocked job, and what others may use until it is due."""

    def __init__(self, at: Instant | None, spare_milli: int, estimates: Estimates) -> None:
        self.at = at
        """None when it is not known when the blocked job starts: then nobody passes."""
        self.spare_milli = spare_milli
        self._estimates = estimates

    def admits(self, job: Standing, now: Instant) -> bool:
        """Tell whether a job may start now."""
        if self.at is None:
            return False
        return job.gpu_milli <= self.spare_milli or self._ends_in_time(job, now)

    def took(self, job: Standing, now: Instant) -> None:
        """Count a job that did start against the spare, if it needed that."""
        if not self._ends_in_time(job, now):
            self.spare_milli -= job.gpu_milli

    def _ends_in_time(self, job: Standing, now: Instant) -> bool:
        run_ms = self._estimates.run_ms(job)
        return (
            run_ms is not None and self.at is not None and now + job.left_of(run_ms) <= self.at
        )


def shadow_of(
    cluster: Cluster, blocked: Standing, now: Instant, grounds: Entitlement
) -> Shadow:
    """Work out when a blocked job can start on these grounds. O(gangs that end by then)."""
    estimates, ends = cluster.policies.estimates, cluster.ends
    assert estimates is not None, "a queue in EASY order needs estimates"
    assert ends is not None, "the ends of gangs are kept where a queue is in EASY order"
    wanted = total_of(blocked.shape.requests).gpu_milli
    found = None
    if cluster.windows.all or cluster.ledger.closed:
        found = enough_beside(cluster, ends, blocked, wanted, now)
    if found is None:
        # Where that takes nodes that are down, they are taken to be back by then.
        found = ends.enough(wanted, cluster.ledger.whole_free * DEVICE, now)
    if found is None:
        return Shadow(None, 0, estimates)
    at, free = found
    tenant = blocked.shape.tenant
    left = left_of(cluster, tenant) if grounds is Entitlement.GUARANTEED else None
    if left is not None:
        owed = enough_of(cluster, ends, tenant, wanted, left, now)
        if owed is None:
            return Shadow(None, 0, estimates)
        at, free = max(at, owed[0]), min(free, owed[1])
    return Shadow(at, free - wanted, estimates)
