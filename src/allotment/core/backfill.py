"""EASY backfilling: who may go before a blocked job without delaying it.

The blocked job gets a promise in time: the instant at which, if everybody ends when
expected, enough is there for it (the shadow), and what is left beside it then (the spare).
Others may start now if they end by then, or take no more than the spare.

Source: Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; Mu'alem and Feitelson,
TPDS 12(6), 2001. Counted are devices, where the job may not have every type by type; what
the machines have beside them; and, on the tenant's own grounds, its share. In what portions
it is free where is left to the placement.
"""

from collections.abc import Set
from functools import cached_property

from allotment.core.cluster import Cluster
from allotment.core.gang import Standing
from allotment.core.ledger import ANY_TYPE
from allotment.core.measures import Hosts, Measure, devices_measured, on_types
from allotment.core.own_share import own_share
from allotment.core.profile import Amounts, choose
from allotment.core.shadow import earliest, free_at
from allotment.core.windows import NOWHERE
from allotment.model.ids import NodeId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import DEVICE, Instant


class Shadow:
    """The promise to a blocked job, and what others may use until it is due."""

    def __init__(
        self, cluster: Cluster, blocked: Standing, now: Instant, grounds: Entitlement
    ) -> None:
        """Nothing is worked out before somebody asks whether it may pass."""
        assert cluster.policies.estimates is not None, "a queue in EASY order needs estimates"
        self._cluster, self._blocked, self._now = cluster, blocked, now
        self._estimates = cluster.policies.estimates
        own = own_share(cluster, blocked.shape) if grounds is Entitlement.GUARANTEED else None
        self._devices = devices_measured(cluster, blocked.shape)
        self._measures: list[Measure] = [
            self._devices,
            Hosts(cluster),
            *([own] if own is not None else []),
        ]
        self._spare: dict[Measure, Amounts] = {}
        """What is left beside it by each measure, once that was asked for."""
        self._down: Set[NodeId] = cluster.shut_nodes()

    @cached_property
    def at(self) -> Instant | None:
        """When it can start on its grounds; None where that is not known: then nobody passes.

        O(gangs that end by then).
        """
        at = self._starts()
        if at is None and self._down:
            # Where that takes nodes that are down, they are taken to be back by then.
            self._down = NOWHERE
            at = self._starts()
        return at

    def admits(self, job: Standing) -> bool:
        """Tell whether a job may start now."""
        if self.at is None:
            return False
        return self._ends_in_time(job) or all(
            choose(wants, self._spare_by(measure)) is not None
            for measure in self._measures
            if (wants := measure.wants(job.shape))
        )

    def beside(self, job: Standing) -> Standing:
        """Give a job that may start as it may: on types of devices that are to spare."""
        devices = self._devices
        if not devices.by_type or self._ends_in_time(job):
            return job
        found = choose(devices.wants(job.shape), self._spare_by(devices))
        return job if found is None else on_types(self._cluster, job, found.keys())

    def took(self, job: Standing) -> None:
        """Count a job that did start against the spare, if it needed that."""
        if self._ends_in_time(job):
            return
        for measure, spare in self._spare.items():
            wanted = choose(measure.wants(job.shape), spare)
            self._spare[measure] = _less(spare, wanted) if wanted is not None else {}

    def _ends_in_time(self, job: Standing) -> bool:
        run_ms = self._estimates.run_ms(job)
        return (
            run_ms is not None
            and self.at is not None
            and self._now + job.left_of(run_ms) <= self.at
        )

    def _starts(self) -> Instant | None:
        """Say when it has enough by every measure; None if never."""
        at = soonest = self._devices_are_free()
        for measure in self._measures[1:]:
            if at is None or not measure.wants(self._blocked.shape):
                continue
            enough = earliest(self._cluster, measure, self._blocked, self._now, self._down)
            at = max(at, enough) if enough is not None else None
        if at != soonest:
            self._spare.clear()  # That was what is left at an earlier moment.
        return at

    def _devices_are_free(self) -> Instant | None:
        """Say at which later moment enough devices are; somebody must go in any case."""
        cluster, blocked, now, devices = self._cluster, self._blocked, self._now, self._devices
        moving = cluster.leaving or cluster.parting or cluster.reservations
        if devices.by_type or moving or cluster.windows.all or cluster.ledger.closed:
            return earliest(cluster, devices, blocked, now, self._down, later=True)
        assert cluster.ends is not None, "ends are kept where a queue is in EASY order"
        found = cluster.ends.enough(blocked.gpu_milli, cluster.ledger.whole_free * DEVICE, now)
        if found is None:
            return None
        at, free = found
        self._spare[devices] = {ANY_TYPE: free - blocked.gpu_milli}
        return at

    def _spare_by(self, measure: Measure) -> Amounts:
        """Say what is left beside it by a measure; nothing where it would have too little."""
        spare = self._spare.get(measure)
        if spare is None:
            assert self.at is not None, "asked only where it is known when it starts"
            cluster, blocked = self._cluster, self._blocked
            spare = free_at(cluster, measure, blocked, self._now, self._down, at=self.at)
            wanted = choose(measure.wants(blocked.shape), spare)
            spare = self._spare[measure] = _less(spare, wanted) if wanted is not None else {}
        return spare


def _less(spare: Amounts, taken: Amounts) -> Amounts:
    return {kind: amount - taken.get(kind, 0) for kind, amount in spare.items()}
