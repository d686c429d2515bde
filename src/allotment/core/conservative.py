"""Conservative backfilling: everybody who waits has a promise in time, and nobody breaks it.

Jobs of a queue are looked at in order. Who can start now without being in the way of those
before it, starts; everybody else is given the earliest stretch of time, by what is known of
run times, in which enough is free beside all promises made before. Made anew at each pass,
so whoever ends early moves promises forward.

Source: Mu'alem and Feitelson, TPDS 12(6), 2001. Bad at: time, as each promise is looked for
in a profile of all ends and promises; hence at most `DEPTH` of them are made for a queue.
Later jobs start only beside these. Counted are devices by type, what the machines have
beside them, and, on the tenant's own grounds, its share: in what portions it is free where
is left to the placement. Of whom it is not known when it could start, all behind it wait.
"""

from collections.abc import Iterator, Mapping, Set
from functools import cached_property

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.discipline import Filter, Next
from allotment.core.gang import Gang, Standing
from allotment.core.guarantee import guarantee_of
from allotment.core.lengths import Key
from allotment.core.measures import (
    DevicesByType,
    Holding,
    Hosts,
    Measure,
    given_by,
    holding_of,
    place_of,
    promised_to,
    subtract,
)
from allotment.core.own_share import counts_types, own_share
from allotment.core.ports import Estimates
from allotment.core.profile import FOREVER, Amounts, Profile, Want
from allotment.core.request import Shape
from allotment.core.windows import set_aside
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import Instant
from allotment.model.reasons import Blocked, Reason

