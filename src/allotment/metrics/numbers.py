"""Means and percentiles, defined once."""

from collections.abc import Sequence


def percentile(ordered: Sequence[int], percent: int) -> int:
    """Return the nearest rank: the smallest value with at least `percent` % at or below it.

    Always a value that occurred; 0 of an empty series. `ordered` ascends.
    """
    if not ordered:
        return 0
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(rank, 1) - 1]


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean; 0 of an empty series."""
    return sum(values) / len(values) if values else 0.0


def jain(values: Sequence[float]) -> float:
    """Return Jain's index (Σx)² / (n·Σx²): 1 when all are equal, 1/n when one has it all.

    1 of a series that is empty or all zero: none is treated worse.
    """
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0
