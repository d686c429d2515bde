"""A step function of any length kept as a few points: exact where it is kept, means between."""

from itertools import pairwise

import msgspec

SAMPLES = 2_000
"""The most samples of a curve."""


class Sample(msgspec.Struct, frozen=True, gc=False):
    """The cluster at one instant (from then on until the next sample).

    Of a thinned curve it is the mean until the next sample, rounded.
    """

    at_ms: int
    busy_milli: int
    """Devices in use, in thousandths."""
    waiting: int
    """Jobs."""


class Point(msgspec.Struct, frozen=True, gc=False):
    """The sums over time up to an instant: the differences of two give the exact mean."""

    at_ms: int
    busy: int = 0
    waiting: int = 0


class Curve:
    """Keeps every n-th of the points it is shown; n doubles whenever there are too many.

    O(1) a step, at most `most` points. The first point is kept for ever.
    """

    def __init__(self, first: Point, most: int = SAMPLES) -> None:
        if most < 4:
            raise ValueError(f"a curve of {most} samples")
        self.points = [first]
        self.stride = 1
        """Steps between two points; the owner shows a point every so many."""
        # Odd, so that the newest point survives the thinning.
        self._full = (most - 2) | 1

    def add(self, point: Point) -> None:
        """Keep a point; it must be later than the last."""
        points = self.points
        points.append(point)
        if len(points) >= self._full:
            del points[1::2]
            self.stride *= 2

    def samples(self, now: Point, last: Sample) -> tuple[Sample, ...]:
        """Return the means between the points and up to `now`, then `last`, which holds now."""
        points = self.points
        if points[-1].at_ms < now.at_ms:
            points = [*points, now]
        means = [_mean(a, b) for a, b in pairwise(points)]
        return (*means, last)


def _mean(a: Point, b: Point) -> Sample:
    length = b.at_ms - a.at_ms
    half = length // 2
    return Sample(
        a.at_ms,
        (b.busy - a.busy + half) // length,
        (b.waiting - a.waiting + half) // length,
    )
