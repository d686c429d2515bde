"""Conservative backfilling: everybody who waits has a promise in time, and nobody breaks it.

Jobs of a queue are looked at in order. Who can start now without being in the way of those
before it, starts; everybody else is given the earliest stretch of time, by what is known of
run times, in which enough devices are free beside all promises made before. Made anew at
each pass, so whoever ends early moves promises forward.

Source: Mu'alem and Feitelson, TPDS 12(6), 2001. Bad at: time, as each promise is looked for
in a profile of all ends and promises; hence at most `DEPTH` of them are made for a queue.
Later jobs start only beside these. Counted are devices by type: where they are free, and
CPU and memory, are left to the placement. Of whom it is not known when it could start, all
behind it wait.
"""

from collections.abc import Iterator, Set

from allotment.core.cluster import Cluster
from allotment.core.ever import ever_starts
from allotment.core.gang import Gang, Standing
from allotment.core.owed import owed_ever
from allotment.core.own_share import given_back, left_of
from allotment.core.ports import Estimates
from allotment.core.profile import FOREVER, Amounts, Profile, Want
from allotment.core.request import Shape
from allotment.core.windows import set_aside
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import Instant
from allotment.model.reasons import Blocked, Reason

DEPTH = 100
"""Waiting jobs of a queue that are given a promise in one pass."""


class Promises:
    """The promises of one queue during one pass."""

    def __init__(
        self, cluster: Cluster, shape: Shape, now: Instant, grounds: Entitlement
    ) -> None:
        estimates = cluster.policies.estimates
        assert estimates is not None, "a queue in conservative order needs estimates"
        self._estimates = estimates
        self.now = now
        self.profile = profile_of(cluster, shape, now, estimates)
        owed = grounds is Entitlement.GUARANTEED
        self.share = share_of(cluster, shape.tenant, now, estimates) if owed else None
        """What is left of the tenant's own share, where that is counted and bounds anything."""
        self.stuck = False
        """Whether it is not known when somebody starts: then nobody passes."""
        self.left = DEPTH
        self._since: dict[tuple[Want, ...], list[tuple[int, int]]] = {}
        """For each want, how long those ran who were promised, and from when on."""

    def admits(self, job: Standing, now: Instant) -> bool:
        """Tell whether a job may start now."""
        if self.stuck:
            return False
        wants, run = wants_of(job.shape), self._left_of(job)
        return self.profile.fits(wants, run, now) is not None and (
            self.share is None or self.share.fits(_in_all(wants), run, now) is not None
        )

    def took(self, job: Standing, now: Instant) -> None:
        """Count a job that did start."""
        wants, run = wants_of(job.shape), self._left_of(job)
        found = self.profile.earliest(wants, run, now)
        if found is not None:
            self._take(wants, now, run, found[1])

    def promise(self, job: Standing) -> Instant | None:
        """Promise a job that cannot start now the earliest time later on; None if unknown."""
        if self.stuck or not self.left:
            return None
        self.left -= 1
        wants, run = wants_of(job.shape), self._left_of(job)
        known = self._since.setdefault(wants, [])
        # Who wants as much for no less long cannot start before who was promised already.
        after = max((at for ran, at in known if ran <= run), default=self.now + 1)
        found = self._earliest(wants, run, after)
        if found is None:
            self.stuck = True
            return None
        at, amounts = found
        known.append((run, at))
        self._take(wants, at, run, amounts)
        return at

    def _earliest(
        self, wants: tuple[Want, ...], run: int, after: int
    ) -> tuple[Instant, Amounts] | None:
        """Find when so much is free for so long, and left of the share; None if never."""
        found = self.profile.earliest(wants, run, after)
        if self.share is None:
            return found
        while found is not None:
            owed = self.share.earliest(_in_all(wants), run, found[0])
            if owed is None or owed[0] == found[0]:
                return None if owed is None else found
            found = self.profile.earliest(wants, run, owed[0])
        return None

    def _take(self, wants: tuple[Want, ...], at: Instant, run: int, amounts: Amounts) -> None:
        end = min(at + run, FOREVER)
        self.profile.take(at, end, amounts)
        if self.share is not None:
            self.share.take(at, end, {_OWN: sum(milli for milli, _ in wants)})

    def longest(self, job: Standing) -> int:
        """Say for how long a job like this could run from now on."""
        if self.stuck:
            return 0
        wants = wants_of(job.shape)
        most = self.profile.longest(wants, self.now)
        if self.share is None:
            return most
        return min(most, self.share.longest(_in_all(wants), self.now))

    def _left_of(self, job: Standing) -> int:
        run_ms = self._estimates.run_ms(job)
        return FOREVER if run_ms is None else max(1, job.left_of(run_ms))


def delayed_by(
    cluster: Cluster, waiting: Standing, now: Instant, grounds: Entitlement
) -> JobId | None:
    """Name the first of those before a job whom it would delay by starting now, if any.

    `grounds` are its own. Who will never be owed a place holds up nobody who is.
    """
    pending = cluster.pending
    ahead = sorted(
        (job for group in pending.ahead(waiting) for job in group),
        key=lambda j: pending.key(j.id),
    )
    made = Promises(cluster, waiting.shape, now, grounds)
    for job in ahead[:DEPTH]:
        if job.id in cluster.reservations:
            continue
        if grounds is Entitlement.GUARANTEED and not owed_ever(cluster, job.shape):
            continue
        if not ever_starts(cluster, job.shape):
            continue
        made.promise(job)
        if not made.admits(waiting, now):
            return job.id
    return None


