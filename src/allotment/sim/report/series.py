"""The cluster over time: the part of it in use, and the jobs that wait."""

from collections.abc import Callable, Sequence

from allotment.sim.outcome import Run, Sample
from allotment.sim.report.figure import Figure, lines_legend
from allotment.sim.report.marks import (
    Box,
    Picture,
    axes,
    curve,
    line,
    px,
    read_off,
    steps,
    svg,
    text,
)
from allotment.sim.report.scales import Scale, Ticks, count_ticks, moment_ticks
from allotment.sim.report.view import View, lengths, window
from allotment.sim.report.words import is_date, moment, number, percent, safe

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
    )


def queue(views: Sequence[View]) -> Figure:
    """Draw how many jobs wait."""
    heading = "Jobs waiting over time"
    if not _has_time(views):
        return Figure("queue", heading, "", NOTHING)
    return Figure(
        "queue",
        heading,
        "the height of a line is the number of jobs in line at that time, averaged where time "
        "is dense, so lower is better.",
        _queue_finding(views),
        (_queue_picture(views),),
        lines_legend(views),
    )


def _has_time(views: Sequence[View]) -> bool:
    return any(len(view.run.samples) > 1 for view in views)


def time_axis(views: Sequence[View], start: float, stop: float) -> tuple[Scale, Ticks, str]:
    """Make the axis that all runs of a page share."""
    low, high = window(views)
    dates = is_date(low) and is_date(high)
    name = "date and time of the trace" if dates else "time since the first submission"
    return Scale(low, high, start, stop), moment_ticks(low, high), name


def thinned(
    samples: Sequence[Sample], value: Callable[[Sample], int], most: int = POINTS
) -> list[tuple[int, float]]:
    """Give instants and values, at most `most`: means over time where there are more."""
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
        line(x.at(value), top, x.at(value), bottom) + text(x.at(value), bottom + 17, words, "m")
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
    points = thinned(view.run.samples, lambda sample: sample.busy_milli)
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
    box = Box(LEFT, 26, RIGHT, 274)
    lines = [(view, thinned(view.run.samples, lambda sample: sample.waiting)) for view in views]
    high = max((value for _, points in lines for _, value in points), default=0)
    x, x_ticks, name = time_axis(views, LEFT, RIGHT)
    y = Scale(0, max(1, high * 1.04), box.bottom, box.top)
    shapes = [axes(box, (x, x_ticks, name), (y, count_ticks(y.high), "jobs waiting"))]
    for view, points in lines:
        path = steps([(x.at(at), y.at(value)) for at, value in points], x.at(_end(view.run)))
        shapes.append(curve(view.index, path, view.name))
    says = " ".join(f"{v.name}: {v.summary.peak_waiting_jobs:,} at most." for v in views)
    picture = Picture("queue-svg", "Jobs waiting over time", says, box.bottom + 44)
    return svg(picture, shapes, read_off(box, x, y, ("moment", "count")))


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
    return (
        f"{percent(view.summary.utilization)} of the devices are busy on average until the "
        f"last job ends; for {percent(full / max(1, total))} of the time 95 % or more are."
    )


def _queue_finding(views: Sequence[View]) -> str:
    worst = max(views, key=lambda view: view.summary.peak_waiting_jobs)
    best = min(views, key=lambda view: view.summary.peak_waiting_jobs)
    peak, least = worst.summary.peak_waiting_jobs, best.summary.peak_waiting_jobs
    if not peak:
        return "No job waits for longer than an instant."
    top = max(worst.run.samples, key=lambda sample: sample.waiting)
    when = moment(top.at_ms, worst.begin_ms)
    if len(views) == 1:
        return f"The line is longest {when}: {number(peak)} jobs."
    if peak == least:
        return f"Under every policy {number(peak)} jobs wait at the worst moment."
    return (
        f"The line is longest under {worst.name}, {number(peak)} jobs {when}; under "
        f"{best.name} it never exceeds {number(least)}."
    )
