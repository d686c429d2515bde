"""Placed gangs by when they are expected to end, and what each releases then."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from itertools import compress

from allotment.core.book import Book
from allotment.core.gang import Gang
from allotment.core.ports import Estimates
from allotment.model.ids import JobId
from allotment.model.quantity import Instant

End = tuple[int, JobId, int]
"""When a gang ends, and how many thousandths of devices it holds."""

Columns = dict[str, list[int]]
"""For each kind of what is counted, how much of it each gang of a list releases."""

Release = Callable[[Gang], Mapping[str, int]]


class _Schedule:
    """Ends in order. What they release is kept beside them once it was asked for."""

    def __init__(self) -> None:
        self.ends: list[End] = []
        self.at: list[int] = []
        """The instants alone."""
        self._kept: dict[str, tuple[Release, Columns]] = {}

    def insert(self, end: End, gang: Gang) -> None:
        at = bisect_left(self.ends, end)
        self.ends.insert(at, end)
        self.at.insert(at, end[0])
        for release, columns in self._kept.values():
            amounts = release(gang)
            for kind in amounts.keys() - columns.keys():
                columns[kind] = [0] * (len(self.ends) - 1)
            for kind, column in columns.items():
                column.insert(at, amounts.get(kind, 0))

    def strike(self, end: End) -> None:
        at = bisect_left(self.ends, end)
        del self.ends[at], self.at[at]
        for _, columns in self._kept.values():
            for column in columns.values():
                del column[at]

    def released(self, name: str, release: Release, gangs: Mapping[JobId, Gang]) -> Columns:
        """Return what each end releases; kept under a name from now on, if there is one."""
        if (kept := self._kept.get(name)) is not None:
            return kept[1]
        amounts = [release(gangs[job]) for _, job, _ in self.ends]
        kinds = dict.fromkeys(kind for each in amounts for kind in each)
        columns = {kind: [each.get(kind, 0) for each in amounts] for kind in kinds}
        if name:
            self._kept[name] = release, columns
        return columns


class Ends(Book):
    """Gangs in the order of their ends, of all tenants and of each. Unknown ends are left out.

    A gang that outlives a prediction gets another end (`Standing.end_of`), when asked for.
    """

    def __init__(self, estimates: Estimates) -> None:
        self._estimates = estimates
        self._all = _Schedule()
        self._of_tenant: dict[str, _Schedule] = {}
        self._entries: dict[JobId, End] = {}
        self._gangs: dict[JobId, Gang] = {}
        self._guessed: list[tuple[int, JobId]] = []
        """The ends that are predicted, in order."""
        self._predicted: dict[JobId, int] = {}
        """The run times of these."""

    def enter(self, gang: Gang) -> None:
        """Note a placed gang with what it holds now. Surplus is about to go anyway."""
        run_ms = None if gang.is_surplus else self._estimates.run_ms(gang.standing)
        if run_ms is None:
            return
        standing = gang.standing
        end = gang.placed_at + standing.left_of(run_ms)
        self._gangs[gang.id] = gang
        self._insert((end, gang.id, gang.held().gpu_milli))
        if standing.predicted_ms >= 0 and standing.limit_ms < 0:
            self._predicted[gang.id] = run_ms
            insort(self._guessed, (end, gang.id))

    def leave(self, gang: Gang) -> None:
        """Remove a gang; it need not be there."""
        job = gang.id
        if gang.is_surplus or job not in self._entries:
            return
        entry = self._strike(job)
        del self._gangs[job]
        if self._predicted.pop(job, None) is not None:
            del self._guessed[bisect_left(self._guessed, entry[:2])]

    def next_guess(self) -> Instant | None:
        """Return when the next of those that are predicted should have ended."""
        return Instant(self._guessed[0][0]) if self._guessed else None

    def outlived(self, now: Instant) -> bool:
        """Move those that outlived a prediction to a later end; return whether any did."""
        if not self._guessed or self._guessed[0][0] > now:
            return False
        while self._guessed[0][0] <= now:
            _, job = self._guessed[0]
            gang = self._gangs[job]
            end = gang.standing.end_of(self._predicted[job], gang.placed_at, now)
            del self._guessed[0]
            milli = self._strike(job)[2]
            insort(self._guessed, (end, job))
            self._insert((end, job, milli))
        return True

    def of(self, job: JobId, now: Instant) -> int | None:
        """Return when a gang ends; None where that is not known. A late one ends any moment."""
        entry = self._entries.get(job)
        return None if entry is None else max(now + 1, entry[0])

    def releases(
        self,
        now: Instant,
        tenant: str,
        without: Collection[JobId],
        name: str,
        release: Release,
    ) -> tuple[list[int], Columns]:
        """Return when gangs of a tenant, or all, end, in order, and what each releases then.

        Late ones end any moment. `release` says what one releases, the same whenever it is
        asked; what it says is kept under `name`. O(gangs) of what runs at the speed of lists.
        """
        self.outlived(now)
        schedule = self._of_tenant.get(tenant) if tenant else self._all
        if schedule is None:
            return [], {}
        columns = schedule.released(name, release, self._gangs)
        late = bisect_right(schedule.at, now)
        at = [now + 1] * late + schedule.at[late:]
        left_out = [each for job in without if (each := self._entries.get(job)) is not None]
        if tenant:
            left_out = [each for each in left_out if self._gangs[each[1]].tenant == tenant]
        if not left_out:
            return at, columns
        stays = bytearray(b"\1") * len(at)
        for entry in left_out:
            stays[bisect_left(schedule.ends, entry)] = 0
        kept = {kind: list(compress(column, stays)) for kind, column in columns.items()}
        return list(compress(at, stays)), kept

    def soonest(self, now: Instant) -> Iterator[End]:
        """Yield the ends of all in order. Late ones end any moment."""
        self.outlived(now)
        for end, job, milli in self._all.ends:
            yield max(now + 1, end), job, milli

    def next_end(self, now: Instant, without: Container[JobId]) -> int | None:
        """Return when the next gang ends but for some; None where that is not known."""
        return next((end for end, job, _ in self.soonest(now) if job not in without), None)

    def enough(self, wanted: int, free: int, now: Instant) -> tuple[Instant, int] | None:
        """Return at which end `wanted` will be free, and how much in all; None if never.

        In thousandths of devices. Those that run longer than expected are expected to end any
        moment; those that end at one instant end together. O(gangs that end by then).
        """
        at = 0
        for soonest, _, milli in self.soonest(now):
            if soonest != at and at and free >= wanted:
                break
            at = soonest
            free += milli
        return (Instant(at), free) if at and free >= wanted else None

    def _insert(self, entry: End) -> None:
        gang = self._gangs[entry[1]]
        self._entries[entry[1]] = entry
        self._all.insert(entry, gang)
        mine = self._of_tenant.get(gang.tenant)
        if mine is None:
            mine = self._of_tenant[gang.tenant] = _Schedule()
        mine.insert(entry, gang)

    def _strike(self, job: JobId) -> End:
        entry = self._entries.pop(job)
        self._all.strike(entry)
        self._of_tenant[self._gangs[job].tenant].strike(entry)
        return entry
