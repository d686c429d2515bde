"""For how long a level was below each of a few sizes, without looking at it all the time."""

from bisect import bisect_left, bisect_right

from allotment.model.quantity import Instant


class Shortage:
    """Adds up, for each watched size, the time during which the level was below it.

    A change of level costs as much as it crosses sizes; asking is O(1). Ask of no instant
    before the latest change.
    """

    def __init__(self, level: int) -> None:
        self.level = level
        self._sizes: list[int] = []
        self._place: dict[int, int] = {}
        self._added: list[int] = []
        self._since: list[int] = []
        self._met = 0
        """How many sizes, smallest first, are not above the level."""

    def change(self, level: int, at: Instant) -> None:
        """Let the level be another from `at` on."""
        if level == self.level:
            return
        self.level = level
        before, after = self._met, bisect_right(self._sizes, level)
        self._met = after
        for place in range(before, after):
            self._added[place] += at - self._since[place]
        for place in range(after, before):
            self._since[place] = at

    def below(self, size: int, at: Instant) -> int:
        """Return for how long the level was below a size; differences of two answers count."""
        place = self._place.get(size)
        if place is None:
            place = self._watch(size, at)
        added = self._added[place]
        return added if place < self._met else added + at - self._since[place]

    def _watch(self, size: int, at: Instant) -> int:
        place = bisect_left(self._sizes, size)
        self._sizes.insert(place, size)
        self._added.insert(place, 0)
        self._since.insert(place, at)
        self._met = bisect_right(self._sizes, self.level)
        self._place = {size: place for place, size in enumerate(self._sizes)}
        return place
