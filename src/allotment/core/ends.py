"""Placed gangs by when they are expected to end, for backfilling."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from allotment.core.gang import Gang
from allotment.core.ports import Estimates
from allotment.model.ids import JobId
from allotment.model.quantity import Instant


class Ends:
    """A sorted list of (end, gang, devices). Who is not known to end is left out."""

    def __init__(self, estimates: Estimates) -> None:
        self._estimates = estimates
        self._sorted: list[tuple[int, JobId, int]] = []
        self._entries: dict[JobId, tuple[int, JobId, int]] = {}

    def add(self, gang: Gang) -> None:
        """Note a gang that was placed, with what it holds now."""
        run_ms = self._estimates.run_ms(gang.standing)
        if run_ms is not None:
            end = gang.placed_at + run_ms - gang.standing.served_ms
            entry = self._entries[gang.id] = (end, gang.id, gang.held().gpu_milli)
            insort(self._sorted, entry)

    def remove(self, job: JobId) -> None:
        """Strike a gang off; it need not be there."""
        entry = self._entries.pop(job, None)
        if entry is not None:
            del self._sorted[bisect_left(self._sorted, entry)]

    def soonest(self, now: Instant) -> Iterator[tuple[int, JobId, int]]:
        """Give (end, gang, devices) in the order of ends; who is late ends any moment."""
        for end, job, milli in self._sorted:
            yield max(now + 1, end), job, milli

    def enough(self, wanted: int, free: int, now: Instant) -> tuple[Instant, int] | None:
        """Say at which end `wanted` will be free, and how much in all; None if never.

        In thousandths of devices. Who runs longer than expected is expected to end any
        moment; who ends at one instant ends together. O(gangs that end by then).
        """
        at = 0
        for soonest, _, milli in self.soonest(now):
            if soonest != at and at and free >= wanted:
                break
            at = soonest
            free += milli
        return (Instant(at), free) if at and free >= wanted else None
