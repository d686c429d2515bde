"""The jobs that could start now, grouped by shape, and in what order those of each queue come.

All jobs of one shape fit or wait alike, so once a shape does not fit its whole group is
passed over. Held jobs and those that wait for a dependency, a back-off or an array cap are
not here; the engine brings them when their time comes.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice

from allotment.core.equivalence import PASSING, Cursor, EquivalenceClasses
from allotment.core.gang import Standing
from allotment.core.overtaking import Overtaking, overtaking_of
from allotment.core.ports import Estimates, Ordering
from allotment.core.rank import Key, Rank
from allotment.core.request import Shape
from allotment.model.ids import JobId
from allotment.model.quantity import Instant
from allotment.model.tenancy import QueueOrder, RankBy, Tenant


class Pending:
    """Sorted groups of waiting jobs; `estimates` say how long they run, where that is asked.

    With `classes` the pass goes class by class, else shape by shape.
    """

    def __init__(
        self,
        ordering: Ordering,
        estimates: Estimates | None = None,
        classes: EquivalenceClasses | None = None,
        overtaking: Overtaking | None = None,
    ) -> None:
        self._ordering = ordering
        self.overtaking = overtaking
        """How often jobs were overtaken, where that is bounded."""
        self._classes = classes
        self._lengths = _Lengths(estimates) if estimates is not None else None
        self._groups: dict[Shape, list[Key]] = {}
        self._queues: dict[tuple[str, str], dict[Shape, list[Key]]] = {}
        """The same groups by tenant and queue."""
        self._sizes: dict[int, int] = {}
        """How many shapes there are that ask for so many whole devices."""
        self._jobs: dict[JobId, tuple[Standing, Key]] = {}
        self.until: list[tuple[Instant, JobId]] = []
        """Up to when the ranks of jobs hold: a heap."""
        self.came: set[Shape] = set()
        """Shapes of which jobs came since the whole queue was last looked through."""
        self.arrivals = 0
        """Grows with every job that comes, and with what else lets a pass find more to do."""

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: JobId) -> bool:
        return job in self._jobs

    def __getitem__(self, job: JobId) -> Standing:
        return self._jobs[job][0]

    def get(self, job: JobId) -> Standing | None:
        """Return how a job stands in its queue; None if it does not wait."""
        found = self._jobs.get(job)
        return None if found is None else found[0]

    def add(self, job: Standing, now: Instant) -> None:
        """Add a waiting job. O(log n) comparisons."""
        rank = self._ordering.rank(job, now)
        key = (rank.key, job.id)
        self._jobs[job.id] = (job, key)
        group = self._groups.get(job.shape)
        if group is None:
            shape = job.shape
            group = self._groups[shape] = [key]
            self._sizes[shape.devices] = self._sizes.get(shape.devices, 0) + 1
            self._queues.setdefault((shape.tenant, shape.queue), {})[shape] = group
            if self._classes is not None:
                self._classes.opened(shape, key)
        elif key > group[-1]:
            group.append(key)
        else:
            if self._classes is not None and key < group[0]:
                self._classes.moved(job.shape, group[0], key)
            insort(group, key)
        if self._lengths is not None:
            self._lengths.add(job, key)
        if self.overtaking is not None:
            self.overtaking.came((job.shape.tenant, job.shape.queue), key)
        if rank.until is not None:
            heappush(self.until, (rank.until, job.id))
        self.came.add(job.shape)
        self.arrivals += 1

    def remove(self, job: JobId) -> Standing | None:
        """Take a job out of its queue, and say how it stood there; it need not be there."""
        found = self._jobs.pop(job, None)
        if found is None:
            return None
        standing, key = found
        group = self._groups[standing.shape]
        place = 0 if group[0] is key else bisect_left(group, key)
        del group[place]
        if self._lengths is not None:
            self._lengths.remove(standing, key)
        if self.overtaking is not None and self.overtaking.left(job):
            self.arrivals += 1  # The jobs that it held up may start.
        if not group:
            self._close(standing.shape, key)
        elif self._classes is not None and not place:
            self._classes.moved(standing.shape, key, group[0])
        return standing

    def look_again(self) -> None:
        """Count every waiting job as if it came now: what kept it back may do so no longer."""
        self.came.update(self._groups)
        self.arrivals += 1

    def again(self, job: Standing, now: Instant) -> None:
        """Let a job stand anew: it has not left its queue."""
        if self.overtaking is not None and (counted := self.overtaking.of(job.id)) is not None:
            self.overtaking.recall({job.id: counted[0]})
        self.remove(job.id)
        self.add(job, now)

    def _close(self, shape: Shape, last: Key) -> None:
        """Forget a shape of which no job waits any longer."""
        del self._groups[shape]
        self._sizes[shape.devices] -= 1
        if not self._sizes[shape.devices]:
            del self._sizes[shape.devices]
        line = (shape.tenant, shape.queue)
        groups = self._queues[line]
        del groups[shape]
        if not groups:
            del self._queues[line]
        if self._lengths is not None:
            self._lengths.forget(shape)
        if self._classes is not None:
            self._classes.closed(shape, last)

    def shapes(self) -> Iterable[Shape]:
        """Return the shapes that wait, or their classes, in no particular order."""
        return self._groups if self._classes is None else self._classes

    def head(self, shape: Shape) -> Key:
        """Return the place in job order of the first of a shape."""
        return self._groups[shape][0]

    def all_larger(self, devices: int) -> bool:
        """Whether jobs wait, and all of them ask for more whole devices than that. O(sizes)."""
        for size in self._sizes:  # noqa: SIM110 - a generator would cost more than the question
            if size <= devices:
                return False
        return bool(self._sizes)

    def of(self, shape: Shape) -> list[JobId]:
        """Return the jobs of a shape, in order."""
        return [job for _, job in self._groups.get(shape, ())]

    def all(self) -> list[Standing]:
        """Return every waiting job, in no particular order."""
        return [job for job, _ in self._jobs.values()]

    def key(self, job: JobId) -> Key:
        """Return the place of a job in job order."""
        return self._jobs[job][1]

    def rerank(self, now: Instant) -> None:
        """Ask anew for the ranks that hold no longer."""
        due: set[JobId] = set()
        while self.until and self.until[0][0] <= now:
            due.add(heappop(self.until)[1])
        for job in sorted(due):
            if job in self._jobs:
                self.again(self[job], now)

    def next_to_end(self, job: Standing, most_ms: int) -> Key | None:
        """Return next of a job's shape, behind it, that runs for at most so long."""
        lengths, shape = self._lengths, job.shape
        assert lengths is not None, "no policy says how long jobs run"
        group = self._groups[shape]
        if shape not in lengths:
            lengths.follow(shape, (self._jobs[key[1]] for key in group))
        return lengths.next(shape, group, self._jobs[job.id][1], most_ms)

    def in_order(
        self,
        skip: set[Shape],
        leap: dict[Shape, Key] | None = None,
        among: Iterable[Shape] | None = None,
    ) -> Iterator[Standing]:
        """Go through all jobs in order, leaving out shapes as soon as they are in `skip`.

        O(groups) to begin, then O(log n) a job: a blocked group costs one step. Jobs may
        leave their queues while it goes on. Of a shape put in `leap` the next is that one.
        `among` are the shapes to go through; None for all. With classes, those may be in `skip`
        too, and it is O(classes) to begin.
        """
        leap = {} if leap is None else leap
        if self._classes is not None:
            return self._by_class(self._classes, skip, leap)
        return self._by_shape(skip, leap, among)

    def _by_shape(
        self, skip: set[Shape], leap: dict[Shape, Key], among: Iterable[Shape] | None
    ) -> Iterator[Standing]:
        groups = self._groups.items()
        if among is not None:
            groups = [(shape, self._groups[shape]) for shape in among]
        heads = [
            (group[0], number, shape)
            for number, (shape, group) in enumerate(groups)
            if shape not in skip
        ]
        heapify(heads)
        while heads:
            key, number, shape = heappop(heads)
            found = self._jobs.get(key[1])
            if found is not None:
                yield found[0]
            if shape in skip:
                continue
            group = self._groups.get(shape)
            if group is None:
                continue
            if shape in leap:
                place = bisect_left(group, leap.pop(shape))
            else:
                place = bisect_right(group, key) if group[0] <= key else 0
            if place < len(group):
                heappush(heads, (group[place], number, shape))

    def _by_class(
        self, classes: EquivalenceClasses, skip: set[Shape], leap: dict[Shape, Key]
    ) -> Iterator[Standing]:
        cursors = [
            Cursor(eclass, classes, self._groups) for eclass in classes if eclass not in skip
        ]
        heads = [
            (head[0], number, cursor)
            for number, cursor in enumerate(cursors)
            if (head := cursor.next(skip, leap)) is not None
        ]
        heapify(heads)
        while heads:
            key, number, cursor = heappop(heads)
            found = self._jobs.get(key[1])
            if found is not None:
                yield found[0]
            if cursor.eclass not in skip and (head := cursor.next(skip, leap)) is not None:
                heappush(heads, (head[0], number, cursor))

    def first_of(self, shape: Shape, besides: Container[JobId], at: Key) -> Key | None:
        """Return the place of the first of a shape from some place on, but for some jobs."""
        group = self._groups[shape]
        behind = islice(group, bisect_left(group, at), None)
        return next((key for key in behind if key[1] not in besides), None)

    def shapes_beside(self, job: Standing) -> Iterable[Shape]:
        """Return the shapes of a job's queue of which some job waits."""
        return self._beside(job)

    def ahead(self, job: Standing) -> Iterator[Iterator[Standing]]:
        """Return the jobs of the same queue that come before, in order, shape by shape."""
        key = self.key(job.id)
        for group in self._beside(job).values():
            before = bisect_left(group, key)
            if before:
                yield self._first(group, before)

    def _beside(self, job: Standing) -> dict[Shape, list[Key]]:
        """Return the groups of a job's queue."""
        return self._queues[job.shape.tenant, job.shape.queue]

    def _first(self, group: list[Key], count: int) -> Iterator[Standing]:
        return (self._jobs[key[1]][0] for key in islice(group, count))

    def ahead_of(self, job: Standing) -> tuple[int, JobId | None]:
        """Count the jobs of the same queue that come before, and name the first of all."""
        key = self.key(job.id)
        count = 0
        first: Key | None = None
        for group in self._beside(job).values():
            count += bisect_left(group, key)
            if group[0] < key and (first is None or group[0] < first):
                first = group[0]
        return count, first[1] if first else None


