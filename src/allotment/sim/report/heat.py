"""A picture of the whole cluster: nodes over time."""

from collections.abc import Sequence
from itertools import groupby

import msgspec

from allotment.sim.chart import Chart, Row
from allotment.sim.outcome import Run
from allotment.sim.report.figure import NOT_FOLLOWED, Figure, FigureTable
from allotment.sim.report.look import LEVELS
from allotment.sim.report.marks import Picture, label, px, svg, text
from allotment.sim.report.scales import Scale, Ticks
from allotment.sim.report.series import NOTHING, axis_between
from allotment.sim.report.view import View, window
from allotment.sim.report.words import counted, fitted, listed, percent, short

LEFT, RIGHT, TOP = 104, 546, 28
OVERLAP = 0.5
"""Rows reach a little into each other: no light shines between them."""

MOST_ROWS = 64

BY_NODE = "Nodes over time"


class Map(msgspec.Struct, frozen=True):
    """A grid of shares with the names of some rows."""

    cells: list[list[float]]
    """The share in use by row and column."""
    rows: Ticks
    """Row numbers and their names."""
    row_name: str
    from_ms: int
    column_ms: int
    to_ms: int
    """Where the axis ends."""


def cluster(views: Sequence[View]) -> Figure:
    """Draw the use of every node."""
    if not any(len(view.run.samples) > 1 for view in views):
        return Figure("heat", BY_NODE, "", NOTHING)
    low, high = window(views)
    charts = [chart for view in views if (chart := view.run.chart) and chart.jobs]
    if len(charts) < len(views):
        return Figure("heat", BY_NODE, "", NOT_FOLLOWED)
    most = MOST_ROWS if len(views) < 3 else MOST_ROWS // 2
    maps = [
        by_node(view.run, chart, low, high, most)
        for view, chart in zip(views, charts, strict=True)
    ]
    return Figure(
        "heat",
        BY_NODE,
        "each row is a node (or a few neighbours), time runs to the right, and the more "
        "strongly a spot is coloured the more of the devices there are in use.",
        _node_finding(views, maps),
        tuple(_picture(view, map_) for view, map_ in zip(views, maps, strict=True)),
        full=len(views) > 1,
        table=table(views),
    )


def table(views: Sequence[View]) -> FigureTable:
    """Return the mean use of every row of the widest picture."""
    charts = [chart for view in views if (chart := view.run.chart) is not None]
    rows: list[tuple[str, ...]] = []
    for n in range(max(len(chart.rows) for chart in charts)):
        own = next(chart.rows[n] for chart in charts if n < len(chart.rows))
        shares = (
            percent(_mean(view.run, chart.rows[n])) if n < len(chart.rows) else "–"
            for view, chart in zip(views, charts, strict=True)
        )
        rows.append((short(own.name, 24), short(own.kind, 16), *shares))
    together = max(chart.nodes_a_row for chart in charts)
    first = "node" if together == 1 else f"{together} nodes from"
    return FigureTable((first, "devices", *(view.name for view in views)), tuple(rows), words=2)


def _mean(run: Run, row: Row) -> float:
    length = run.samples[-1].at_ms - run.samples[0].at_ms
    return min(1.0, sum(row.busy) / max(1, row.capacity_milli * length))


