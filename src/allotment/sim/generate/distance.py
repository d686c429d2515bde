"""How far two samples are apart, as numbers from 0 (alike) to 1 (nothing in common)."""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TypeVar

Kind = TypeVar("Kind", bound=Hashable)


def kolmogorov_smirnov(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the most by which the shares of values up to any bound differ; both sorted.

    1 where only one of them has values, 0 where neither has.
    """
    if not one or not other:
        return float(len(one) != len(other))
    worst, first, second = 0.0, 0, 0
    while first < len(one) and second < len(other):
        value = min(one[first], other[second])
        while first < len(one) and one[first] == value:
            first += 1
        while second < len(other) and other[second] == value:
            second += 1
        worst = max(worst, abs(first / len(one) - second / len(other)))
    return worst


def total_variation(one: Counter[Kind], other: Counter[Kind]) -> float:
    """Return the share of jobs that would have to change kind to make the two the same.

    1 where only one of them has jobs, 0 where neither has.
    """
    jobs, others = one.total(), other.total()
    if not jobs or not others:
        return float(jobs != others)
    apart = sum(abs(one[kind] * others - other[kind] * jobs) for kind in one | other)
    return apart / (2 * jobs * others)


def apart_by(one: float, other: float) -> float:
    """Return by what share of the smaller the greater exceeds it; 0 if both are 0."""
    low, high = sorted((one, other))
    if low <= 0:
        return 0.0 if high <= 0 else float("inf")
    return high / low - 1
