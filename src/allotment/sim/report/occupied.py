"""Every device of a small cluster over time: which job holds it, and whose that job is."""

from collections.abc import Sequence
from itertools import groupby

import msgspec

from allotment.model.quantity import DEVICE
from allotment.sim.chart import Chart, Span
from allotment.sim.outcome import JobOutcome
from allotment.sim.report.figure import Figure, marks_legend
from allotment.sim.report.heat import table
from allotment.sim.report.marks import Picture, label, line, px, svg, text
from allotment.sim.report.scales import Scale, count_ticks
from allotment.sim.report.series import axis_between, thinned
from allotment.sim.report.view import View, demand, window
from allotment.sim.report.words import (
    counted,
    devices,
    duration,
    fitted,
    listed,
    percent,
    safe,
    short,
    width,
)

LEFT, RIGHT, TOP = 122, 546, 28
TALLEST = 360
"""Of the part with the devices."""

STRIP = 40
"""The height of the line of waiting jobs below it."""

TENANTS = 7
"""Told apart by colour and hatching; all others look alike."""

MOST_SPANS, MOST_PIECES = 2_500, 8_000
"""Of all runs together: more would make a large page, and a picture nobody can read."""

BETWEEN = 11.5
"""The least distance between the names of two nodes."""

NAMED = 11
"""The least height of a row for the number of its device to stand beside it."""


def is_small(views: Sequence[View]) -> bool:
    """Whether every device of every run can be drawn, on a page that stays small."""
    charts = [view.run.chart for view in views]
    known = [chart for chart in charts if chart and chart.devices and chart.spans]
    spans = [span for chart in known for span in chart.spans]
    return (
        0 < len(known) == len(charts)
        and len(spans) <= MOST_SPANS
        and sum(len(span.devices) for span in spans) <= MOST_PIECES
    )


def cluster(views: Sequence[View]) -> Figure:
    """Draw a row for each device. Only for what `is_small`."""
    tenants = _tenants(views)
    low, high = window(views)
    pictures = tuple(
        _picture(view, chart, tenants, low, high)
        for view in views
        if (chart := view.run.chart) is not None
    )
    colour = "colour and hatching tell the tenants apart" if len(tenants) > 1 else ""
    return Figure(
        "devices",
        "Devices over time",
        "each row is a device; a block is a job that holds it, named where there is room"
        + (f", and {colour}" if colour else "")
        + (". Jobs that share a device lie beside each other" if _is_shared(views) else "")
        + ". A heavy stroke at the end of a block is where the devices are taken from the job "
        "(a preemption). Below it, the number of jobs that wait.",
        _finding(views),
        pictures,
        marks_legend(
            [
                (name, f'<path class="bar p{n}" fill="url(#h{n})" d="M1 1H33V11H1Z"/>')
                for name, n in _legend(tenants)
            ]
            if len(tenants) > 1
            else []
        ),
        full=len(views) > 1,
        table=table(views),
    )


def _is_shared(views: Sequence[View]) -> bool:
    charts = [chart for view in views if (chart := view.run.chart) is not None]
    return any(
        milli < DEVICE
        for chart in charts
        for span in shared(chart.spans)
        for _, milli in span.devices
    )


def _tenants(views: Sequence[View]) -> dict[str, int]:
    """Number the tenants, those that ask for most first; the small ones share a number."""
    asked = demand(views[0].run.jobs)
    ordered = sorted(asked, key=lambda tenant: (-asked[tenant], tenant))
    return {tenant: min(n, TENANTS) for n, tenant in enumerate(ordered)}


def _legend(tenants: dict[str, int]) -> list[tuple[str, int]]:
    names = [(short(name or "(no name)", 24), n) for name, n in tenants.items() if n < TENANTS]
    others = len(tenants) - len(names)
    if others:
        names.append((counted(others, "other"), TENANTS))
    return names


def _picture(view: View, chart: Chart, tenants: dict[str, int], low: int, high: int) -> str:
    row = max(5.0, min(16.0, TALLEST / len(chart.devices)))
    bottom = TOP + row * len(chart.devices)
    x, ticks, name = axis_between(low, high, LEFT, RIGHT)
    end = bottom + STRIP + 12
    shapes = [text(LEFT, TOP - 10, view.name, "b")]
    shapes += [
        line(x.at(at), TOP, x.at(at), end) + label(x.at(at), end + 17, words)
        for at, words in ticks
    ]
    shapes += _names(chart, row)
    shapes += _blocks(view, chart, tenants, x, row)
    shapes += _strip(view, x, bottom + 12)
    shapes.append(text((LEFT + RIGHT) / 2, end + 35, name, "m n"))
    says = f"{percent(view.summary.utilization)} of the devices are in use on average."
    picture = Picture(f"devices-{view.index}", f"Devices under {view.name}", says, end + 44)
    return svg(picture, shapes)


def _names(chart: Chart, row: float) -> list[str]:
    """Name nodes once, and number their devices where there is room."""
    several = len({device.partition(" ")[2] for _, device in chart.devices}) > 1
    shapes: list[str] = []
    n, last = 0, -BETWEEN
    for node, group in groupby(chart.devices, key=lambda device: device[0]):
        own = [device for _, device in group]
        top, kind = TOP + n * row, own[0].partition(" ")[2]
        middle = top + len(own) * row / 2 + 4
        shapes.append(line(LEFT - 4, top, RIGHT, top, "axis"))
        if middle - last >= BETWEEN:
            last, right = middle, LEFT - (24 if row >= NAMED else 6)
            name = fitted(node, right * (0.6 if several else 1), 10.5)
            if several:
                name += " " + fitted(kind, right * 0.4 - 4, 10.5)
            shapes.append(text(right, middle, name, "e s"))
        if row >= NAMED:
            shapes += [
                text(LEFT - 6, top + (k + 0.5) * row + 3.5, device.partition(" ")[0], "e s")
                for k, device in enumerate(own)
            ]
        n += len(own)
    bottom = TOP + row * n
    return [*shapes, line(LEFT - 4, bottom, RIGHT, bottom, "axis")]


