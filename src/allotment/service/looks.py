"""When to look at a thing again: soon while it is new, less often the longer nothing is new."""

from collections.abc import Hashable, Set
from heapq import heappop, heappush
from typing import Generic, TypeVar

SHARE = 16
"""What is new is seen late by a sixteenth of how long nothing was new."""
MOST_S = 5.0

K = TypeVar("K", bound=Hashable)


class Looks(Generic[K]):
    """Keeps when something was new of a thing last, and when it is looked at next."""

    def __init__(self, a_second: int = 0) -> None:
        """So many looks a second cost little, at all things together: what there are few of is
        looked at as often, however long nothing was new."""
        self._a_second = a_second
        self._new: dict[K, float] = {}
        self._next: dict[K, float] = {}
        self._agenda: list[tuple[float, int, K]] = []
        """Looks by their time. One that was moved is there twice."""
        self._count = 0

    def due(self, now: float) -> list[K]:
        """Take what is to be looked at now. The next look at each is planned."""
        found: list[K] = []
        while self._agenda and self._agenda[0][0] <= now:
            at, _, key = heappop(self._agenda)
            if self._next.get(key) == at:
                del self._next[key]
                found.append(key)
        most_s = min(MOST_S, len(self._new) / self._a_second) if self._a_second else MOST_S
        for key in found:
            self._plan(key, now + min(most_s, (now - self._new[key]) / SHARE))
        return found

    def begin(self, key: K, now: float) -> None:
        """Look at a thing from now on, if that is new."""
        if key not in self._new:
            self.news(key, now)

    def only(self, keys: Set[K], now: float) -> None:
        """Look at these from now on, and at no others."""
        for gone in self._new.keys() - keys:
            self.part(gone)
        for key in keys - self._new.keys():
            self.news(key, now)

    def news(self, key: K, now: float) -> None:
        """Look at a thing often again: something is new of it, or soon will be."""
        self._new[key] = now
        self._plan(key, now)

    def again(self, key: K, now: float) -> None:
        """Have another look at a thing, as the last could not be."""
        if key in self._new:
            self._plan(key, now)

    def part(self, key: K) -> None:
        """Forget a thing that has ended."""
        self._new.pop(key, None)
        self._next.pop(key, None)

    def _plan(self, key: K, at: float) -> None:
        self._next[key] = at
        self._count += 1
        heappush(self._agenda, (at, self._count, key))
