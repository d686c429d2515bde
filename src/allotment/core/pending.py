"""The jobs that could start now, grouped by shape.

All jobs of one shape fit or wait alike, so once a shape does not fit its whole group is
passed over. Held jobs and those that wait for a dependency, a back-off or an array cap are
not here; the engine brings them when their time comes.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from allotment.core.gang import Waiting
from allotment.core.ports import Ordering
from allotment.core.request import Shape
from allotment.model.ids import JobId

Key = tuple[tuple[int, ...], JobId]


class Pending:
    """Sorted groups of waiting jobs."""

    def __init__(self, ordering: Ordering) -> None:
        self._ordering = ordering
        self._groups: dict[Shape, list[Key]] = {}
        self._jobs: dict[JobId, Waiting] = {}
        self.arrivals = 0
        """Grows with every job that comes: a pass may find something to do."""

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: JobId) -> bool:
        return job in self._jobs

    def __getitem__(self, job: JobId) -> Waiting:
        return self._jobs[job]

    def add(self, job: Waiting) -> None:
        """Put a job in line. O(log n) comparisons."""
        self._jobs[job.id] = job
        insort(self._groups.setdefault(job.shape, []), self.key(job))
        self.arrivals += 1

    def remove(self, job: JobId) -> None:
        """Take a job out of the line; it need not be there."""
        waiting = self._jobs.pop(job, None)
        if waiting is None:
            return
        group = self._groups[waiting.shape]
        del group[bisect_left(group, self.key(waiting))]
        if not group:
            del self._groups[waiting.shape]

    def all(self) -> list[Waiting]:
        """Give every job in line, in no particular order."""
        return list(self._jobs.values())

    def key(self, job: Waiting) -> Key:
        return (self._ordering.key(job), job.id)

    def in_order(self, skip: "set[Shape]") -> Iterator[Waiting]:
        """Go through all jobs in order, leaving out shapes as soon as they are in `skip`.

        O(groups) to begin, then O(log groups) a job: a blocked group costs one step.
        """
        heads = [
            (group[0], 0, number, shape)
            for number, (shape, group) in enumerate(self._groups.items())
            if shape not in skip
        ]
        heapify(heads)
        while heads:
            (_, job), place, number, shape = heappop(heads)
            yield self._jobs[job]
            group = self._groups.get(shape)
            if group is not None and shape not in skip and place + 1 < len(group):
                heappush(heads, (group[place + 1], place + 1, number, shape))

    def ahead_of(self, job: Waiting) -> tuple[int, JobId | None]:
        """Count the jobs of the same queue that come before, and name the first of all."""
        key = self.key(job)
        count = 0
        first: Key | None = None
        for shape, group in self._groups.items():
            if (shape.tenant, shape.queue) != (job.shape.tenant, job.shape.queue):
                continue
            count += bisect_left(group, key)
            if group[0] < key and (first is None or group[0] < first):
                first = group[0]
        return count, first[1] if first else None
