"""The cluster over time: the part of it in use, and the jobs that wait."""

from collections.abc import Callable, Sequence

from allotment.sim.outcome import Run, Sample
from allotment.sim.report.figure import Figure, FigureTable, lines_legend
from allotment.sim.report.marks import (
    Box,
    Picture,
    axes,
    curve,
    label,
    line,
    px,
    read_off,
    steps,
    svg,
    text,
)
from allotment.sim.report.scales import Scale, Ticks, count_ticks, moment_ticks, power_ticks
from allotment.sim.report.view import View, lengths, window
from allotment.sim.report.words import counted, is_date, moment, number, percent, safe

POINTS = 600
"""The most points of a line."""

LEFT, RIGHT = 54, 546
NOTHING = "The run has no samples: nothing to draw."


def utilisation(views: Sequence[View]) -> Figure:
    """Draw the share of the cluster that is in use, one strip for each run."""
    heading = "Devices in use over time"
    if not _has_time(views):
        return Figure("use", heading, "", NOTHING)
    return Figure(
        "use",
        heading,
        "each strip is the whole cluster under one policy; the filled part of its height is "
        "the share of all devices in use, averaged where time is dense.",
        _use_finding(views),
        (_strips(views),),
        table=_table(
            views, lambda view, mean: percent(mean / max(1, view.run.capacity_milli)), _busy
        ),
    )


def queue(views: Sequence[View]) -> Figure:
    """Draw how many jobs wait."""
    heading = "Jobs waiting over time"
    if not _has_time(views):
        return Figure("queue", heading, "", NOTHING)
    if not any(view.summary.peak_waiting_jobs for view in views):
        return Figure("queue", heading, "", "No job waits for longer than an instant.")
    how = (
        "the height of a line is the number of waiting jobs at that time, averaged where time "
        "is dense, so lower is better"
    )
    if _is_far_apart(views):
        how += "; each step of the scale is ten times as many, and the bottom is one or none"
    if _until_nobody_waits(views) != window(views):
        how += "; beyond the right edge no job waits"
    return Figure(
        "queue",
        heading,
        f"{how}.",
        _queue_finding(views),
        (_queue_picture(views),),
        lines_legend(views),
        table=_table(views, lambda _, mean: number(round(mean)), _waiting),
    )


def _busy(sample: Sample) -> int:
    return sample.busy_milli


def _waiting(sample: Sample) -> int:
    return sample.waiting


STRETCHES = 12
"""Rows of a table of means over time."""


