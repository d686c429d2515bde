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

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, Standing
from allotment.core.ports import Estimates
from allotment.core.profile import FOREVER, Amounts, Profile, Want
from allotment.core.request import Shape
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import Instant
from allotment.model.reasons import Blocked, Reason
from allotment.model.windows import Window

DEPTH = 100
"""Waiting jobs of a queue that are given a promise in one pass."""


class Promises:
    """The promises of one queue during one pass."""

    def __init__(self, cluster: Cluster, shape: Shape, now: Instant) -> None:
        estimates = cluster.policies.estimates
        assert estimates is not None, "a queue in conservative order needs estimates"
        self._estimates = estimates
        self.now = now
        self.profile = profile_of(cluster, shape, now, estimates)
        self.stuck = False
        """Whether it is not known when somebody starts: then nobody passes."""
        self.left = DEPTH
        self._since: dict[tuple[Want, ...], list[tuple[int, int]]] = {}
        """For each want, how long those ran who were promised, and from when on."""

    def admits(self, job: Standing, now: Instant) -> bool:
        """Tell whether a job may start now."""
        if self.stuck:
            return False
        return self.profile.fits(wants_of(job.shape), self._left_of(job), now) is not None

    def took(self, job: Standing, now: Instant) -> None:
        """Count a job that did start."""
        run = self._left_of(job)
        found = self.profile.earliest(wants_of(job.shape), run, now)
        if found is not None:
            self.profile.take(now, min(now + run, FOREVER), found[1])

    def promise(self, job: Standing) -> Instant | None:
        """Promise a job that cannot start now the earliest time later on; None if unknown."""
        if self.stuck or not self.left:
            return None
        self.left -= 1
        wants, run = wants_of(job.shape), self._left_of(job)
        known = self._since.setdefault(wants, [])
        # Who wants as much for no less long cannot start before who was promised already.
        after = max((at for ran, at in known if ran <= run), default=self.now + 1)
        found = self.profile.earliest(wants, run, after)
        if found is None:
            self.stuck = True
            return None
        at, amounts = found
        known.append((run, at))
        self.profile.take(at, min(at + run, FOREVER), amounts)
        return at

    def longest(self, job: Standing) -> int:
        """Say for how long a job like this could run from now on."""
        return 0 if self.stuck else self.profile.longest(wants_of(job.shape), self.now)

    def _left_of(self, job: Standing) -> int:
        run_ms = self._estimates.run_ms(job)
        return FOREVER if run_ms is None else max(1, run_ms - job.served_ms)


def delayed_by(cluster: Cluster, waiting: Standing, now: Instant) -> JobId | None:
    """Name the first of those before a job whom it would delay by starting now, if any."""
    pending = cluster.pending
    ahead = sorted(
        (job for group in pending.ahead(waiting) for job in group),
        key=lambda j: pending.key(j.id),
    )
    made = Promises(cluster, waiting.shape, now)
    for job in ahead[:DEPTH]:
        if job.id in cluster.reservations:
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


def profile_of(cluster: Cluster, shape: Shape, now: Instant, estimates: Estimates) -> Profile:
    """Say what will be free when, for jobs of a queue. O(devices + gangs log gangs)."""
    books = cluster.ledger.books.values()
    free = {kind: 0 for book in books for kind in book.types}
    for book in books:
        for index, milli in enumerate(book.device_milli) if book.open else ():
            if milli > 0 and index not in book.bad:
                free[book.types[index]] += milli
    profile = Profile(now, free, _ends(cluster, now, estimates))
    _enter_promises(cluster, profile, now, estimates)
    for window in cluster.windows.all:
        if not window.admits(shape.tenant, shape.queue, shape.user):
            _shut(cluster, profile, window, now, estimates)
    return profile


def _ends(cluster: Cluster, now: Instant, estimates: Estimates) -> list[tuple[int, Amounts]]:
    """Say when running gangs are gone, in the order of time, and what they give back."""
    ends = [
        (end, _amounts(cluster, gang.slots))
        for gang in cluster.holders()
        if not gang.suspended and (end := _end_of(gang, now, estimates)) is not None
    ]
    ends.sort(key=lambda one: one[0])
    return ends


def _enter_promises(
    cluster: Cluster, profile: Profile, now: Instant, estimates: Estimates
) -> None:
    """Enter what is promised a place that others have yet to leave."""
    for job, promise in sorted(cluster.reservations.items()):
        if job in cluster.pending:
            run = estimates.run_ms(cluster.pending[job])
            end = FOREVER if run is None else now + run
            profile.take(now, end, _amounts(cluster, promise.slots))


def _end_of(gang: Gang, now: Instant, estimates: Estimates) -> int | None:
    """Say when a gang is expected to be gone; who leaves, any moment."""
    if gang.leaving:
        return now + 1
    run_ms = estimates.run_ms(gang.standing)
    if run_ms is None:
        return None
    return gang.standing.end_of(run_ms, gang.placed_at, now)


def _amounts(
    cluster: Cluster, slots: tuple[Slot, ...], nodes: frozenset[NodeId] | None = None
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
    cluster: Cluster, profile: Profile, window: Window, now: Instant, estimates: Estimates
) -> None:
    """Take what nodes have that are set aside, but what runs on there meanwhile."""
    nodes = frozenset(node for node in window.nodes if node in cluster.ledger.books)
    shut = Amounts()
    for node in nodes:
        book = cluster.ledger.books[node]
        for index, kind in enumerate(book.types):
            if book.open and index not in book.bad:
                shut[kind] = shut.get(kind, 0) + 1_000
    for gang in cluster.holders():
        end = _end_of(gang, now, estimates)
        if not gang.suspended and (end is None or end > max(now, window.begin)):
            for kind, amount in _amounts(cluster, gang.slots, nodes).items():
                shut[kind] = shut.get(kind, 0) - amount
    profile.take(max(now, window.begin), window.end, shut)
