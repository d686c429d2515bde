"""The use of the whole cluster by the time of day, the hour or the minute."""

from collections.abc import Sequence

import msgspec

from allotment.model.quantity import DAY, HOUR, MINUTE, SECOND
from allotment.sim.outcome import Run
from allotment.sim.report.cells import Cells, Map, row_means
from allotment.sim.report.scales import Ticks
from allotment.sim.report.view import View, lengths
from allotment.sim.report.words import is_date, percent

MOST_COLUMNS = 120


class Period(msgspec.Struct, frozen=True):
    """What a column stands for, and into which rows it is divided."""

    longer_than_ms: int
    """Only for runs this long."""
    column_ms: int
    row_ms: int
    names: Ticks
    column: str
    row: str
    rows: str
    """What the rows are."""


PERIODS = (
    Period(
        2 * DAY,
        DAY,
        HOUR,
        [(float(hour), f"{hour:02}:00") for hour in range(0, 24, 6)],
        "day",
        "hour",
        "hours of each day",
    ),
    Period(
        2 * HOUR,
        HOUR,
        5 * MINUTE,
        [(float(place), f":{place * 5:02}") for place in range(0, 12, 3)],
        "hour",
        "minute",
        "minutes of each hour",
    ),
    Period(
        2 * MINUTE,
        MINUTE,
        5 * SECOND,
        [(float(place), f":{place * 5:02}") for place in range(0, 12, 3)],
        "minute",
        "second",
        "seconds of each minute",
    ),
)


def by_period(run: Run, low: int, high: int, period: Period) -> Map:
    """Average the use of the cluster over each spot of time, wrapped into columns."""
    column_ms, row_ms = period.column_ms, period.row_ms
    origin = low // column_ms * column_ms if is_date(low) else low
    count = -(-(high - origin) // column_ms)
    grouped = -(-count // MOST_COLUMNS)
    rows, columns = column_ms // row_ms, -(-count // grouped)
    busy = [[0] * columns for _ in range(rows)]
    span = [[0] * columns for _ in range(rows)]
    for sample, length in lengths(run.samples):
        at, end = sample.at_ms, sample.at_ms + length
        while at < end:
            place = (at - origin) // row_ms
            part = min(end, origin + (place + 1) * row_ms) - at
            row, column = place % rows, place // rows // grouped
            busy[row][column] += sample.busy_milli * part
            span[row][column] += part
            at += part
    full = max(1, run.capacity_milli)
    cells: Cells = [
        [b / s / full if s else None for b, s in zip(busy_row, span_row, strict=True)]
        for busy_row, span_row in zip(busy, span, strict=True)
    ]
    to_ms = origin + columns * grouped * column_ms
    names = f"rows: {period.rows}"
    return Map(cells, period.names, names, origin, grouped * column_ms, to_ms)


def finding(views: Sequence[View], maps: Sequence[Map], period: Period) -> str:
    """Return when most and least is in use."""
    means = row_means(maps[0])
    high, low = means.index(max(means)), means.index(min(means))
    name = views[0].name
    if means[high] - means[low] < 0.03:
        return f"Under {name} use hardly depends on the {period.row}."
    most, least = (_row_name(row, period) for row in (high, low))
    return (
        f"Under {name} most is in use {most} ({percent(means[high])} on average), least "
        f"{least} ({percent(means[low])})."
    )


def _row_name(row: int, period: Period) -> str:
    if period.column_ms == DAY:
        return f"from {row:02}:00"
    return f"in {period.row}s {row * 5} to {row * 5 + 4}"
