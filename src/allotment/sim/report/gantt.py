"""Single jobs over time: when each waits, runs, and has its devices taken away."""

from collections.abc import Sequence

import msgspec

from allotment.sim.chart import LARGEST, Chart, Span
from allotment.sim.outcome import JobOutcome
from allotment.sim.report.figure import NOT_FOLLOWED, Figure, FigureTable, marks_legend
from allotment.sim.report.marks import Picture, label, line, px, svg, text
from allotment.sim.report.scales import Scale
from allotment.sim.report.series import axis_between
from allotment.sim.report.view import View, window
from allotment.sim.report.words import (
    counted,
    devices,
    duration,
    fitted,
    listed,
    percent,
    safe,
    short,
)

LEFT, RIGHT, TOP = 122, 546, 28
ROW = 13
THICK = 8
"""The height of a row, and of the bar in it."""

APART = 3
"""Strokes nearer than this would be a blot."""

MARKS = (
    ("runs", '<path class="job p{0}" d="M1 2H33V10H1Z"/>'),
    ("waits", '<path class="wait" d="M0 6H34"/>'),
    (
        "is preempted",
        '<path class="job p{0}" d="M1 2H33V10H1Z"/><path class="gone" d="M33 0V12"/>',
    ),
)


class JobSpans(msgspec.Struct, frozen=True):
    """One job and the stretches for which it ran."""

    job: JobOutcome
    spans: tuple[Span, ...]

    @property
    def waited_ms(self) -> int:
        """Return how long it did not run, of a job that ended."""
        return max(0, self.job.end_ms - self.job.submit_ms - self.job.ran_ms)


def jobs(views: Sequence[View]) -> Figure:
    """Draw a row for each job, of the largest where there are many."""
    heading = "Jobs over time"
    known = [(view, chart) for view in views if (chart := view.run.chart) and chart.jobs]
    if not known or len(known) < len(views):
        return Figure("jobs", heading, "", NOT_FOLLOWED)
    drawn = [courses(view, chart) for view, chart in known]
    low, high = window(views)
    return Figure(
        "jobs",
        heading,
        _how(views[0], drawn[0], max(chart.pause_ms for _, chart in known)),
        _finding(views, drawn),
        tuple(_picture(view, some, low, high) for view, some in zip(views, drawn, strict=True)),
        marks_legend(
            [
                (words, mark.format(views[0].index if len(views) == 1 else 0))
                for words, mark in MARKS
            ]
        ),
        full=len(views) > 1,
        table=_table(views, drawn),
    )


def courses(view: View, chart: Chart) -> list[JobSpans]:
    """Return the jobs to draw in order of submission: all, or the largest of many."""
    rows = view.run.jobs
    places = chart.jobs
    if len(places) > LARGEST:
        asked = {place: rows[place].gpu_milli * rows[place].run_ms for place in places}
        places = sorted(sorted(places, key=lambda place: (-asked[place], place))[:LARGEST])
    spans: dict[int, list[Span]] = {place: [] for place in places}
    for span in chart.spans:
        if span.job in spans:
            spans[span.job].append(span)
    return [JobSpans(rows[place], tuple(spans[place])) for place in places]


def _how(view: View, drawn: Sequence[JobSpans], pause_ms: int) -> str:
    said = (
        "each row is a job, in order of submission, named by its id and how many devices it "
        "asks for. It runs where there is a bar, and waits where there is a dotted line; an "
        "upright stroke is where its devices are taken away (a preemption). "
    )
    if len(drawn) == len(view.run.jobs):
        said += "All jobs are drawn."
    else:
        said += (
            f"{len(drawn)} of {counted(len(view.run.jobs), 'job')} are drawn: those that ask "
            "for the most device-time (devices × run time)."
        )
    if pause_ms:
        said += f" Pauses of up to {duration(pause_ms)} are left out where a job has many."
    return said


def _picture(view: View, drawn: Sequence[JobSpans], low: int, high: int) -> str:
    bottom = TOP + ROW * len(drawn) + 4
    x, ticks, name = axis_between(low, high, LEFT, RIGHT)
    shapes = [text(LEFT, TOP - 10, view.name, "b")]
    shapes += [
        line(x.at(at), TOP, x.at(at), bottom) + label(x.at(at), bottom + 17, words)
        for at, words in ticks
    ]
    shapes.append(text((LEFT + RIGHT) / 2, bottom + 35, name, "m n"))
    for place, course in enumerate(drawn):
        shapes.append(_row(view, course, x, TOP + 4 + place * ROW))
    shapes.append(line(LEFT, bottom, RIGHT, bottom, "axis"))
    says = f"{part_running(drawn)} A table with every job stands below the picture."
    picture = Picture(f"jobs-{view.index}", f"Jobs under {view.name}", says, bottom + 44)
    return svg(picture, shapes)