Wanted = list[tuple[tuple[Want, ...], Profile]]

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
        self._course = Course(cluster, now, estimates, grounds)
        self._lined_up: list[Standing] = []
        """Those to be promised a time as soon as a job asks whether it may start."""
        self._hosts: Hosts | None = Hosts(cluster)
        """Counted as well from the first on who wants something of them; None then."""
        self._pins: set[str] = set()
        """Of which pinned cells, or '' for the others, the tenant's own share is counted."""
        self._wanted_by: dict[Shape, Wanted] = {}
        self.stuck = False
        """Whether it is not known when one of them starts: then none passes."""
        self.left = DEPTH
        self._since: dict[tuple[tuple[Want, ...], ...], list[tuple[int, int]]] = {}
        """For each want, how long those ran who were promised, and from when on."""

    @cached_property
    def _profiles(self) -> list[tuple[Measure, Profile]]:
        """What is free over time by each measure: by devices first."""
        devices = profile_of(self._course, self._shape)
        return [(DevicesByType(self._cluster), devices)]

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
        for wants, profile in self._wanted(job):
            if profile.fits(wants, run, self.now) is None:
                return None
        several = len(self._cluster.device_types) > 1
        spares = [
            profile.least(run, self.now)
            for measure, profile in (self._profiles if several else ())
            if counts_types(measure) and measure.wants(job.shape)
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
        held = place_of(self._cluster, job.id)
        if held is not None:
            end = min(self.now + self._left_of(job), FOREVER)
            for measure, profile in self._profiles:
                profile.take(self.now, end, given_by(measure, held))

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
        # It was refused a place now: not before something changes is there another. And who
        # wants as much for no less long cannot start before who was promised already.
        changes = [at for _, free in wanted if (at := free.next_step(self.now)) is not None]
        after = min(changes, default=self.now + 1)
        after = max([after, *(at for ran, at in known if ran <= run)])
        found = _earliest(wanted, run, after)
        if found is None:
            self.stuck = True
            return None
        at, amounts = found
        known.append((run, at))
        _take(wanted, at, run, amounts)
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
        self._measure_own(shape)
        if self._hosts is not None and self._hosts.wants(shape):
            hosts, self._hosts = self._hosts, None
            owed = hosts.owed(self._cluster.shut_nodes())
            self._measure(hosts, owed)
        # Devices come last: to look for these takes the most time.
        measured = [*self._profiles[1:], self._profiles[0]]
        known = [(wants, free) for measure, free in measured if (wants := measure.wants(shape))]
        self._wanted_by[shape] = known
        return known

    def _measure_own(self, shape: Shape) -> None:
        """Count the part of its tenant's share that a gang would start in, from now on."""
        if self._course.grounds is not GUARANTEED or shape.pin in self._pins:
            return
        self._pins.add(shape.pin)
        own = own_share(self._cluster, shape)
        if own is not None:
            self._measure(own, {})

    def _measure(self, measure: Measure, owed: Mapping[str, int]) -> None:
        """Count by one more measure what will be free when. O(gangs log gangs).

        What is owed, as others have yet to leave, counts from the next moment on only.
        """
        now, down = self.now, self._cluster.shut_nodes()
        free, ends = measure.free(down), list[tuple[int, Mapping[str, int]]]()
        if owed:
            subtract(free, owed)
            ends.append((now + 1, owed))
        for at, held in self._course.holdings():
            ends += [(at, given) for node, given in measure.gives(held) if node not in down]
        profile = Profile(now, free, sorted(ends, key=lambda one: one[0]))
        self._profiles.append((measure, profile))

    def _left_of(self, job: Standing) -> int:
        run_ms = self._course.estimates.run_ms(job)
        return FOREVER if run_ms is None else max(1, job.left_of(run_ms))


def _earliest(wanted: Wanted, run: int, after: int) -> tuple[Instant, list[Amounts]] | None:
    """Find from when on everything is free together for so long; None if never."""
    if len(wanted) == 1:
        wants, free = wanted[0]
        found = free.earliest(wants, run, after)
        return None if found is None else (found[0], [found[1]])
    at, agreed, taken = after, 0, [Amounts() for _ in wanted]
    while agreed < len(wanted):
        for place, (wants, free) in enumerate(wanted):
            found = free.earliest(wants, run, at)
            if found is None:
                return None
            agreed = agreed + 1 if found[0] == at else 1
            at, taken[place] = found
            if agreed >= len(wanted):
                break
    return Instant(at), taken


def _take(wanted: Wanted, at: Instant, run: int, taken: list[Amounts]) -> None:
    end = min(at + run, FOREVER)
    for (_, profile), amounts in zip(wanted, taken, strict=True):
        profile.take(at, end, amounts)


def beside_promises(ahead: JobId, queue: str) -> Blocked:
    """Report whom a job would delay."""
    return Blocked(
        Reason.BEHIND,
        f"Job {ahead} is before it in queue {queue}, and could start later than it is promised "
        "if this one went first.",
        hint=f"See `allot why {ahead}`.",
    )


class Course(msgspec.Struct, frozen=True):
    """What is known of who ends when, by those who are due on the same grounds."""

    cluster: Cluster
    now: Instant
    estimates: Estimates
    grounds: Entitlement

    def end_of(self, gang: Gang) -> int | None:
        """Return when a gang is expected to be gone; None if nobody knows.

        Who leaves goes any moment; who borrows, at once where somebody is owed a place.
        """
        if gang.suspended:
            return None
        if gang.leaving:
            return self.now + 1
        if self.grounds is GUARANTEED and gang.entitlement is not GUARANTEED:
            return self.now
        run_ms = self.estimates.run_ms(gang.standing)
        if run_ms is None:
            return None
        return gang.standing.end_of(run_ms, gang.placed_at, self.now)

    def holdings(self) -> Iterator[tuple[int, Holding]]:
        """Return who gives back what when: who has a place, and who is promised one."""
        cluster = self.cluster
        for gang in cluster.holders():
            if (end := self.end_of(gang)) is not None:
                yield end, holding_of(gang)
        for job, promise in sorted(cluster.reserved.items()):
            gang = cluster.gangs.get(job)
            standing = gang.standing if gang is not None else cluster.pending[job]
            run_ms = self.estimates.run_ms(standing)
            if run_ms is not None:
                end = self.now + max(1, standing.left_of(run_ms))
                yield end, promised_to(standing.shape.tenant, promise)


def profile_of(course: Course, shape: Shape) -> Profile:
    """Return what will be free when, for jobs of a queue. O(devices + gangs log gangs).

    The ledger has taken what is promised. Where others have yet to leave, less than nothing
    is free: that counts from the next moment on, in which who leaves is taken to be gone.
    What is fenced for the job looked at just now counts too: windows take it for their time.
    """
    cluster, now = course.cluster, course.now
    books, down = cluster.ledger.books, cluster.shut_nodes()
    free = {kind: 0 for book in books.values() for kind in book.types}
    owed = Amounts()
    for node, book in books.items():
        for index, milli in enumerate(book.device_milli) if node not in down else ():
            kind = book.types[index]
            if milli < 0:
                owed[kind] = owed.get(kind, 0) + milli
            elif index not in book.bad:
                free[kind] += milli
    there = books.keys() - down
    ends = [(at, _amounts(cluster, held.slots, there)) for at, held in course.holdings()]
    if owed:
        ends.append((now + 1, owed))
    profile = Profile(now, free, sorted(ends, key=lambda one: one[0]))
    for span, nodes in set_aside(cluster.windows, shape, now).items():
        _shut(course, profile, span, there & nodes)
    return profile


def _amounts(cluster: Cluster, slots: tuple[Slot, ...], nodes: Set[NodeId]) -> Amounts:
    """Sum up what slots hold by type on some nodes."""
    amounts, books = Amounts(), cluster.ledger.books
    for slot in slots:
        if slot.devices and slot.node in nodes:
            types = books[slot.node].types
            each = slot.gpu_milli // len(slot.devices)
            for index in slot.devices:
                amounts[types[index]] = amounts.get(types[index], 0) + each
    return amounts


def _shut(course: Course, profile: Profile, span: tuple[int, int], nodes: Set[NodeId]) -> None:
    """Take what nodes have that are set aside; of what runs on there, from when it ends."""
    (begin, end), shut, cluster = span, Amounts(), course.cluster
    for node in nodes:
        book = cluster.ledger.books[node]
        for index, kind in enumerate(book.types):
            if index not in book.bad:
                shut[kind] = shut.get(kind, 0) + 1_000
    for gang in cluster.holders():
        gone = course.end_of(gang)
        if gang.suspended or (gone is not None and gone <= begin):
            continue
        held = _amounts(cluster, gang.slots, nodes)
        for kind, amount in held.items():
            shut[kind] = shut.get(kind, 0) - amount
        if held and gone is not None and gone < end:
            profile.take(gone, end, held)
    profile.take(begin, end, shut)
