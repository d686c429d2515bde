"""EASY backfilling: a job may pass if the first that is blocked starts no later for it.

That one has a reservation in time: the instant at which, if all jobs end when expected, enough
is there for it (the shadow time), and what is left beside it then (the spare). Others may start
now if they end by then, or take no more than the spare.

Source: Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; Mu'alem and Feitelson,
TPDS 12(6), 2001. Counted are devices, where the job may not have every type by type; what
the machines have beside them; and, on the tenant's own grounds, its share. In what portions
it is free where is left to the placement.
"""

from collections.abc import Sequence, Set
from functools import cached_property

from allotment.core.cluster import Cluster
from allotment.core.dimensions import (
    AllDevices,
    Dimension,
    HostSums,
    counts_types,
    devices_counted,
    occupancy_of,
    own_share,
    released,
    subtract,
)
from allotment.core.discipline import Filter, Next
from allotment.core.forecast import Forecast
from allotment.core.gang import Standing
from allotment.core.ledger import ANY_TYPE
from allotment.core.rank import Key
from allotment.core.timeline import Amounts, Timeline, choose, together
from allotment.core.windows import NOWHERE, kept_off
from allotment.model.ids import NodeId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant

GUARANTEED = Entitlement.GUARANTEED
MOMENT_MS = 1
"""The blocked job is to start, however long it runs: what is free grows from then on."""


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
        self._devices = devices_counted(cluster, first.shape)
        others: list[Dimension] = [HostSums(cluster), *([own] if own is not None else [])]
        self._dimensions: list[Dimension] = [self._devices, *others]
        several = len(cluster.device_types) > 1
        self._by_type = [each for each in self._dimensions if several and counts_types(each)]
        self._spare: dict[Dimension, Amounts] = {}
        """What is left beside it in each dimension, once that was asked for."""
        self._down: Set[NodeId] = NOWHERE
        """Nodes that are taken to be gone until it starts."""
        self._anywhere = Filter(cluster, ())

    @cached_property
    def at(self) -> Instant | None:
        """When it can start on its grounds; None where that is not known: then none passes."""
        if self._is_plain():
            return self._starts_plainly()
        self._down = self._cluster.shut_nodes()
        at = self._starts()
        if at is None and self._down:
            # Where that takes nodes that are down, they are taken to be back by then.
            self._down = NOWHERE
            at = self._starts() or self._starts(later=False)
        return at

    def blocked(self, job: Standing) -> bool:  # noqa: ARG002 - only the first counts
        return False

    def may_start(self, job: Standing) -> Filter | None:
        if self.at is None:
            return None
        if self._ends_in_time(job):
            return self._anywhere
        for dimension in self._dimensions:
            demand = dimension.demand(job.shape)
            if demand and choose(demand, self._spare_in(dimension)) is None:
                return None
        counted = [each for each in self._by_type if each.demand(job.shape)]
        return Filter(self._cluster, [self._spare_in(each) for each in counted])

    def turned_down(self, job: Standing, *, room: bool) -> Key | Next:
        """Return the next that is gone at the shadow time."""
        if not room or self.at is None:
            return Next.NONE
        pending = self._cluster.pending
        following = pending.next_to_end(pending[job.id], self.at - self._now)
        return Next.NONE if following is None else following

    def started(self, job: Standing) -> None:
        held = None if self._ends_in_time(job) else occupancy_of(self._cluster, job.id)
        if held is not None:
            for dimension, spare in self._spare.items():
                subtract(spare, released(dimension, held))

    def _ends_in_time(self, job: Standing) -> bool:
        """Whether a job that starts now is gone when the first is due."""
        run_ms = self._estimates.run_ms(job)
        return (
            run_ms is not None
            and self.at is not None
            and self._now + job.left_of(run_ms) <= self.at
        )

    # ── when it can start ───────────────────────────────────────────────────────────────

    def _is_plain(self) -> bool:
        """Whether devices come back in one way alone: as gangs end that run on any node."""
        cluster = self._cluster
        placed = cluster.placed
        lends = bool(placed.borrowers) and self._grounds is GUARANTEED
        moves = placed.leaving or placed.parting or placed.reserved
        shut = cluster.windows.all or cluster.ledger.closed
        return isinstance(self._devices, AllDevices) and not (lends or moves or shut)

    def _starts_plainly(self) -> Instant | None:
        """Return when it has enough; None if never. O(gangs that end by then) for devices."""
        cluster, wanted = self._cluster, self._first.gpu_milli
        assert cluster.ends is not None, "the ends of gangs are kept where queues backfill"
        found = cluster.ends.enough(wanted, cluster.ledger.free().gpu_milli, self._now)
        if found is None:
            return None
        at = self._enough(self._foresee(), self._dimensions[1:], found[0])
        if at == found[0]:
            self._spare[self._devices] = {ANY_TYPE: found[1] - wanted}
        return at

    def _starts(self, *, later: bool = True) -> Instant | None:
        """Return when it has enough, as a rule once a gang ends: it does not fit as it is."""
        forecast, windows = self._foresee(), self._cluster.windows
        after = Instant(self._now + 1)
        if later:
            ends = [forecast.next_end(), windows.next_end(self._first.shape, self._now)]
            after = min((end for end in ends if end is not None), default=None)
        return None if after is None else self._enough(forecast, self._dimensions, after)

    def _enough(
        self, forecast: Forecast, dimensions: Sequence[Dimension], after: Instant
    ) -> Instant | None:
        """Return when it has enough in some dimensions, from an instant on; None if never."""
        shape = self._first.shape
        wanted = [
            (dimension, demand, forecast.timeline(dimension))
            for dimension in dimensions
            if (demand := dimension.demand(shape))
        ]
        found = together([(demand, free) for _, demand, free in wanted], MOMENT_MS, after)
        if found is None:
            return None
        for dimension, _, free in wanted:
            self._spare[dimension] = self._beside_it(dimension, free, found[0])
        return found[0]

    def _foresee(self) -> Forecast:
        cluster, now = self._cluster, self._now
        return Forecast(
            cluster,
            now,
            down=self._down,
            aside=kept_off(cluster.windows, self._first.shape, now),
            evicted_at=Instant(now + 1) if self._grounds is GUARANTEED else None,
        )

    # ── what is left beside it ──────────────────────────────────────────────────────────

    def _spare_in(self, dimension: Dimension) -> Amounts:
        spare = self._spare.get(dimension)
        if spare is None:
            assert self.at is not None, "asked only where it is known when it starts"
            free = self._foresee().timeline(dimension)
            spare = self._spare[dimension] = self._beside_it(dimension, free, self.at)
        return spare

    def _beside_it(self, dimension: Dimension, free: Timeline, at: Instant) -> Amounts:
        """Return what is left beside the first; nothing where that has too little itself."""
        spare = free.at(at)
        taken = choose(dimension.demand(self._first.shape), spare)
        if taken is None:
            return Amounts()
        subtract(spare, taken)
        return spare