def _row(view: View, course: JobSpans, x: Scale, top: float) -> str:
    job, middle = course.job, px(top + THICK / 2)
    edges = [job.submit_ms]
    bars: list[str] = []
    gone: list[str] = []
    last = x.start
    for span in course.spans:
        left, right = x.at(span.from_ms), x.at(span.to_ms)
        # Whatever ran is seen, if only as a hair.
        right = max(right, left + 0.7)
        bars.append(f"M{px(left)} {px(top)}H{px(right)}v{THICK}H{px(left)}z")
        if span.sent_away and (not gone or right - last >= APART):
            gone.append(f"M{px(right)} {px(top - 2)}v{THICK + 4}")
            last = right
        edges += [span.from_ms, span.to_ms]
    edges.append(job.end_ms if job.end_ms >= 0 else round(x.high))
    waits = "".join(
        f"M{px(x.at(a))} {middle}H{px(x.at(b))}"
        for a, b in zip(edges[::2], edges[1::2], strict=True)
        if x.at(b) - x.at(a) >= 1
    )
    amount = f"{job.gpu_milli / 1000:g}"
    shapes = [text(LEFT - 6, top + 7.5, f"{fitted(job.id, LEFT - 48, 10.5)} · {amount}", "e s")]
    for kind, path in (
        ("wait", waits),
        (f"job p{view.index}", "".join(bars)),
        ("halo", "".join(gone)),
        ("gone", "".join(gone)),
    ):
        if path:
            shapes.append(f'<path class="{kind}" d="{path}"/>')
    return f"<g><title>{safe(_told(course))}</title>{''.join(shapes)}</g>"


def _told(course: JobSpans) -> str:
    job = course.job
    said = f"{job.id} of {job.tenant or 'no tenant'}, {devices(job.gpu_milli)}: "
    if job.start_ms < 0:
        return f"{said}never started"
    ran = f"ran {duration(job.ran_ms)}"
    if job.end_ms < 0:
        return f"{said}{ran}, did not end"
    said += f"waited {duration(course.waited_ms)}, {ran}"
    return f"{said}, preempted {counted(job.preemptions, 'time')}" if job.preemptions else said


def part_running(drawn: Sequence[JobSpans]) -> str:
    """Return which part of their stay the jobs ran."""
    ended = [course.job for course in drawn if course.job.end_ms >= 0]
    stay = sum(job.end_ms - job.submit_ms for job in ended)
    if not stay:
        return "None of these jobs ended."
    return (
        f"These jobs run for {percent(sum(job.ran_ms for job in ended) / stay)} of their stay."
    )


def _finding(views: Sequence[View], drawn: Sequence[Sequence[JobSpans]]) -> str:
    parts: list[str] = []
    for view, some in list(zip(views, drawn, strict=True))[:5]:
        ended = [course.job for course in some if course.job.end_ms >= 0]
        stay = sum(job.end_ms - job.submit_ms for job in ended)
        if stay:
            part = percent(sum(job.ran_ms for job in ended) / stay)
            parts.append(f"{part} under {view.name}" if len(views) > 1 else part)
    if not parts:
        return "None of these jobs ended."
    which = "The largest jobs" if len(drawn[0]) < len(views[0].run.jobs) else "The jobs"
    return f"{which} run for {listed(parts)} of their stay; the rest of the time they wait."


def _table(views: Sequence[View], drawn: Sequence[Sequence[JobSpans]]) -> FigureTable:
    head = ("policy", "job", "tenant", "devices", "waited", "ran", "preempted")
    rows = [
        (
            view.name,
            short(course.job.id, 40),
            short(course.job.tenant or "(no name)", 24),
            f"{course.job.gpu_milli / 1000:g}",
            duration(course.waited_ms) if course.job.end_ms >= 0 else "did not end",
            duration(course.job.ran_ms),
            f"{course.job.preemptions:,}",
        )
        for view, some in zip(views, drawn, strict=True)
        for course in some
    ]
    return FigureTable(head, tuple(rows), words=3)
