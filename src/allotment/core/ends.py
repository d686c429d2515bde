"""Placed gangs by when they are expected to end, for backfilling."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from allotment.core.books import Book
from allotment.core.gang import Gang
from allotment.core.ports import Estimates
from allotment.model.ids import JobId
from allotment.model.quantity import Instant


class Ends(Book):
    """A sorted list of (end, gang, devices). Who is not known to end is left out.

    Who outlives a prediction gets another end (`Standing.end_of`), when the list is read.
    """

    def __init__(self, estimates: Estimates) -> None:
        self._estimates = estimates
        self._sorted: list[tuple[int, JobId, int]] = []
        self._entries: dict[JobId, tuple[int, JobId, int]] = {}
        self._of_tenant: dict[str, list[tuple[int, JobId, int]]] = {}
        """The same by tenant."""
        self._tenants: dict[JobId, str] = {}
        self._guessed: list[tuple[int, JobId]] = []
        """The ends that are predicted, in order."""
        self._gangs: dict[JobId, tuple[Gang, int]] = {}
        """Whose they are, and the run time that is predicted."""

    def enter(self, gang: Gang) -> None:
        """Note a placed gang with what it holds now. Surplus is about to go anyway."""
        run_ms = None if gang.is_surplus else self._estimates.run_ms(gang.standing)
        if run_ms is None:
            return
        standing = gang.standing
        end = gang.placed_at + standing.left_of(run_ms)
        self._tenants[gang.id] = gang.tenant
        self._insert((end, gang.id, gang.held().gpu_milli))
        if standing.predicted_ms >= 0 and standing.limit_ms < 0:
            self._gangs[gang.id] = (gang, run_ms)
            insort(self._guessed, (end, gang.id))

    def leave(self, gang: Gang) -> None:
        """Strike a gang off; it need not be there."""
        job = gang.id
        if gang.is_surplus or job not in self._entries:
            return
        entry = self._strike(job)
        del self._tenants[job]
        if self._gangs.pop(job, None) is not None:
            del self._guessed[bisect_left(self._guessed, entry[:2])]

    def next_guess(self) -> Instant | None:
        """Return when the next of those who are predicted should have ended."""
        return Instant(self._guessed[0][0]) if self._guessed else None

    def outlived(self, now: Instant) -> bool:
        """Give gangs that outlived a prediction another end; whether there were any."""
        if not self._guessed or self._guessed[0][0] > now:
            return False
        while self._guessed[0][0] <= now:
            _, job = self._guessed[0]
            gang, run_ms = self._gangs[job]
            end = gang.standing.end_of(run_ms, gang.placed_at, now)
            del self._guessed[0]
            milli = self._strike(job)[2]
            insort(self._guessed, (end, job))
            self._insert((end, job, milli))
        return True

    def _insert(self, entry: tuple[int, JobId, int]) -> None:
        self._entries[entry[1]] = entry
        insort(self._sorted, entry)
        insort(self._of_tenant.setdefault(self._tenants[entry[1]], []), entry)

    def _strike(self, job: JobId) -> tuple[int, JobId, int]:
        entry, mine = self._entries.pop(job), self._of_tenant[self._tenants[job]]
        del self._sorted[bisect_left(self._sorted, entry)]
        del mine[bisect_left(mine, entry)]
        return entry

    def soonest(self, now: Instant, tenant: str = "") -> Iterator[tuple[int, JobId, int]]:
        """Return (end, gang, devices) of one tenant, or of all, in the order of ends.

        Who is late ends any moment.
        """
        self.outlived(now)
        for end, job, milli in self._of_tenant.get(tenant, ()) if tenant else self._sorted:
            yield max(now + 1, end), job, milli

    def enough(self, wanted: int, free: int, now: Instant) -> tuple[Instant, int] | None:
        """Return at which end `wanted` will be free, and how much in all; None if never.

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
