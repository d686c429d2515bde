"""From values to places on a picture, and which values get a label on an axis."""

from datetime import UTC, datetime
from math import ceil, floor, log10

import msgspec

from allotment.model.quantity import DAY, HOUR, MINUTE, SECOND
from allotment.sim.report.words import UNITS, duration, is_date, number

Ticks = list[tuple[float, str]]
"""Values and what is written beside them."""

LENGTHS: tuple[int, ...] = (
    SECOND,
    MINUTE,
    HOUR,
    DAY,
    10 * SECOND,
    10 * MINUTE,
    6 * HOUR,
    7 * DAY,
    30 * DAY,
    365 * DAY,
    1,
    10,
    100,
    3650 * DAY,
    36_500 * DAY,
    *(unit * count for unit in (SECOND, MINUTE, HOUR, DAY) for count in (2, 5, 3, 30, 20, 12)),
    *(2 * 10**power for power in range(3)),
    *(5 * 10**power for power in range(3)),
    14 * DAY,
    60 * DAY,
    100 * DAY,
    200 * DAY,
)
"""Lengths of time that an axis may name, the most telling first."""

ROUNDEST = 15
"""How many of them an axis may begin with; the others fill in where there is room."""

STEPS: tuple[int, ...] = tuple(
    unit * count
    for unit, counts in (
        (1, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (SECOND, (1, 2, 5, 10, 15, 30)),
        (MINUTE, (1, 2, 5, 10, 15, 30)),
        (HOUR, (1, 2, 3, 6, 12)),
        (DAY, (1, 2, 4, 7, 14, 28, 56, 91, 182, 365, 730, 3650)),
    )
    for count in counts
)
"""Distances between the labels of a time axis."""

WIDEST_LOG = 10_000_000
"""A logarithmic axis spans this factor at most."""


class Scale(msgspec.Struct, frozen=True):
    """A straight map of values to pixels, linear or logarithmic; clamps what lies outside."""

    low: float
    high: float
    start: float
    """Where `low` is drawn."""
    stop: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return the pixel of a value."""
        value = min(max(value, self.low), self.high)
        if self.log:
            part = log10(value / self.low) / log10(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.stop - self.start)

    def value(self, part: float) -> float:
        """Return the value at a part of the way, 0 to 1."""
        if self.log:
            return self.low * (self.high / self.low) ** part
        return self.low + part * (self.high - self.low)


def length_scale(least: float, most: float, start: float, stop: float) -> Scale:
    """Make a logarithmic scale over lengths of time, from a round length to a round one.

    `least` is the smallest that is not 0. With nothing to show it spans a second to an hour.
    """
    if most <= 0:
        return Scale(SECOND, HOUR, start, stop, log=True)
    rounds = sorted(LENGTHS[:ROUNDEST])
    least = max(least, most / WIDEST_LOG, 1)
    low = max((length for length in rounds if length <= least), default=1)
    high = most * 1.05 if most * 1.05 >= 4 * low else 4 * low
    return Scale(low, high, start, stop, log=True)


def length_ticks(scale: Scale, room: float = 58) -> Ticks:
    """Label a logarithmic scale of lengths of time, at least `room` pixels apart."""
    taken: list[int] = []
    for length in LENGTHS:
        if scale.low <= length <= scale.high and all(
            abs(scale.at(length) - scale.at(other)) >= room for other in taken
        ):
            taken.append(length)
    return [(length, _length_name(length)) for length in sorted(taken)]


def _length_name(length: int) -> str:
    names = {7 * DAY: "1 week", 365 * DAY: "1 year", 3650 * DAY: "10 years"}
    return names.get(length) or duration(length)


def round_up(value: float) -> float:
    """Return the next of 1, 2, 2.5, 5 × 10ⁿ; 1 for nothing."""
    if value <= 0:
        return 1
    power = 10.0 ** floor(log10(value))
    return next(p * power for p in (1, 2, 2.5, 5, 10) if p * power >= value * (1 - 1e-9))


def count_ticks(high: float, most: int = 5) -> Ticks:
    """Label an axis of counts from 0."""
    step = max(1, round_up(high / most))
    step = ceil(step)
    return [(value, number(value)) for value in range(0, floor(high) + 1, step)]


def power_ticks(high: float) -> Ticks:
    """Label a logarithmic axis of counts from 1."""
    return [(10**n, number(10**n)) for n in range(floor(log10(high)) + 1)]


def span_ticks(high_ms: float, most: int = 5) -> Ticks:
    """Label a linear axis of lengths of time from 0."""
    step = next((step for step in STEPS if step * most >= high_ms), STEPS[-1])
    return [(step * n, exact(step * n)) for n in range(floor(high_ms / step) + 1)]


def exact(length: int) -> str:
    """Name a length of time without rounding: "30 h", where "1.3 days" would be about it."""
    units = [(unit, name) for unit, name in UNITS if length >= unit]
    for unit, name in reversed(units):
        if length * 10 % unit == 0:
            amount = number(length / unit)
            return "1 day" if (amount, name) == ("1", "days") else f"{amount} {name}"
    return duration(length)


def share_ticks() -> Ticks:
    """Label an axis from 0 to 1 in per cent."""
    return [(part / 4, f"{part * 25} %") for part in range(5)]


def moment_ticks(low: int, high: int, most: int = 6) -> Ticks:
    """Label an axis of instants: by dates, or from the beginning if the trace has no dates."""
    step = next((step for step in STEPS if step * most >= high - low), STEPS[-1])
    while step * most < high - low:
        step *= 2
    if not (is_date(low) and is_date(high)):
        return [(low + step * n, exact(step * n)) for n in range((high - low) // step + 1)]
    first = -(-low // step) * step
    return [(at, _date(at, step)) for at in range(first, high + 1, step)]


def _date(at_ms: int, step: int) -> str:
    date = datetime.fromtimestamp(at_ms / SECOND, UTC)
    if step >= 182 * DAY:
        return f"{date:%b %Y}"
    if step >= DAY or at_ms % DAY == 0:
        return f"{date.day} {date:%b}"
    return f"{date:%H:%M}" if step >= MINUTE else f"{date:%H:%M:%S}"
