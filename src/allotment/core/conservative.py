"""Conservative backfilling: a job may pass if no job that waits before it starts later for it.

Jobs of a queue are looked at in order. One that can start now without being in the way of
those before it, starts; every other is promised the earliest stretch of time, by what is known
of run times, in which enough is free beside all promises made before: a reservation schedule.
It is made anew at each pass, so a job that ends early moves promises forward.

Source: Mu'alem and Feitelson, TPDS 12(6), 2001. Bad at: time, as each promise is looked for
in a timeline of all ends and promises; hence at most `DEPTH` of them are made for a queue.
Later jobs start only beside these. Counted are devices by type, what the machines have
beside them, and, on the tenant's own grounds, its share: in what portions it is free where
is left to the placement. Behind a job of which it is not known when it could start, all wait.
"""

from collections.abc import Iterator
from functools import cached_property

from allotment.core.cluster import Cluster
from allotment.core.dimensions import (
    DevicesByType,
    Dimension,
    HostSums,
    counts_types,
    occupancy_of,
    own_share,
    released,
)
from allotment.core.discipline import Filter, Next
from allotment.core.forecast import Forecast
from allotment.core.gang import Standing
from allotment.core.guarantee import guarantee_of
from allotment.core.rank import Key
from allotment.core.request import Shape
from allotment.core.timeline import FOREVER, Timeline, Want, together
from allotment.core.windows import set_aside
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant

Wanted = list[tuple[tuple[Want, ...], Timeline]]

GUARANTEED = Entitlement.GUARANTEED

DEPTH = 100
"""Waiting jobs of a queue that are given a promise in one pass."""


class Conservative:
    """The promises of one queue during one pass."""

    def __init__(
        self, cluster: Cluster, shape: Shape, now: Instant, grounds: Entitlement
    ) -> None:
        estimates = cluster.policies.estimates
        assert estimates is not None, "a queue in conservative order needs estimates"
        self._cluster, self._shape, self.now = cluster, shape, now
        self._estimates, self._grounds = estimates, grounds
        self._lined_up: list[Standing] = []
        """Those to be promised a time as soon as a job asks whether it may start."""
        self._hosts: HostSums | None = HostSums(cluster)
        """Counted as well from the first job on that wants some of them; None then."""
        self._pins: set[str] = set()
        """Of which pinned cells, or '' for the others, the tenant's own share is counted."""
        self._wanted_by: dict[Shape, Wanted] = {}
        self.stuck = False
        """Whether it is not known when one of them starts: then none passes."""
        self.left = DEPTH
        self._since: dict[tuple[tuple[Want, ...], ...], list[tuple[int, int]]] = {}
        """For each demand, how long promised jobs run, and from when on."""

    @cached_property
    def _timelines(self) -> list[tuple[Dimension, Timeline]]:
        """What is free over time in each dimension: of devices first."""
        devices = DevicesByType(self._cluster)
        return [(devices, self._foresee(devices))]

    def blocked(self, job: Standing) -> bool:
        """Let a job be promised a time before any passes it, if there are promises left."""
        if self.left:
            self.left -= 1
            self._lined_up.append(job)
        return self._has_promises

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
        """Promise it a time too; once no promise is left, return the next that ends in time."""
        if not guarantee_of(self._cluster).ever_starts(job.shape):
            return Next.NONE
        if self._has_promises:
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
    def _has_promises(self) -> bool:
        return self.left > 0 and not self.stuck

    def promise(self, job: Standing) -> Instant | None:
        """Promise a job that cannot start now the earliest time later on; None if unknown."""
        if not self.left:
            return None
        self.left -= 1
        self._settle()
        return self._promise(job)

    def _settle(self) -> None:
        for job in self._lined_up:
            self._promise(job)
        self._lined_up.clear()

    def _promise(self, job: Standing) -> Instant | None:
        if self.stuck:
            return None
        run, wanted = self._left_of(job), self._wanted(job)
        known = self._since.setdefault(tuple(wants for wants, _ in wanted), [])
        # It was refused a place now: not before something changes is there another. And one
        # that wants as much for no less long cannot start before one promised already.
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
        if self._grounds is GUARANTEED and shape.pin not in self._pins:
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
            aside=set_aside(cluster.windows, self._shape, now),
            evicted_at=now if self._grounds is GUARANTEED else None,
        )
        return forecast.timeline(dimension)

    def _left_of(self, job: Standing) -> int:
        run_ms = self._estimates.run_ms(job)
        return FOREVER if run_ms is None else max(1, job.left_of(run_ms))
