"""A clock that runs fast in busy hours: rhythm in, steady time out, and back."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

from allotment.model.quantity import DAY, HOUR
from allotment.sim.generate.curve import DRAW_BITS
from allotment.sim.generate.model import EVEN

HOURS = DAY // HOUR

START_MS = 19_723 * DAY
"""Monday 2024-01-01 00:00 UTC: when a synthetic workload begins."""


def weekday(day: int) -> int:
    """Return the day of the week (Monday is 0) of a day counted since 1970-01-01."""
    return (day + 3) % 7


class Calendar:
    """A cycle of hours, each of a weight; steady time is weight × milliseconds."""

    __slots__ = ("_cycle_ms", "_steady", "_total", "_weights")

    def __init__(self, weights: Sequence[int]) -> None:
        """Take the weights of the hours of a cycle, none below 1."""
        self._weights = weights
        self._cycle_ms = len(weights) * HOUR
        self._steady = list(accumulate((weight * HOUR for weight in weights), initial=0))
        self._total = self._steady.pop()

    def steady(self, at_ms: int) -> int:
        """Return how much steady time has passed at an instant, in ms since the cycle began."""
        cycle, rest_ms = divmod(at_ms, self._cycle_ms)
        hour, left_ms = divmod(rest_ms, HOUR)
        return cycle * self._total + self._steady[hour] + self._weights[hour] * left_ms

    def when(self, steady: int) -> int:
        """Return at which instant so much steady time has passed; the inverse of `steady`."""
        cycle, rest = divmod(steady, self._total)
        hour = bisect_right(self._steady, rest) - 1
        into_ms = (rest - self._steady[hour]) // self._weights[hour]
        return cycle * self._cycle_ms + hour * HOUR + into_ms


def weekly(
    hours: Sequence[int], days: Sequence[int], busy: Sequence[int], bits: Callable[[int], int]
) -> Calendar:
    """Make a cycle of as many weeks as there are levels of busyness.

    Each weekday meets each level once in a cycle, in an order drawn with `bits`, so the
    rhythm of a whole cycle is that of `hours` and `days`. The cycle then repeats.
    """
    levels = [_shuffled(busy, bits) for _ in days]
    return Calendar(
        [
            weight_of(hour, days[day], levels[day][week])
            for week in range(len(busy))
            for day in range(len(days))
            for hour in hours
        ]
    )


def weight_of(hour: int, day: int, busy: int) -> int:
    """Weight of an hour of a day, at least 1 so that time never stands still."""
    return max(hour * day * busy // (EVEN * EVEN), 1)


def _shuffled(items: Sequence[int], bits: Callable[[int], int]) -> list[int]:
    shuffled = list(items)
    for place in range(len(shuffled) - 1, 0, -1):
        other = (bits(DRAW_BITS) * (place + 1)) >> DRAW_BITS
        shuffled[place], shuffled[other] = shuffled[other], shuffled[place]
    return shuffled