def beside_promises(ahead: JobId, queue: str) -> Blocked:
    """Say whom a job would delay."""
    return Blocked(
        Reason.BEHIND,
        f"Job {ahead} is before it in queue {queue}, and could start later than it is promised "
        "if this one went first.",
        hint=f"See `allot why {ahead}`.",
    )


def wants_of(shape: Shape) -> tuple[Want, ...]:
    """Say how many thousandths of which types a gang needs."""
    return tuple(
        (request.need.gpu_milli * request.count, request.types)
        for request in shape.requests
        if request.need.gpu_milli
    )


_OWN = "own"
"""What a tenant's own share is counted under: of no type."""


def _in_all(wants: tuple[Want, ...]) -> tuple[Want, ...]:
    """Say how much a gang needs of its tenant's share."""
    return ((sum(milli for milli, _ in wants), ()),)


def share_of(
    cluster: Cluster, tenant: str, now: Instant, estimates: Estimates
) -> Profile | None:
    """Say what will be left of a tenant's own share when; None where it bounds nothing."""
    left = left_of(cluster, tenant)
    if left is None:
        return None
    ends = sorted(given_back(cluster, tenant, now, estimates))
    return Profile(now, {_OWN: left}, [(at, {_OWN: milli}) for at, milli in ends])


def profile_of(cluster: Cluster, shape: Shape, now: Instant, estimates: Estimates) -> Profile:
    """Say what will be free when, for jobs of a queue. O(devices + gangs log gangs).

    The ledger has taken what is promised. Where others have yet to leave, less than nothing
    is free: that counts from the next moment on, in which who leaves is taken to be gone.
    What is fenced for the job looked at just now counts too: windows take it for their time.
    """
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
    ends = [*_ends(cluster, now, estimates), *_ends_of_promised(cluster, there, now, estimates)]
    if owed:
        ends.append((now + 1, owed))
    profile = Profile(now, free, sorted(ends, key=lambda one: one[0]))
    for span, nodes in set_aside(cluster.windows, shape, now).items():
        _shut(cluster, profile, span, there & nodes, now, estimates)
    return profile


def _ends(
    cluster: Cluster, now: Instant, estimates: Estimates
) -> Iterator[tuple[int, Amounts]]:
    """Say when running gangs are gone, and what they give back."""
    for gang in cluster.holders():
        end = None if gang.suspended else _end_of(gang, now, estimates)
        if end is not None:
            yield end, _amounts(cluster, gang.slots)


def _ends_of_promised(
    cluster: Cluster, nodes: Set[NodeId], now: Instant, estimates: Estimates
) -> Iterator[tuple[int, Amounts]]:
    """Say when those would be gone that are promised a place there, if they had it now."""
    for job, promise in sorted(cluster.reservations.items()):
        gang = cluster.gangs.get(job)
        standing = gang.standing if gang is not None else cluster.pending[job]
        run_ms = estimates.run_ms(standing)
        if run_ms is not None:
            left = max(1, standing.left_of(run_ms))
            yield now + left, _amounts(cluster, promise.slots, nodes)


def _end_of(gang: Gang, now: Instant, estimates: Estimates) -> int | None:
    """Say when a gang is expected to be gone; who leaves, any moment."""
    if gang.leaving:
        return now + 1
    run_ms = estimates.run_ms(gang.standing)
    if run_ms is None:
        return None
    return gang.standing.end_of(run_ms, gang.placed_at, now)


def _amounts(
    cluster: Cluster, slots: tuple[Slot, ...], nodes: Set[NodeId] | None = None
) -> Amounts:
    """Sum up what slots hold by type, on some nodes or on all."""
    amounts = Amounts()
    for slot in slots:
        if slot.devices and (nodes is None or slot.node in nodes):
            types = cluster.ledger.books[slot.node].types
            each = slot.gpu_milli // len(slot.devices)
            for index in slot.devices:
                amounts[types[index]] = amounts.get(types[index], 0) + each
    return amounts


def _shut(
    cluster: Cluster,
    profile: Profile,
    span: tuple[int, int],
    nodes: Set[NodeId],
    now: Instant,
    estimates: Estimates,
) -> None:
    """Take what nodes have that are set aside; of what runs on there, from when it ends."""
    (begin, end), shut = span, Amounts()
    for node in nodes:
        book = cluster.ledger.books[node]
        for index, kind in enumerate(book.types):
            if index not in book.bad:
                shut[kind] = shut.get(kind, 0) + 1_000
    for gang in cluster.holders():
        gone = None if gang.suspended else _end_of(gang, now, estimates)
        if gang.suspended or (gone is not None and gone <= begin):
            continue
        held = _amounts(cluster, gang.slots, nodes)
        for kind, amount in held.items():
            shut[kind] = shut.get(kind, 0) - amount
        if held and gone is not None and gone < end:
            profile.take(gone, end, held)
    profile.take(begin, end, shut)
