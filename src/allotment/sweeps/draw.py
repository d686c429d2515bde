"""The parameters of a sweep's trials: all combinations, or draws with a seed.

Those of a study are not known before their turn comes (`propose` of `service.ports.Proposer`).

The same sweep gives the same trials on every machine: of the generator only `random()` is
used, whose numbers do not change from one Python to the next.
"""

import math
import random

from allotment.model.grid import Grid, Parameters, combinations, parameters_of
from allotment.model.sweeps import Axis, Range, Scale, Space, Sweep

BITS = 53
"""Bits of a drawn float: it is a whole number of 2**-53."""
DIGITS = 6
"""Digits of a drawn number: more say nothing, and are hard to read."""


def trials(sweep: Sweep) -> list[Parameters]:
    """Return the parameters of each trial, in the order of their indices; of a study none."""
    if sweep.is_study:
        return [()] * sweep.draws
    finite = values_of(sweep.space)
    if not sweep.draws:
        assert finite is not None, "only what can be listed is no draw"
        return [parameters_of(finite, index) for index in range(combinations(finite))]
    rng = random.Random(sweep.seed or 0)  # noqa: S311 - nothing secret is drawn
    if finite is not None:
        return [parameters_of(finite, index) for index in _some(rng, finite, sweep.draws)]
    return [
        tuple((name, _drawn(rng, axis)) for name, axis in sweep.space)
        for _ in range(sweep.draws)
    ]


def values_of(space: Space) -> Grid | None:
    """Return all parameters with their values; None where one has a range of them."""
    finite = tuple((name, axis) for name, axis in space if not isinstance(axis, Range))
    return finite if len(finite) == len(space) else None


def combinations_of(space: Space) -> int | None:
    """Return how many combinations of values there are; None where they have no number."""
    finite = values_of(space)
    return None if finite is None else combinations(finite)


def _some(rng: random.Random, grid: Grid, count: int) -> list[int]:
    """Draw so many of all combinations, none twice."""
    total, moved, drawn = combinations(grid), dict[int, int](), list[int]()
    for place in range(min(count, total)):  # Shuffles as far as is needed.
        other = place + _below(rng, total - place)
        drawn.append(moved.get(other, other))
        moved[other] = moved.get(place, place)
    return drawn


def _below(rng: random.Random, bound: int) -> int:
    """Draw a whole number from 0 to below a bound, which may be larger than any float."""
    bits, drawn = BITS, int(rng.random() * (1 << BITS))
    while bound >> bits:  # Of fewer bits, its last parameters would hardly change.
        drawn = (drawn << BITS) | int(rng.random() * (1 << BITS))
        bits += BITS
    return drawn * bound >> bits


def _drawn(rng: random.Random, axis: Axis) -> str:
    at = rng.random()
    if not isinstance(axis, Range):
        return axis[int(at * len(axis))]
    low, high = axis.low, axis.high
    match axis.scale:
        case Scale.INT:
            return str(int(low) + int(at * (int(high) - int(low) + 1)))
        case Scale.LOG:
            value = math.exp(math.log(low) + at * (math.log(high) - math.log(low)))
            return written(value, axis)
        case Scale.UNIFORM:
            return written(low + at * (high - low), axis)


def written(value: float, within: Range) -> str:
    """Write a number as trials get it: with few digits, and never beyond its range."""
    text = f"{value:.{DIGITS}g}"
    if within.low <= float(text) <= within.high:
        return text
    return repr(min(max(value, within.low), within.high))  # Rounded, it is beyond an end.
