"""EASY backfilling: who may go before a blocked job without delaying it.

The blocked job gets a promise in time: the instant at which, if everybody ends when
expected, enough is there for it (the shadow), and what is left beside it then (the spare).
Others may start now if they end by then, or take no more than the spare.

Source: Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; Mu'alem and Feitelson,
TPDS 12(6), 2001. Counted are devices, where the job may not have every type by type; what
the machines have beside them; and, on the tenant's own grounds, its share. In what portions
it is free where is left to the placement.
"""

from functools import cached_property

from allotment.core.cluster import Cluster
from allotment.core.gang import Standing
from allotment.core.ledger import ANY_TYPE
from allotment.core.measures import (
    DevicesByType,
    Hosts,
    Measure,
    devices_measured,
    given_by,
    place_of,
    subtract,
)
from allotment.core.own_share import counts_types, own_share
from allotment.core.passing import Passing
from allotment.core.profile import Amounts, choose
from allotment.core.shadow import Outlook
from allotment.core.windows import NOWHERE
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant

GUARANTEED = Entitlement.GUARANTEED


class Shadow(Passing):
    """The promise to a blocked job, and what others may use until it is due."""

    def __init__(
        self, cluster: Cluster, blocked: Standing, now: Instant, grounds: Entitlement
    ) -> None:
        """Nothing is worked out before somebody asks whether it may pass."""
        assert cluster.policies.estimates is not None, "a queue in EASY order needs estimates"
        super().__init__(cluster)
        self._blocked, self._now = blocked, now
        self._estimates, self._grounds = cluster.policies.estimates, grounds
        own = own_share(cluster, blocked.shape) if grounds is GUARANTEED else None
        self._devices = devices_measured(cluster, blocked.shape)
        self._measures: list[Measure] = [
            self._devices,
            Hosts(cluster),
            *([own] if own is not None else []),
        ]
        several = len(cluster.device_types) > 1
        self._by_type = [each for each in self._measures if several and counts_types(each)]
        self._spare: dict[Measure, Amounts] = {}
        """What is left beside it by each measure, once that was asked for."""
        self._outlook = Outlook(cluster, blocked, now, grounds, cluster.shut_nodes())

    @cached_property
    def at(self) -> Instant | None:
        """When it can start on its grounds; None where that is not known: then nobody passes.

        O(gangs that end by then).
        """
        at, cluster = self._starts(), self._cluster
        if at is None and cluster.shut_nodes():
            # Where that takes nodes that are down, they are taken to be back by then.
            self._outlook = Outlook(cluster, self._blocked, self._now, self._grounds, NOWHERE)
            at = self._starts() or self._starts(later=False)
        return at

    def admits(self, job: Standing) -> bool:
        """Whether a job may start now."""
        if self.at is None:
            return False
        return self.ends_in_time(job) or all(
            choose(wants, self._spare_by(measure)) is not None
            for measure in self._measures
            if (wants := measure.wants(job.shape))
        )

    def narrows(self, job: Standing) -> bool:
        """Whether it matters on which types of devices a job starts."""
        return bool(self._by_type) and not self.ends_in_time(job)

    def _to_spare(self, job: Standing) -> list[Amounts]:
        return [self._spare_by(each) for each in self._by_type if each.wants(job.shape)]

    def took(self, job: Standing) -> None:
        """Count a job that did start, or is promised a place, against the spare."""
        held = None if self.ends_in_time(job) else place_of(self._cluster, job.id)
        if held is not None:
            for measure, spare in self._spare.items():
                subtract(spare, given_by(measure, held))

    def ends_in_time(self, job: Standing) -> bool:
        """Whether a job that starts now is gone when the first is due."""
        run_ms = self._estimates.run_ms(job)
        return (
            run_ms is not None
            and self.at is not None
            and self._now + job.left_of(run_ms) <= self.at
        )

    def _starts(self, *, later: bool = True) -> Instant | None:
        """Return when it has enough by every measure; None if never."""
        at = soonest = self._devices_are_free(later=later)
        for measure in self._measures[1:]:
            if at is None or not measure.wants(self._blocked.shape):
                continue
            enough = self._outlook.earliest(measure)
            at = max(at, enough) if enough is not None else None
        if at != soonest:
            self._spare.clear()  # That was what is left at an earlier moment.
        return at

    def _devices_are_free(self, *, later: bool) -> Instant | None:
        """Return when enough devices are: as a rule later, as somebody must go in any case."""
        cluster, wanted, devices = self._cluster, self._blocked.gpu_milli, self._devices
        lends = bool(cluster.borrowers) and self._grounds is GUARANTEED
        moves = cluster.leaving or cluster.parting or cluster.reserved
        shut = cluster.windows.all or cluster.ledger.closed
        if moves or shut or isinstance(devices, DevicesByType):
            found = self._outlook.earliest(devices, later=later)
            return None if found is None else max(found, Instant(self._now + 1))
        free = cluster.ledger.free().gpu_milli
        if lends:
            lent = sum(use.gpu_milli for use in cluster.borrowed_use.values())
            at_once = free + lent >= wanted
            next_ = Instant(self._now + 1)
            return next_ if at_once else self._outlook.earliest(devices, later=True)
        assert cluster.ends is not None, "ends are kept where a queue is in EASY order"
        found = cluster.ends.enough(wanted, free, self._now)
        if found is None:
            return None
        self._spare[devices] = {ANY_TYPE: found[1] - wanted}
        return found[0]

    def _spare_by(self, measure: Measure) -> Amounts:
        """Return what is left beside it by a measure; nothing where that is too little."""
        spare = self._spare.get(measure)
        if spare is None:
            assert self.at is not None, "asked only where it is known when it starts"
            spare = self._outlook.free_at(measure, self.at)
            wanted = choose(measure.wants(self._blocked.shape), spare)
            if wanted is None:
                spare.clear()
            else:
                subtract(spare, wanted)
            self._spare[measure] = spare
        return spare