def _table(
    views: Sequence[View], show: Callable[[View, float], str], value: Callable[[Sample], int]
) -> FigureTable:
    low, high = window(views)
    edges = [low + (high - low) * n // STRETCHES for n in range(STRETCHES + 1)]
    means = [means_between(view.run.samples, edges, value) for view in views]
    rows = tuple(
        (
            _when(edges[n], low),
            *(
                "–" if some[n] is None else show(view, some[n] or 0)
                for view, some in zip(views, means, strict=True)
            ),
        )
        for n in range(STRETCHES)
    )
    return FigureTable(("mean from here on", *(view.name for view in views)), rows)


def _when(at: int, begin: int) -> str:
    said = moment(at, begin)
    return said.removeprefix("on ") if is_date(begin) else said.partition(" after")[0]


def means_between(
    samples: Sequence[Sample], edges: Sequence[int], value: Callable[[Sample], int]
) -> list[float | None]:
    """Average a step function over each stretch between edges; None where it is not known."""
    sums = [0] * (len(edges) - 1)
    spans = [0] * (len(edges) - 1)
    place = 0
    for sample, length in lengths(samples):
        at, end = sample.at_ms, sample.at_ms + length
        while at < end and place < len(sums):
            part = min(end, edges[place + 1]) - at
            if part > 0:
                sums[place] += value(sample) * part
                spans[place] += part
                at += part
            if at >= edges[place + 1]:
                place += 1
    return [total / span if span else None for total, span in zip(sums, spans, strict=True)]


def _is_far_apart(views: Sequence[View]) -> bool:
    """Whether lines would lie flat on the bottom of a scale that fits the longest."""
    peaks = [view.summary.peak_waiting_jobs for view in views if view.run.samples]
    some = [peak for peak in peaks if peak > 1]
    return len(some) > 1 and max(some) > 10 * min(some)


def _has_time(views: Sequence[View]) -> bool:
    return any(len(view.run.samples) > 1 for view in views)


def time_axis(views: Sequence[View], start: float, stop: float) -> tuple[Scale, Ticks, str]:
    """Make the axis that all runs of a page share."""
    return axis_between(*window(views), start, stop)


def axis_between(low: int, high: int, start: float, stop: float) -> tuple[Scale, Ticks, str]:
    """Make an axis of the time between two instants."""
    dates = is_date(low) and is_date(high)
    name = "date and time of the trace" if dates else "time since the first submission"
    return Scale(low, high, start, stop), moment_ticks(low, high), name


def thinned(
    samples: Sequence[Sample], value: Callable[[Sample], int], most: int = POINTS
) -> list[tuple[int, float]]:
    """Return instants and values, at most `most`: means over time where there are more."""
    if len(samples) <= most:
        return [(sample.at_ms, value(sample)) for sample in samples]
    low, width = samples[0].at_ms, max(1, samples[-1].at_ms - samples[0].at_ms)
    points: list[tuple[int, float]] = []
    bin_now, since, area, span = -1, low, 0, 0
    for sample, length in lengths(samples):
        place = (sample.at_ms - low) * (most - 1) // width
        if place != bin_now:
            if span:
                points.append((since, area / span))
            bin_now, since, area, span = place, sample.at_ms, 0, 0
        area += value(sample) * length
        span += length
    return [*points, (since, area / max(1, span))]


def _end(run: Run) -> int:
    return run.samples[-1].at_ms if run.samples else 0


def _strips(views: Sequence[View]) -> str:
    height, gap = (190, 0) if len(views) == 1 else (62, 30)
    top = 28
    bottom = top + len(views) * (height + gap) - gap
    x, x_ticks, name = time_axis(views, LEFT, RIGHT)
    shapes: list[str] = [
        line(x.at(value), top, x.at(value), bottom) + label(x.at(value), bottom + 17, words)
        for value, words in x_ticks
    ]
    shapes.append(text((LEFT + RIGHT) / 2, bottom + 36, name, "m n"))
    for place, view in enumerate(views):
        upper = top + place * (height + gap)
        shapes.append(_strip(view, x, Scale(0, 1, upper + height, upper)))
    says = " ".join(f"{v.name}: {percent(v.summary.utilization)} on average." for v in views)
    box = Box(LEFT, top, RIGHT, bottom)
    extra = read_off(box, x, Scale(0, 1, bottom, top), ("moment", "share"))
    return svg(Picture("use-svg", "Devices in use over time", says, bottom + 44), shapes, extra)


def _strip(view: View, x: Scale, y: Scale) -> str:
    capacity = max(1, view.run.capacity_milli)
    points = thinned(view.run.samples, _busy)
    path = steps(
        [(x.at(at), y.at(busy / capacity)) for at, busy in points], x.at(_end(view.run))
    )
    first = px(x.at(points[0][0])) if points else "0"
    area = f"{path}V{px(y.start)}H{first}Z" if path else ""
    marks = [
        line(LEFT, y.at(part), RIGHT, y.at(part), "axis" if not part else "grid")
        + text(LEFT - 7, y.at(part) + 4, f"{part * 100:.0f} %", "e")
        for part in (0, 0.5, 1)
    ]
    name = safe(view.name)
    return (
        f"{''.join(marks)}{text(LEFT, y.stop - 6, view.name, 'b')}"
        f'<path class="area p{view.index}" data-p="{view.index}" data-name="{name}" '
        f'data-box="{px(y.stop)} {px(y.start)}" d="{area}"><title>{name}</title></path>'
    )


def _queue_picture(views: Sequence[View]) -> str:
    box = Box(LEFT, 26, RIGHT, min(330, max(274, 14 + len(views) * 62)))
    low, high = _until_nobody_waits(views)
    x, x_ticks, name = axis_between(low, high, LEFT, RIGHT)
    lines = [(view, _within(view, high)) for view in views]
    most = max((value for _, points in lines for _, value in points), default=0)
    far = _is_far_apart(views)
    y = Scale(1 if far else 0, max(4 if far else 1, most * 1.04), box.bottom, box.top, log=far)
    ticks = power_ticks(y.high) if far else count_ticks(y.high)
    shapes = [axes(box, (x, x_ticks, name), (y, ticks, "jobs waiting"))]
    for view, points in lines:
        path = steps([(x.at(at), y.at(value)) for at, value in points], x.at(_end(view.run)))
        shapes.append(curve(view.index, path, view.name))
    says = " ".join(f"{v.name}: {v.summary.peak_waiting_jobs:,} at most." for v in views)
    picture = Picture("queue-svg", "Jobs waiting over time", says, box.bottom + 44)
    return svg(picture, shapes, read_off(box, x, y, ("moment", "power" if far else "count")))


def _until_nobody_waits(views: Sequence[View]) -> tuple[int, int]:
    """Return the window without its end if no job waits there and it is long."""
    low, high = window(views)
    last = low
    for view in views:
        for sample, length in lengths(view.run.samples):
            if sample.waiting:
                last = max(last, sample.at_ms + length)
    cut = last + (last - low) // 20
    return (low, cut) if low < last and cut - low < (high - low) * 2 // 3 else (low, high)


def _within(view: View, high: int) -> list[tuple[int, float]]:
    seen = [sample for sample in view.run.samples if sample.at_ms <= high]
    return thinned(seen, _waiting)


def _use_finding(views: Sequence[View]) -> str:
    if len(views) > 1:
        best = max(views, key=lambda view: view.summary.utilization)
        worst = min(views, key=lambda view: view.summary.utilization)
        high, low = percent(best.summary.utilization), percent(worst.summary.utilization)
        if high == low:
            return f"Every policy keeps {high} of the devices busy until its last job ends."
        return (
            f"Until its last job ends {best.name} keeps {high} of the devices busy, "
            f"{worst.name} {low}."
        )
    view = views[0]
    total = full = 0
    for sample, length in lengths(view.run.samples):
        total += length
        full += length if sample.busy_milli >= 0.95 * view.run.capacity_milli else 0
    if not view.summary.completed:
        return "No job completed."
    part = f"for {percent(full / total)} of the time" if full else "at no time"
    return (
        f"{percent(view.summary.utilization)} of the devices are busy on average until the "
        f"last job ends, {part} 95 % of them or more."
    )


def _queue_finding(views: Sequence[View]) -> str:
    worst = max(views, key=lambda view: view.summary.peak_waiting_jobs)
    best = min(views, key=lambda view: view.summary.peak_waiting_jobs)
    peak, least = worst.summary.peak_waiting_jobs, best.summary.peak_waiting_jobs
    top = max(worst.run.samples, key=_waiting)
    when = moment(top.at_ms, worst.begin_ms)
    if len(views) == 1:
        return f"The queue is longest {when}: {_jobs(peak)}."
    if peak == least:
        return f"Under every policy {number(peak)} jobs wait at the worst moment."
    said = f"The queue is longest under {worst.name}: {_jobs(peak)}, {when}. "
    if not least:
        return f"{said}Under {best.name} no job waits."
    return f"{said}Under {best.name} it is never longer than {number(least)}."


def _jobs(count: int) -> str:
    return counted(count, "job")
