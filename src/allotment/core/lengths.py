"""Waiting jobs of one shape by how long they would run yet, for backfilling.

Backfilling asks again and again for the next job of a shape that ends by some instant.
Kept are only shapes that were asked for once.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence

from allotment.core.gang import Standing
from allotment.core.ports import Estimates
from allotment.core.rank import Key
from allotment.core.request import Shape
from allotment.model.ids import JobId


class Lengths:
    """For each shape, its waiting jobs by length. Those not known to end are left out."""

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
        """Strike a job off."""
        lengths = self._sorted.get(job.shape)
        if lengths is None:
            return
        left = self._left[job.shape].pop(job.id, None)
        if left is not None:
            del lengths[bisect_left(lengths, (left, key))]

    def next(self, shape: Shape, group: Sequence[Key], after: Key, most_ms: int) -> Key | None:
        """Return the first job in line behind `after` that runs for at most so long.

        `group` is the line of the shape. Looked through is the line, until as many were met
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