def by_node(run: Run, chart: Chart, low: int, high: int, most_rows: int = MOST_ROWS) -> Map:
    """Show the use of each node, or of a few neighbours, over each stretch of time."""
    rows, width = chart.rows, chart.column_ms
    together = max(1, -(-len(rows) // most_rows))
    end = run.samples[-1].at_ms
    count = max(1, -(-(end - chart.from_ms) // width))
    starts = [chart.from_ms + n * width for n in range(min(count, len(rows[0].busy)))]
    cells: list[list[float]] = []
    for first in range(0, len(rows), together):
        some = rows[first : first + together]
        full = max(1, sum(row.capacity_milli for row in some))
        cells.append(
            [
                min(1.0, sum(row.busy[n] for row in some) / full / min(width, end - at))
                for n, at in enumerate(starts)
            ]
        )
    names = _node_names([rows[n] for n in range(0, len(rows), together)])
    nodes = counted(together * chart.nodes_a_row, "node")
    name = "a node" if together * chart.nodes_a_row == 1 else nodes
    return Map(cells, names, f"each row {name}", chart.from_ms, width, max(high, low + 1))


def _row_name(name: str, kind: str) -> str:
    room = LEFT - 9
    return f"{fitted(name, room * 0.6 if kind else room, 12)}{fitted(kind, room * 0.4, 12)}"


def _node_names(rows: Sequence[Row]) -> Ticks:
    """Name some rows: the first of each kind of device, and others in between."""
    kinds = [row.kind for row in rows]
    several = len(set(kinds)) > 1
    every = max(1, -(-len(rows) // 8))
    names: Ticks = []
    since = -every
    for n, row in enumerate(rows):
        new = several and (not n or kinds[n] != kinds[n - 1])
        if n - since >= every or (new and n - since >= every / 2):
            kind = f" {row.kind}" if several else ""
            names.append((float(n), _row_name(row.name, kind)))
            since = n
    return names


def _picture(view: View, map_: Map) -> str:
    row_px = max(2.2, min(14.0, (132 if len(map_.cells) <= 24 else 200) / len(map_.cells)))
    bottom = TOP + row_px * len(map_.cells)
    shapes = [text(LEFT, TOP - 10, view.name, "b"), _key()]
    x, ticks, name = axis_between(map_.from_ms, map_.to_ms, LEFT, RIGHT)
    shapes += _shades(map_, x, row_px)
    shapes += [
        text(LEFT - 7, TOP + row * row_px + min(row_px, 10), name, "e")
        for row, name in map_.rows
    ]
    shapes += [
        f'<path class="axis" d="M{px(x.at(at))} {px(bottom)}v4"/>'
        + label(x.at(at), bottom + 17, words)
        for at, words in ticks
    ]
    shapes.append(text((LEFT + RIGHT) / 2, bottom + 35, f"{name}; {map_.row_name}", "m n"))
    says = f"{percent(view.summary.utilization)} in use on average."
    return svg(
        Picture(f"heat-{view.index}", f"Use under {view.name}", says, bottom + 44), shapes
    )


def _key() -> str:
    """Return what the shades mean."""
    shapes = [text(RIGHT - 118, TOP - 10, "0 %", "e s"), text(RIGHT, TOP - 10, "100 %", "e s")]
    for level in range(LEVELS + 1):
        x = RIGHT - 114 + level * 8.6
        shapes.append(
            f'<path class="heat h{level}" stroke-width="10" d="M{px(x)} {TOP - 14}h8.6"/>'
        )
    return "".join(shapes)


def _shades(map_: Map, x: Scale, row_px: float) -> list[str]:
    """Draw each shade as one path; neighbours in a row of one shade become one stroke."""
    paths: list[list[str]] = [[] for _ in range(LEVELS + 1)]
    thick = f"{row_px + OVERLAP:.3g}"
    for row, shares in enumerate(map_.cells):
        y = px(TOP + (row + 0.5) * row_px)
        start = 0
        for level, alike in groupby(map(_level, shares)):
            end = start + sum(1 for _ in alike)
            left, right = (px(x.at(map_.from_ms + n * map_.column_ms)) for n in (start, end))
            paths[level].append(f"M{left} {y}H{right}")
            start = end
    return [
        f'<path class="heat h{level}" stroke-width="{thick}" d="{"".join(path)}"/>'
        for level, path in enumerate(paths)
        if path
    ]


def _level(share: float) -> int:
    return 0 if share < 0.001 else max(1, min(LEVELS, round(share * LEVELS)))


def _node_finding(views: Sequence[View], maps: Sequence[Map]) -> str:
    parts: list[str] = []
    for view, map_ in zip(views[:5], maps, strict=False):
        means = [sum(row) / len(row) for row in map_.cells]
        parts.append(f"{percent(min(means))} and {percent(max(means))} under {view.name}")
    grouped = any(
        len(map_.cells) < view.run.nodes for view, map_ in zip(views, maps, strict=True)
    )
    thing = "row" if grouped else "node"
    return f"The devices of the least and the most used {thing} are busy {listed(parts)}."
