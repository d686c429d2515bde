"""Backfilling: which jobs may pass a blocked one of their queue, by what will be free when.

EASY: a job may pass if the first that is blocked starts no later for it. That one has a
reservation in time: the instant at which, if all jobs end when expected, enough is there for it
(the shadow time), and what is left beside it then (the spare). Others may start now if they end
by then, or take no more than the spare.

Conservative: a job may pass if no job that waits before it starts later for it. Jobs of a queue
are looked at in order. One that can start now without being in the way of those before it,
starts. Every other gets a planned start: the earliest time, by what is known of run times, at
which enough is free beside all starts planned before. Starts are planned anew at each pass, so
they move forward when a job ends early. Behind a job of which it is not known when it could
start, all wait. Bad at: time, as each start is looked for in a timeline of all ends and starts;
hence at most `DEPTH` of them are planned for a queue. Later jobs start only beside these.

Sources: Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; Mu'alem and Feitelson, TPDS
12(6), 2001. Counted are devices, by type where the job may not have every one; what the
machines have beside them; and, for a guaranteed job, the share of its tenant. In what portions
it is free where is left to the placement.
"""

from collections.abc import Iterator, Sequence, Set
from functools import cached_property

from allotment.core.cluster import Cluster
from allotment.core.dimensions import (
    AllDevices,
    DevicesByType,
    Dimension,
    HostSums,
    counts_types,
    devices_counted,
    occupancy_of,
    own_share,
    released,
)
from allotment.core.discipline import Filter, Next, QueueDiscipline, Skip, Strict
from allotment.core.forecast import Forecast
from allotment.core.gang import Standing
from allotment.core.rank import Key
from allotment.core.request import Shape
from allotment.core.reservations import NOWHERE, kept_off, set_aside
from allotment.core.timeline import FOREVER, Timeline, Want, Wanted, choose, together
from allotment.model.amounts import GPU, Vector, add
from allotment.model.ids import NodeId
from allotment.model.ledger import GUARANTEED, Entitlement
from allotment.model.quantity import Instant
from allotment.model.tenancy import QueueOrder

MOMENT_MS = 1
"""The blocked job is to start, however long it runs: what is free grows from then on."""

DEPTH = 100
"""Waiting jobs of a queue that get a planned start in one pass."""


class Easy:
    """The shadow time of the first that is blocked, and what others may use until then."""

    def __init__(
        self, cluster: Cluster, first: Standing, now: Instant, entitlement: Entitlement
    ) -> None:
        """`first` is the blocked job, which may have a place by this entitlement."""
        assert cluster.policies.estimates is not None, "a queue in EASY order needs estimates"
        self._cluster, self._first, self._now = cluster, first, now
        self._estimates, self._entitlement = cluster.policies.estimates, entitlement
        own = own_share(cluster, first.shape) if entitlement is GUARANTEED else None
        self._devices = devices_counted(cluster, first.shape)
        others: list[Dimension] = [HostSums(cluster), *([own] if own is not None else [])]
        self._dimensions: list[Dimension] = [self._devices, *others]
        several = len(cluster.device_types) > 1
        self._by_type = [each for each in self._dimensions if several and counts_types(each)]
        self._spare: dict[Dimension, Vector] = {}
        """What is left beside it in each dimension, once that was asked for."""
        self._down: Set[NodeId] = NOWHERE
        """Nodes that are taken to be gone until it starts."""
        self._anywhere = Filter(cluster, ())

    @cached_property
    def at(self) -> Instant | None:
        """Return when it can start as entitled; None if that is not known: then none passes."""
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
                add(spare, released(dimension, held), -1)

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
        lends = bool(placed.borrowers) and self._entitlement is GUARANTEED
        moves = placed.leaving or placed.parting or placed.reserved
        shut = cluster.reservations.all or cluster.ledger.closed
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
            self._spare[self._devices] = {GPU: found[1] - wanted}
        return at

    def _starts(self, *, later: bool = True) -> Instant | None:
        """Return when it has enough, as a rule once a gang ends: it does not fit as it is."""
        forecast, reservations = self._foresee(), self._cluster.reservations
        after = Instant(self._now + 1)
        if later:
            ends = [forecast.next_end(), reservations.next_end(self._first.shape, self._now)]
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
            aside=kept_off(cluster.reservations, self._first.shape, now),
            evicted_at=Instant(now + 1) if self._entitlement is GUARANTEED else None,
        )

    # ── what is left beside it ──────────────────────────────────────────────────────────

    def _spare_in(self, dimension: Dimension) -> Vector:
        spare = self._spare.get(dimension)
        if spare is None:
            assert self.at is not None, "asked only where it is known when it starts"
            free = self._foresee().timeline(dimension)
            spare = self._spare[dimension] = self._beside_it(dimension, free, self.at)
        return spare

    def _beside_it(self, dimension: Dimension, free: Timeline, at: Instant) -> Vector:
        """Return what is left beside the first; nothing where that has too little itself."""
        spare = free.at(at)
        taken = choose(dimension.demand(self._first.shape), spare)
        if taken is None:
            return Vector()
        add(spare, taken, -1)
        return spare