class _Lengths:
    """For each shape, its waiting jobs by how long they would run yet, for backfilling.

    That asks again and again for the next job of a shape that ends by some instant. Kept are
    only shapes that were asked for once, and of them jobs that are known to end.
    """

    def __init__(self, estimates: Estimates) -> None:
        self._estimates = estimates
        self._sorted: dict[Shape, list[tuple[int, Key]]] = {}
        self._left: dict[Shape, dict[JobId, int]] = {}

    def __contains__(self, shape: Shape) -> bool:
        return shape in self._sorted

    def follow(self, shape: Shape, jobs: Iterable[tuple[Standing, Key]]) -> None:
        """Begin to keep a shape, whose waiting jobs these are. O(n log n)."""
        self._sorted[shape], self._left[shape] = [], {}
        for job, key in jobs:
            self.add(job, key)

    def forget(self, shape: Shape) -> None:
        """Keep a shape no longer: no job of it waits."""
        self._sorted.pop(shape, None)
        self._left.pop(shape, None)

    def add(self, job: Standing, key: Key) -> None:
        """Note a job that waits, if its shape is kept. O(log n) comparisons."""
        lengths = self._sorted.get(job.shape)
        if lengths is None:
            return
        run_ms = self._estimates.run_ms(job)
        if run_ms is not None:
            left = self._left[job.shape][job.id] = job.left_of(run_ms)
            insort(lengths, (left, key))

    def remove(self, job: Standing, key: Key) -> None:
        """Remove a job."""
        lengths = self._sorted.get(job.shape)
        if lengths is None:
            return
        left = self._left[job.shape].pop(job.id, None)
        if left is not None:
            del lengths[bisect_left(lengths, (left, key))]

    def next(self, shape: Shape, group: Sequence[Key], after: Key, most_ms: int) -> Key | None:
        """Return the first job behind `after` that runs for at most so long.

        `group` are the keys of the shape. They are looked through until as many were met
        in vain as are short enough: then only those are compared.
        """
        lengths, left = self._sorted[shape], self._left[shape]
        short = bisect_right(lengths, most_ms, key=_left_of)
        begin = bisect_right(group, after)
        for key in group[begin : begin + short]:
            if left.get(key[1], most_ms + 1) <= most_ms:
                return key
        if begin + short >= len(group):
            return None
        return min((key for _, key in lengths[:short] if key > after), default=None)


