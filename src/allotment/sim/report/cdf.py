"""Which share of the jobs is done, or has stopped waiting, within how long."""

from bisect import bisect_right
from collections.abc import Callable, Sequence

from allotment.sim.idle import nothing_waits
from allotment.sim.report.figure import Figure, FigureTable, lines_legend
from allotment.sim.report.marks import Box, Picture, axes, curve, read_off, steps, svg
from allotment.sim.report.scales import (
    Scale,
    length_scale,
    length_ticks,
    share_ticks,
)
from allotment.sim.report.view import View
from allotment.sim.report.words import duration, percent

POINTS = 280
"""Places along the axis at which a curve is looked up."""

BOX = Box(54, 26, 546, 274)
Column = Callable[[View], list[int]]


def completion(views: Sequence[View]) -> Figure:
    """Draw completion times."""
    if not any(view.jct for view in views):
        return Figure("jct", "Completion time", "", "No job completed: nothing to draw.")
    return Figure(
        "jct",
        "Completion time",
        "the height of a line is the share of completed jobs that are done within the time "
        "below it, so higher and further left is better.",
        _finding(views, _jct, "are done within"),
        (_picture("jct", views, _jct, "time from submission to end"),),
        lines_legend(views),
        table=_table(views, _jct),
    )


def waiting(views: Sequence[View]) -> Figure:
    """Draw queueing delays."""
    if not any(view.delay for view in views):
        return Figure("delay", "Queueing delay", "", "No job completed: nothing to draw.")
    if not any(view.delay[-1] for view in views if view.delay):
        return Figure("delay", "Queueing delay", "", "No job waited.")
    return Figure(
        "delay",
        "Queueing delay",
        "the height of a line is the share of completed jobs that waited no longer than the "
        "time below it, in all; those that never waited count at the left edge.",
        _finding(views, _delay, "wait no longer than"),
        (_picture("delay", views, _delay, "time not running, from submission to end"),),
        lines_legend(views),
        table=_table(views, _delay),
    )


def _jct(view: View) -> list[int]:
    return view.jct


def _delay(view: View) -> list[int]:
    return view.delay


PARTS = (10, 25, 50, 75, 90, 99, 100)
"""Per cent of the jobs."""


def _table(views: Sequence[View], column: Column) -> FigureTable:
    head = ("policy", *(f"{part} % of jobs within" for part in PARTS))
    rows = tuple(
        (view.name, *(duration(nearest(column(view), part)) for part in PARTS))
        for view in views
        if column(view)
    )
    return FigureTable(head, rows)


def nearest(ordered: Sequence[int], part: int) -> int:
    """Return the smallest value with so many per cent at or below it."""
    return ordered[max(0, -(-len(ordered) * part // 100) - 1)]


def _scale(views: Sequence[View], column: Column) -> Scale:
    most = max((column(view)[-1] for view in views if column(view)), default=0)
    least = most
    for view in views:
        ordered = column(view)
        place = bisect_right(ordered, 0)
        if place < len(ordered):
            # A few tiny ones would squeeze all the others: they count at the left edge.
            least = min(least, ordered[place + (len(ordered) - place) // 500])
    return length_scale(least, most, BOX.left, BOX.right)


def _picture(key: str, views: Sequence[View], column: Column, name: str) -> str:
    x, y = _scale(views, column), Scale(0, 1, BOX.bottom, BOX.top)
    shapes = [axes(BOX, (x, length_ticks(x), name), (y, share_ticks(), "of completed jobs"))]
    for view in views:
        ordered = column(view)
        if ordered:
            points = [(x.at(value), y.at(share)) for value, share in shares(ordered, x)]
            shapes.append(curve(view.index, steps(points, BOX.right), view.name))
    says = " ".join(f"{view.name}: {_in_words(column(view))}." for view in views)
    title = "Distribution of completion time" if key == "jct" else "Distribution of waiting"
    picture = Picture(key, title, says, BOX.bottom + 44)
    return svg(picture, shapes, read_off(BOX, x, y, ("length", "share")))


def shares(ordered: Sequence[int], x: Scale) -> list[tuple[float, float]]:
    """Return places along the axis, and the share of the times at or below each."""
    values = [x.value(place / POINTS) for place in range(POINTS + 1)]
    # The upper end is at or beyond the largest, whatever its last bit says.
    values[-1] = max(x.high, values[-1])
    return [(value, bisect_right(ordered, value) / len(ordered)) for value in values]


def _in_words(ordered: Sequence[int]) -> str:
    if not ordered:
        return "no job completed"
    half, most = ordered[(len(ordered) - 1) // 2], ordered[-(len(ordered) // 10) - 1]
    return f"half within {duration(half)}, nine in ten within {duration(most)}"


def _finding(views: Sequence[View], column: Column, verb: str) -> str:
    drawn = [view for view in views if column(view)]
    if len(drawn) == 1:
        ordered = column(drawn[0])
        half = ordered[(len(ordered) - 1) // 2]
        most = ordered[-(len(ordered) // 10) - 1]
        if not half:
            rest = "nor do nine in ten" if not most else f"nine in ten {verb} {duration(most)}"
            return f"Half of the jobs do not wait, {rest}."
        return f"Half of the jobs {verb} {duration(half)}, nine in ten {duration(most)}."
    if nothing_waits([view.summary for view in drawn]):
        return "Jobs hardly wait under any policy, so there is nothing to compare."
    x = _scale(drawn, column)
    curves = [[share for _, share in shares(column(view), x)] for view in drawn]
    gaps = [max(at) - min(at) for at in zip(*curves, strict=True)]
    place = gaps.index(max(gaps))
    if gaps[place] < 0.01:
        return "The policies are nowhere more than one job in a hundred apart."
    best = max(range(len(drawn)), key=lambda n: curves[n][place])
    worst = min(range(len(drawn)), key=lambda n: curves[n][place])
    limit = duration(x.value(place / POINTS))
    return (
        f"Under {drawn[best].name} {percent(curves[best][place])} of the jobs {verb} {limit}, "
        f"under {drawn[worst].name} {percent(curves[worst][place])}: this is the widest gap."
    )