def _blocks(
    view: View, chart: Chart, tenants: dict[str, int], x: Scale, row: float
) -> list[str]:
    """Draw all blocks of a tenant at once, and over them an outline for each stretch."""
    fills: dict[int, list[str]] = {}
    outlines: list[str] = []
    taken: dict[int, list[tuple[int, int, int]]] = {}
    for span in shared(chart.spans):
        job = view.run.jobs[span.job]
        left, right = x.at(span.from_ms), x.at(span.to_ms)
        path: list[str] = []
        over: list[str] = []
        for upper, lower in pieces(span, taken):
            top, high = TOP + upper * row, (lower - upper) * row
            path.append(
                f"M{px(left)} {px(top)}H{px(max(right, left + 0.7))}v{px(high)}H{px(left)}z"
            )
            if span.sent_away:
                over.append(f'<path class="gone" d="M{px(right)} {px(top)}v{px(high)}"/>')
            if high >= 11 and right - left >= 8 + width(job.id) * 10.5:
                over.append(text(left + 4, top + high / 2 + 4, job.id, "in"))
        shape = "".join(path)
        n = tenants[job.tenant] if len(tenants) > 1 else view.index
        fills.setdefault(n, []).append(shape)
        outlines.append(
            f"<g><title>{safe(_told(job, span))}</title>"
            f'<path class="edge" d="{shape}"/>{"".join(over)}</g>'
        )
    return [
        f'<path class="p{n}" fill="url(#h{n})" d="{"".join(some)}"/>'
        for n, some in sorted(fills.items())
    ] + outlines


def _told(job: JobOutcome, span: Span) -> str:
    said = (
        f"{job.id} of {job.tenant or 'no tenant'}, {devices(job.gpu_milli)}, "
        f"{duration(span.to_ms - span.from_ms)}"
    )
    return f"{said}, then preempted" if span.sent_away else said


def shared(spans: Sequence[Span]) -> list[Span]:
    """Return stretches as they begin; a job that shares a device has half of it at most."""
    ordered = sorted(spans, key=lambda span: (span.from_ms, span.job))
    last: dict[int, list[int]] = {}
    halved: set[tuple[int, int]] = set()
    for n, span in enumerate(ordered):
        for device, _ in span.devices:
            here = [m for m in last.get(device, []) if ordered[m].to_ms > span.from_ms]
            if here:
                halved.update((m, device) for m in (*here, n))
            last[device] = [*here, n]
    return [
        msgspec.structs.replace(
            span,
            devices=tuple(
                (device, min(milli, DEVICE // 2) if (n, device) in halved else milli)
                for device, milli in span.devices
            ),
        )
        for n, span in enumerate(ordered)
    ]


def pieces(
    span: Span, taken: dict[int, list[tuple[int, int, int]]]
) -> list[tuple[float, float]]:
    """Return rows a span covers, neighbours as one; jobs that share a device lie in lanes."""
    pieces: list[tuple[float, float]] = []
    for device, milli in sorted(span.devices):
        if milli >= DEVICE:
            if pieces and pieces[-1][1] == device:
                pieces[-1] = (pieces[-1][0], device + 1)
            else:
                pieces.append((device, device + 1))
            continue
        lanes = [lane for lane in taken.get(device, []) if lane[2] > span.from_ms]
        start = 0
        for lower, upper, _ in sorted(lanes):
            if lower - start >= milli:
                break
            start = max(start, upper)
        start = min(start, DEVICE - milli)
        taken[device] = [*lanes, (start, start + milli, span.to_ms)]
        pieces.append((device + start / DEVICE, device + (start + milli) / DEVICE))
    return pieces


def _strip(view: View, x: Scale, top: float) -> list[str]:
    """Draw how many jobs wait."""
    points = thinned(view.run.samples, lambda sample: sample.waiting)
    most = max((value for _, value in points), default=0)
    y = Scale(0, max(1, most), top + STRIP, top)
    shapes = [text(LEFT - 6, top + STRIP, "0", "e s"), text(LEFT - 40, top + 9, "jobs", "e s")]
    shapes.append(text(LEFT - 40, top + 21, "waiting", "e s"))
    shapes += [
        line(LEFT, y.at(value), RIGHT, y.at(value))
        + text(LEFT - 6, y.at(value) + 4, words, "e s")
        for value, words in count_ticks(y.high, 2)[1:]
    ]
    path = "".join(
        f"H{px(x.at(at))}V{px(y.at(value))}"
        if n
        else f"M{px(x.at(at))} {px(top + STRIP)}V{px(y.at(value))}"
        for n, (at, value) in enumerate(points)
    )
    if path:
        shapes.append(f'<path class="queue" d="{path}V{px(top + STRIP)}Z"/>')
    shapes.append(line(LEFT, top + STRIP, RIGHT, top + STRIP, "axis"))
    return shapes


def _finding(views: Sequence[View]) -> str:
    parts = [
        f"{counted(sum(job.preemptions for job in view.run.jobs), 'time')}"
        + (f" under {view.name}" if len(views) > 1 else "")
        for view in views[:5]
    ]
    if not any(job.preemptions for view in views for job in view.run.jobs):
        return "No running job is preempted."
    return f"Jobs are preempted {listed(parts)}."
