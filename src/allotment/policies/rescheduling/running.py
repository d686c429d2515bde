"""Placed gangs in the order of their line, worst first, for reschedulers.

Ranks of running jobs move with the clock, each as a straight line. Gangs whose ranks move
at the same pace keep their order among themselves, so they stand in one sorted list for
each pace, and only the ends of these few lists are ever compared.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heappop, heappush

from allotment.core.book import Book
from allotment.core.gang import Gang
from allotment.core.ports import Ordering
from allotment.core.rank import Key, Rank
from allotment.model.ids import JobId
from allotment.model.quantity import Instant


class Running(Book):
    """Sorted gangs, one list for each slope."""

    def __init__(self, ordering: Ordering) -> None:
        self._ordering = ordering
        self._lists: dict[int, list[Key]] = {}
        self._ranks: dict[JobId, Rank] = {}
        self._until: list[tuple[Instant, JobId]] = []

    def enter(self, gang: Gang) -> None:
        """Enter a gang under the rank it has, or had when it began to run or to be suspended.

        Surplus has none.
        """
        if not gang.is_surplus:
            self.add(gang, gang.standing.since or gang.suspended_at or gang.placed_at)

    def leave(self, gang: Gang) -> None:
        """Undo `enter`."""
        if not gang.is_surplus:
            self.remove(gang.id)

    def add(self, gang: Gang, now: Instant) -> None:
        """Enter a gang under the rank it has, or else under its rank as of now."""
        rank = gang.rank
        if rank is None:
            rank = gang.rank = self._ordering.rank(gang.standing, now)
            if rank.until is not None:
                heappush(self._until, (rank.until, gang.id))
        self._ranks[gang.id] = rank
        insort(self._lists.setdefault(rank.slope, []), (rank.key, gang.id))

    def remove(self, job: JobId) -> None:
        rank = self._ranks.pop(job)
        group = self._lists[rank.slope]
        del group[bisect_left(group, (rank.key, job))]
        if not group:
            del self._lists[rank.slope]

    def again(self, gang: Gang, now: Instant) -> None:
        """Enter a gang anew, under its rank as of now."""
        self.remove(gang.id)
        gang.rank = None
        self.add(gang, now)

    def key(self, job: JobId, now: Instant) -> Key:
        """Return a gang's place in job order as of now."""
        rank = self._ranks[job]
        return (_at(rank.key, rank.slope, now), job)

    @property
    def rising(self) -> bool:
        """Whether any gang's rank gets worse by the clock alone."""
        return max(self._lists, default=0) > 0

    def worst(self, now: Instant) -> Key | None:
        """Return the place in job order of the worst-ranked gang."""
        worst: Key | None = None
        for slope, group in self._lists.items():
            key, job = group[-1]
            last = (_at(key, slope, now), job)
            if worst is None or last > worst:
                worst = last
        return worst

    def worst_first(self, after: Key, now: Instant) -> Iterator[JobId]:
        """Return the gangs that rank behind `after`, worst first. O(slopes) a step."""
        ends = [(slope, group, len(group)) for slope, group in self._lists.items()]
        while ends:
            last = max(
                ((_at(group[end - 1][0], slope, now), group[end - 1][1]), place)
                for place, (slope, group, end) in enumerate(ends)
            )
            key, place = last
            if key <= after:
                return
            slope, group, end = ends[place]
            if end > 1:
                ends[place] = (slope, group, end - 1)
            else:
                del ends[place]
            yield key[1]

    def best_first(self, now: Instant) -> list[JobId]:
        """Return all gangs in order. O(n log n)."""
        keys = [
            (_at(key, slope, now), job)
            for slope, group in self._lists.items()
            for key, job in group
        ]
        return [job for _, job in sorted(keys)]

    def next_change(self) -> Instant | None:
        """Return when a rank must be asked anew."""
        return self._until[0][0] if self._until else None

    def due(self, now: Instant) -> list[JobId]:
        """Take the gangs whose ranks hold no longer, lowest id first."""
        if not self._until or self._until[0][0] > now:
            return []
        found: set[JobId] = set()
        while self._until and self._until[0][0] <= now:
            found.add(heappop(self._until)[1])
        return sorted(job for job in found if job in self._ranks)


def _at(key: tuple[int, ...], slope: int, now: Instant) -> tuple[int, ...]:
    return (*key[:-1], key[-1] + slope * now) if slope else key
