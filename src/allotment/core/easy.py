"""EASY backfilling: a job may pass if the first that is blocked starts no later for it.

That one has a reservation in time: the instant at which, if all jobs end when expected, enough
is there for it (the shadow time), and what is left beside it then (the spare). Others may start
now if they end by then, or take no more than the spare.

Source: Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; Mu'alem and Feitelson,
TPDS 12(6), 2001. Counted are devices, where the job may not have every type by type; what
the machines have beside them; and, on the tenant's own grounds, its share. In what portions
it is free where is left to the placement.
"""

from functools import cached_property

from allotment.core.cluster import Cluster
from allotment.core.discipline import Filter, Next
from allotment.core.gang import Standing
from allotment.core.ledger import ANY_TYPE
from allotment.core.lengths import Key
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
from allotment.core.profile import Amounts, choose
from allotment.core.shadow import Outlook
from allotment.core.windows import NOWHERE
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant

GUARANTEED = Entitlement.GUARANTEED


class Easy:
    """The shadow time of the first that is blocked, and what others may use until then."""

    def __init__(
        self, cluster: Cluster, first: Standing, now: Instant, grounds: Entitlement
    ) -> None:
        """`first` is the blocked job, which may have a place on these grounds."""
        assert cluster.policies.estimates is not None, "a queue in EASY order needs estimates"
        self._cluster, self._first, self._now = cluster, first, now
        self._estimates, self._grounds = cluster.policies.estimates, grounds
        own = own_share(cluster, first.shape) if grounds is GUARANTEED else None
        self._devices = devices_measured(cluster, first.shape)
        self._measures: list[Measure] = [
            self._devices,
            Hosts(cluster),
            *([own] if own is not None else []),
        ]
        several = len(cluster.device_types) > 1
        self._by_type = [each for each in self._measures if several and counts_types(each)]
        self._spare: dict[Measure, Amounts] = {}
        """What is left beside it by each measure, once that was asked for."""
        self._outlook = Outlook(cluster, first, now, grounds, cluster.shut_nodes())
        self._anywhere = Filter(cluster, ())

    @cached_property
    def at(self) -> Instant | None:
        """When it can start on its grounds; None where that is not known: then none passes.

        O(gangs that end by then).
        """
        at, cluster = self._starts(), self._cluster
        if at is None and cluster.shut_nodes():
            # Where that takes nodes that are down, they are taken to be back by then.
            self._outlook = Outlook(cluster, self._first, self._now, self._grounds, NOWHERE)
            at = self._starts() or self._starts(later=False)
        return at

    def blocked(self, job: Standing) -> bool:  # noqa: ARG002 - only the first counts
        return False

    def may_start(self, job: Standing) -> Filter | None:
        if self.at is None:
            return None
        if self._ends_in_time(job):
            return self._anywhere
        for measure in self._measures:
            wants = measure.wants(job.shape)
            if wants and choose(wants, self._spare_by(measure)) is None:
                return None
        counted = [each for each in self._by_type if each.wants(job.shape)]
        return Filter(self._cluster, [self._spare_by(each) for each in counted])

    def turned_down(self, job: Standing, *, room: bool) -> Key | Next:
        """Return the next that is gone at the shadow time."""
        if not room or self.at is None:
            return Next.NONE
        pending = self._cluster.pending
        following = pending.next_to_end(pending[job.id], self.at - self._now)
        return Next.NONE if following is None else following

    def started(self, job: Standing) -> None:
        held = None if self._ends_in_time(job) else place_of(self._cluster, job.id)
        if held is not None:
            for measure, spare in self._spare.items():
                subtract(spare, given_by(measure, held))

    def _ends_in_time(self, job: Standing) -> bool:
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
            if at is None or not measure.wants(self._first.shape):
                continue
            enough = self._outlook.earliest(measure)
            at = max(at, enough) if enough is not None else None
        if at != soonest:
            self._spare.clear()  # That was what is left at an earlier moment.
        return at

    def _devices_are_free(self, *, later: bool) -> Instant | None:
        """Return when enough devices are: as a rule later, as somebody must go in any case."""
        cluster, wanted, devices = self._cluster, self._first.gpu_milli, self._devices
        lends = bool(cluster.placed.borrowers) and self._grounds is GUARANTEED
        moves = cluster.placed.leaving or cluster.placed.parting or cluster.reserved
        shut = cluster.windows.all or cluster.ledger.closed
        if moves or shut or isinstance(devices, DevicesByType):
            found = self._outlook.earliest(devices, later=later)
            return None if found is None else max(found, Instant(self._now + 1))
        free = cluster.ledger.free().gpu_milli
        if lends:
            lent = sum(use.gpu_milli for use in cluster.use.borrowed.values())
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
            wanted = choose(measure.wants(self._first.shape), spare)
            if wanted is None:
                spare.clear()
            else:
                subtract(spare, wanted)
            self._spare[measure] = spare
        return spare