def _left_of(entry: tuple[int, Key]) -> int:
    return entry[0]


# ── the order of each queue ───────────────────────────────────────────────────────────────


EASY, CONSERVATIVE, SKIP = QueueOrder.EASY, QueueOrder.CONSERVATIVE, QueueOrder.SKIP


class QueueOrders:
    """The orders of all queues of a configuration."""

    def __init__(
        self,
        tenants: Sequence[Tenant],
        ordering: Ordering,
        ranking: Mapping[RankBy, Ordering],
    ) -> None:
        """`ordering` is that of queues that name none, `ranking` those that may be named."""
        queues = [(tenant.name, queue) for tenant in tenants for queue in tenant.queues]
        self.by_queue = {(tenant, queue.name): queue.order for tenant, queue in queues}
        orders = set(self.by_queue.values())
        self.overtaking = overtaking_of(tenants)
        """How often jobs were overtaken, in queues where that is bounded; None without any."""
        self.all_skip = self.overtaking is None and orders <= {SKIP}
        """Whether no job holds up another in any queue."""
        self.any_skip = SKIP in orders
        """Whether there is a queue in which no job holds up another."""
        self.plan_ahead = bool({EASY, CONSERVATIVE} & orders)
        """Whether any queue goes by when placed gangs will end."""
        named = {
            (tenant, queue.name): ranking[queue.rank]
            for tenant, queue in queues
            if queue.rank is not RankBy.SUBMITTED
        }
        self.ranks_apart = bool(named)
        """Whether any queue ranks its jobs otherwise than the cluster does."""
        self.ordering = ByQueue(ordering, named) if named else ordering
        self.by_run_times = self.plan_ahead or any(
            queue.rank is RankBy.SHORTEST for _, queue in queues
        )
        """Whether any queue goes by how long jobs run."""

    def of(self, shape: Shape) -> QueueOrder:
        """Return the order of a shape's queue, or of a class; of one that is gone, strict."""
        if shape.queue == PASSING:
            return SKIP
        return self.by_queue.get((shape.tenant, shape.queue), QueueOrder.STRICT)


class ByQueue:
    """Ask the ordering of a job's queue; ranks of different queues are not to be compared."""

    def __init__(self, rest: Ordering, named: Mapping[tuple[str, str], Ordering]) -> None:
        """`named` are orderings by tenant and queue; all other queues have `rest`."""
        self._rest = rest
        self._named = named

    def rank(self, job: Standing, now: Instant) -> Rank:
        ordering = self._named.get((job.shape.tenant, job.shape.queue), self._rest)
        return ordering.rank(job, now)
