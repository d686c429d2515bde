"""A distribution as a few knots: which value lies at which share of all, from least to most.

Between two knots the values lie evenly. All of it is integer arithmetic, so a draw is the
same on every machine and in every version of Python.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate, pairwise

import msgspec

ALL_PPM = 1_000_000

EVEN_BINS = 64
"""Knots this close by share to begin with: what is drawn is off by 1/64 of all at worst."""

MOST_KNOTS = 96
"""Bins where the values bend are halved, the worst first, until there are so many knots."""

GOOD_ENOUGH = 20_000
"""… or until no bin shifts the mean by more than one part in this many."""

FEWEST_BETWEEN = 4
"""Of many values at least so many lie between two knots, so that few are given away."""

MANY = 64

DRAW_BITS = 32
DRAWS = 1 << DRAW_BITS


class Curve(msgspec.Struct, frozen=True, gc=False):
    """`values[i]` is not exceeded by `at_ppm[i]` millionths of all."""

    at_ppm: tuple[int, ...]
    """Rises from 0 to 1,000,000."""
    values: tuple[int, ...]
    """Never falls."""

    def fault(self) -> str:
        """Return what is wrong with the knots; empty when nothing is."""
        if len(self.at_ppm) != len(self.values):
            return f"{len(self.at_ppm)} shares (at_ppm) for {len(self.values)} values"
        if len(self.at_ppm) < 2 or self.at_ppm[0] != 0 or self.at_ppm[-1] != ALL_PPM:
            return f"at_ppm must go from 0 to {ALL_PPM}"
        if any(low >= high for low, high in _pairs(self.at_ppm)):
            return "at_ppm must rise from knot to knot"
        if self.values[0] < 0 or any(low > high for low, high in _pairs(self.values)):
            return "values must not be negative, nor fall from knot to knot"
        return ""

    def mean(self) -> float:
        """Return the mean of what is drawn."""
        shares = [high - low for low, high in _pairs(self.at_ppm)]
        doubled = [low + high for low, high in _pairs(self.values)]
        return sum(map(int.__mul__, shares, doubled)) / (2 * ALL_PPM)


def curve_of(values: Sequence[int]) -> Curve:
    """Put knots through these values; there must be at least one."""
    ordered = sorted(values)
    if len(ordered) == 1:
        return Curve((0, ALL_PPM), (ordered[0], ordered[0]))
    last = len(ordered) - 1
    knots: dict[int, int] = {}
    for rank in _ranks(ordered):
        knots[rank * ALL_PPM // last] = ordered[rank]
    return Curve(tuple(knots), tuple(knots.values()))


def _ranks(ordered: Sequence[int]) -> list[int]:
    """Choose the ranks that become knots: evenly, then where a straight line fits worst."""
    last = len(ordered) - 1
    apart = FEWEST_BETWEEN if last + 1 >= MANY else 1
    bins = min(EVEN_BINS, last // apart)
    ranks = {last * number // bins for number in range(bins + 1)}
    areas = list(accumulate((low + high for low, high in _pairs(ordered)), initial=0))

    def misfit(low: int, high: int) -> tuple[int, int, int]:
        line = (ordered[low] + ordered[high]) * (high - low)
        return -abs(areas[high] - areas[low] - line), low, high

    worst = [misfit(low, high) for low, high in _pairs(sorted(ranks))]
    heapify(worst)
    while len(ranks) < MOST_KNOTS and worst and -worst[0][0] * GOOD_ENOUGH > areas[-1]:
        _, low, high = heappop(worst)
        middle = (low + high) // 2
        if middle - low < apart:
            continue
        ranks.add(middle)
        heappush(worst, misfit(low, middle))
        heappush(worst, misfit(middle, high))
    return sorted(ranks)


def drawer(curve: Curve, bits: Callable[[int], int]) -> Callable[[], int]:
    """Make a function that draws one value at each call; `bits` is `Random.getrandbits`."""
    starts = [at * DRAWS // ALL_PPM for at in curve.at_ppm]
    widths = [high - low for low, high in _pairs(starts)]
    values = curve.values
    rises = [high - low for low, high in _pairs(values)]
    inner = starts[1:-1]

    def draw() -> int:
        point = bits(DRAW_BITS)
        knot = bisect_right(inner, point)
        return values[knot] + rises[knot] * (point - starts[knot]) // widths[knot]

    return draw


def _pairs(items: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise(items))