class Conservative:
    """The planned starts of one queue during one pass."""

    def __init__(
        self, cluster: Cluster, shape: Shape, now: Instant, entitlement: Entitlement
    ) -> None:
        estimates = cluster.policies.estimates
        assert estimates is not None, "a queue in conservative order needs estimates"
        self._cluster, self._shape, self.now = cluster, shape, now
        self._estimates, self._entitlement = estimates, entitlement
        self._lined_up: list[Standing] = []
        """Those that get a planned start as soon as a job asks whether it may start."""
        self._hosts: HostSums | None = HostSums(cluster)
        """Counted as well from the first job on that wants some of them; None then."""
        self._pins: set[str] = set()
        """Of which pinned cells, or '' for the others, the tenant's own share is counted."""
        self._wanted_by: dict[Shape, Wanted] = {}
        self.stuck = False
        """Whether it is not known when one of them starts: then none passes."""
        self.left = DEPTH
        self._since: dict[tuple[tuple[Want, ...], ...], list[tuple[int, int]]] = {}
        """For each demand, how long jobs with a planned start run, and from when on."""

    @cached_property
    def _timelines(self) -> list[tuple[Dimension, Timeline]]:
        """What is free over time in each dimension: of devices first."""
        devices = DevicesByType(self._cluster)
        return [(devices, self._foresee(devices))]

    def blocked(self, job: Standing) -> bool:
        """Plan the start of a job before any passes it, if starts are left."""
        if self.left:
            self.left -= 1
            self._lined_up.append(job)
        return self._plans_more

    def may_start(self, job: Standing) -> Filter | None:
        self._settle()
        if self.stuck:
            return None
        run = self._left_of(job)
        for wants, free in self._wanted(job):
            if free.fits(wants, run, self.now) is None:
                return None
        several = len(self._cluster.device_types) > 1
        spares = [
            free.least(run, self.now)
            for dimension, free in (self._timelines if several else ())
            if counts_types(dimension) and dimension.demand(job.shape)
        ]
        return Filter(self._cluster, spares)

    def turned_down(self, job: Standing, *, room: bool) -> Key | Next:
        """Plan its start too; once no start is left, return the next that ends in time."""
        if not self._cluster.guarantee.ever_starts(job.shape):
            return Next.NONE
        if self._plans_more:
            self.blocked(job)
            return Next.IN_ORDER
        pending = self._cluster.pending
        most = self.longest(job) if room else 0
        following = pending.next_to_end(pending[job.id], most) if most else None
        return Next.NONE if following is None else following

    def started(self, job: Standing) -> None:
        held = occupancy_of(self._cluster, job.id)
        if held is not None:
            end = min(self.now + self._left_of(job), FOREVER)
            for dimension, free in self._timelines:
                free.take(self.now, end, released(dimension, held))

    @property
    def _plans_more(self) -> bool:
        return self.left > 0 and not self.stuck

    def _settle(self) -> None:
        for job in self._lined_up:
            self._plan_start(job)
        self._lined_up.clear()

    def _plan_start(self, job: Standing) -> Instant | None:
        if self.stuck:
            return None
        run, wanted = self._left_of(job), self._wanted(job)
        known = self._since.setdefault(tuple(wants for wants, _ in wanted), [])
        # It was refused a place now: not before something changes is there another. And one
        # that wants as much for no less long cannot start before one planned already.
        changes = [at for _, free in wanted if (at := free.next_step(self.now)) is not None]
        after = min(changes, default=self.now + 1)
        after = max([after, *(at for ran, at in known if ran <= run)])
        found = together(wanted, run, after)
        if found is None:
            self.stuck = True
            return None
        at, taken = found
        known.append((run, at))
        for (_, free), amounts in zip(wanted, taken, strict=True):
            free.take(at, min(at + run, FOREVER), amounts)
        return at

    def longest(self, job: Standing) -> int:
        """Return for how long a job like this could run from now on."""
        self._settle()
        if self.stuck:
            return 0
        most = FOREVER
        for wants, free in self._wanted(job):
            most = free.longest(wants, self.now, most)
        return most

    def _wanted(self, job: Standing) -> Wanted:
        """Return how much a job wants of what."""
        shape = job.shape
        known = self._wanted_by.get(shape)
        if known is not None:
            return known
        for dimension in self._first_wanted(shape):
            self._timelines.append((dimension, self._foresee(dimension)))
        # Devices come last: to look for these takes the most time.
        counted = [*self._timelines[1:], self._timelines[0]]
        known = [(wants, free) for each, free in counted if (wants := each.demand(shape))]
        self._wanted_by[shape] = known
        return known

    def _first_wanted(self, shape: Shape) -> Iterator[Dimension]:
        """Return the dimensions that matter from this gang on, and did not before."""
        if self._entitlement is GUARANTEED and shape.pin not in self._pins:
            self._pins.add(shape.pin)
            own = own_share(self._cluster, shape)
            if own is not None:
                yield own
        if self._hosts is not None and self._hosts.demand(shape):
            yield self._hosts
            self._hosts = None

    def _foresee(self, dimension: Dimension) -> Timeline:
        cluster, now = self._cluster, self.now
        forecast = Forecast(
            cluster,
            now,
            down=cluster.shut_nodes(),
            aside=set_aside(cluster.reservations, self._shape, now),
            evicted_at=now if self._entitlement is GUARANTEED else None,
        )
        return forecast.timeline(dimension)

    def _left_of(self, job: Standing) -> int:
        run_ms = self._estimates.run_ms(job)
        return FOREVER if run_ms is None else max(1, job.left_of(run_ms))


def discipline_of(
    cluster: Cluster, first: Standing, now: Instant, entitlement: Entitlement
) -> QueueDiscipline:
    """Return the discipline of a job's queue, of which it is the first that is blocked."""
    match cluster.orders.of(first.shape):
        case QueueOrder.STRICT:
            return Strict()
        case QueueOrder.SKIP:
            return Skip(cluster)
        case QueueOrder.EASY:
            return Easy(cluster, first, now, entitlement)
        case QueueOrder.CONSERVATIVE:
            return Conservative(cluster, first.shape, now, entitlement)
