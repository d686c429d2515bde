"""The rhythm of real submissions: by hour, by weekday, by busy and quiet days; what is left."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from allotment.model.quantity import DAY, HOUR
from allotment.sim.generate.calendar import HOURS, Calendar, weekday, weight_of
from allotment.sim.generate.curve import ALL_PPM, Curve, curve_of
from allotment.sim.generate.model import BUSY_LEVELS, DAYS, EVEN, BadModel

LONGEST_SPAN_MS = 20 * 365 * DAY
"""A longer trace is not believed: its times are in another unit than was read."""

DOUBT_JOBS = 10
"""So many jobs at the average rate are added to each hour and weekday, lest a few real jobs
make a rhythm."""

FEWEST_DAYS = 2 * BUSY_LEVELS
"""With fewer whole days than this, days are taken to be equally busy."""


class Rhythm(msgspec.Struct, frozen=True, gc=False):
    """What `Model` keeps of arrivals; see there."""

    hours: tuple[int, ...]
    days: tuple[int, ...]
    busy: tuple[int, ...]
    gaps: Curve


class _Day(msgspec.Struct, frozen=True, gc=False):
    number: int
    """Since 1970-01-01."""
    jobs: int
    expected: float
    """Jobs if only the weekday mattered."""


def rhythm_of(submits_ms: Sequence[int]) -> Rhythm:
    """Learn the rhythm of submissions, which are in order. Raises BadModel for absurd times."""
    first, last = submits_ms[0], submits_ms[-1]
    if last - first > LONGEST_SPAN_MS:
        raise BadModel(
            f"submissions span {(last - first) // (365 * DAY)} years: the times are likely in "
            "another unit than was read"
        )
    seen_hours, seen_days = _seen(first, last)
    hours = _weights(Counter(at // HOUR % HOURS for at in submits_ms), seen_hours)
    days = _weights(Counter(weekday(at // DAY) for at in submits_ms), seen_days)
    by_day = _by_day(submits_ms, days)
    busy = _busy(by_day)
    calendar = _real_calendar(by_day, hours, days, flat=len(set(busy)) == 1)
    begin_ms = by_day[0].number * DAY
    steady = [calendar.steady(at - begin_ms) for at in submits_ms]
    return Rhythm(hours, days, busy, _relative([b - a for a, b in pairwise(steady)]))


def _seen(first: int, last: int) -> tuple[list[int], list[int]]:
    """How long each hour of the day, and each weekday, was looked at, in ms."""
    hours, days = [0] * HOURS, [0] * DAYS
    for hour in range(first // HOUR, last // HOUR + 1):
        length = min(last, (hour + 1) * HOUR) - max(first, hour * HOUR)
        hours[hour % HOURS] += length
        days[weekday(hour // HOURS)] += length
    return hours, days


def _weights(counts: Counter[int], seen_ms: Sequence[int]) -> tuple[int, ...]:
    """Rates relative to the mean rate; an average one where nothing was seen."""
    jobs, whole = counts.total(), max(sum(seen_ms), 1)
    rates = [
        (counts[place] + DOUBT_JOBS) / (jobs * length / whole + DOUBT_JOBS)
        for place, length in enumerate(seen_ms)
    ]
    return _even(rates)


def _even(rates: Sequence[float]) -> tuple[int, ...]:
    """Scale to a mean of 1000, none below 1; all alike where nothing happened."""
    if not sum(rates):
        return (EVEN,) * len(rates)
    scale = EVEN * len(rates) / sum(rates)
    return tuple(max(round(rate * scale), 1) for rate in rates)


def _by_day(submits_ms: Sequence[int], days: Sequence[int]) -> list[_Day]:
    counts = Counter(at // DAY for at in submits_ms)
    first, last = submits_ms[0], submits_ms[-1]
    numbers = range(first // DAY, last // DAY + 1)
    weighed = [
        (min(last, (number + 1) * DAY) - max(first, number * DAY)) * days[weekday(number)]
        for number in numbers
    ]
    rate = len(submits_ms) / max(sum(weighed), 1)
    return [
        _Day(number, counts[number], weight * rate)
        for number, weight in zip(numbers, weighed, strict=True)
    ]


def _busy(by_day: Sequence[_Day]) -> tuple[int, ...]:
    """Mean of each eighth of the days, from the quietest to the busiest."""
    whole = by_day[1:-1]
    if len(whole) < FEWEST_DAYS:
        return (EVEN,) * BUSY_LEVELS
    ratios = sorted(day.jobs / day.expected for day in whole)
    cuts = [len(ratios) * level // BUSY_LEVELS for level in range(BUSY_LEVELS + 1)]
    return _even([sum(ratios[low:high]) / (high - low) for low, high in pairwise(cuts)])


def _real_calendar(
    by_day: Sequence[_Day], hours: Sequence[int], days: Sequence[int], *, flat: bool
) -> Calendar:
    """Make the clock on which the real jobs came steadily."""
    weights: list[int] = []
    for day in by_day:
        busy = EVEN if flat else round(EVEN * (day.jobs + 1) / (day.expected + 1))
        weights += [weight_of(hour, days[weekday(day.number)], busy) for hour in hours]
    return Calendar(weights)


def _relative(gaps: Sequence[int]) -> Curve:
    """Distribution of the gaps in millionths of their mean; even where there are none."""
    total = sum(gaps)
    if not total:
        return curve_of([ALL_PPM])
    return curve_of([gap * len(gaps) * ALL_PPM // total for gap in gaps])
