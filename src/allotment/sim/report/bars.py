"""How long jobs wait: bars by tenant and by the size of jobs."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from allotment.metrics.series import completed
from allotment.model.quantity import DEVICE, SECOND
from allotment.sim.report.figure import Figure, FigureTable, bars_legend
from allotment.sim.report.marks import Picture, label, line, px, svg, text
from allotment.sim.report.scales import Scale, span_ticks
from allotment.sim.report.view import View, demand
from allotment.sim.report.words import duration, fitted, listed, percent, safe, short

LABEL = 132
"""Where the bars begin: names stand to the left."""

MOST_TENANTS = 12
"""Shown one by one; fewer when each has many bars."""
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""The upper ends of the classes of devices."""


class Group(msgspec.Struct, frozen=True):
    """Bars that belong together: one for each run."""

    name: str
    note: str
    """Written small below the name."""
    means_ms: tuple[float | None, ...]
    """None where no job of the group completed."""
    alone: bool = True
    """False of what is left over, which no sentence speaks of."""


def by_tenant(views: Sequence[View]) -> Figure:
    """Draw each tenant's mean wait, the tenants that ask for most first."""
    how = (
        "each bar is the mean queueing delay of a tenant's completed jobs under one policy; "
        "the tenants that ask for most device-time stand first."
    )
    figure = Figure("tenants", "Waits by tenant", how)
    if len({job.tenant for view in views for job in view.run.jobs}) == 1:
        return replace(figure, finding="All jobs are of one tenant: nothing to compare.")
    return _filled(figure, views, _tenants(views), "tenant {} waits")


def by_size(views: Sequence[View]) -> Figure:
    """Draw the mean wait of jobs by the devices they ask for."""
    how = (
        "each bar is the mean queueing delay of the completed jobs that ask for so many "
        "devices, under one policy."
    )
    figure = Figure("sizes", "Waits by job size", how)
    return _filled(figure, views, sizes(views), "jobs of {} wait")


def _filled(
    figure: Figure, views: Sequence[View], groups: Sequence[Group], who_waits: str
) -> Figure:
    """Add what came out and the picture, unless there is nothing to see."""
    if not groups:
        return replace(figure, finding="No job completed: nothing to draw.")
    if not any(mean for group in groups for mean in group.means_ms):
        return replace(figure, finding="No job waited.")
    return replace(
        figure,
        finding=_finding(views, groups, who_waits),
        pictures=(_picture(f"{figure.key}-svg", figure.heading, views, groups),),
        legend=bars_legend(views),
        table=FigureTable(
            ("mean queueing delay of", "", *(view.name for view in views)),
            tuple((g.name, g.note, *map(_shown, g.means_ms)) for g in groups),
            words=2,
        ),
    )


def _tenants(views: Sequence[View]) -> list[Group]:
    """Group by tenant; all but the largest together."""
    means = [
        {
            block.tenant: (block.avg_queue_delay_s * SECOND, block.completed)
            for block in view.summary.tenants
        }
        for view in views
    ]
    asked = demand(views[0].run.jobs) if views else {}
    for known in means:
        for tenant in known:
            asked.setdefault(tenant, 0)
    total = max(1, sum(asked.values()))
    ordered = sorted(asked, key=lambda tenant: (-asked[tenant], tenant))
    most = MOST_TENANTS if len(views) < 4 else MOST_TENANTS * 2 // 3
    kept = ordered if len(ordered) <= most + 1 else ordered[:most]
    groups = [
        Group(
            short(tenant or "(no name)", 40),
            f"{percent(asked[tenant] / total)} of demand",
            tuple(_mean([known.get(tenant, (0, 0))]) for known in means),
        )
        for tenant in kept
    ]
    rest = ordered[len(kept) :]
    if rest:
        part = sum(asked[tenant] for tenant in rest) / total
        groups.append(
            Group(
                f"{len(rest)} others",
                f"{percent(part)} of demand",
                tuple(_mean([known.get(name, (0, 0)) for name in rest]) for known in means),
                alone=False,
            )
        )
    return [group for group in groups if any(mean is not None for mean in group.means_ms)]


def _mean(parts: Sequence[tuple[float, int]]) -> float | None:
    count = sum(jobs for _, jobs in parts)
    return sum(mean * jobs for mean, jobs in parts) / count if count else None


def sizes(views: Sequence[View]) -> list[Group]:
    """Group by devices, in powers of two."""
    sums: list[dict[int, list[int]]] = []
    for view in views:
        classes: dict[int, list[int]] = {}
        place_of: dict[int, int] = {}
        for job in view.run.jobs:
            if not completed(job):
                continue
            place = place_of.get(job.gpu_milli)
            if place is None:
                place = place_of[job.gpu_milli] = _size_class(job.gpu_milli)
            entry = classes.setdefault(place, [0, 0])
            entry[0] += job.end_ms - job.submit_ms - job.ran_ms
            entry[1] += 1
        sums.append(classes)
    groups: list[Group] = []
    for place in sorted({place for classes in sums for place in classes}):
        parts = [classes.get(place, [0, 0]) for classes in sums]
        jobs = max(count for _, count in parts)
        groups.append(
            Group(
                _size_name(place),
                f"{jobs:,} jobs" if jobs > 1 else "1 job",
                tuple(total / count if count else None for total, count in parts),
            )
        )
    return groups


def _size_class(gpu_milli: int) -> int:
    """Return the place among the classes: -1 none, then parts of one, then up to each size."""
    if not gpu_milli:
        return -1
    if gpu_milli < DEVICE:
        return 0
    return 1 + next(
        (n for n, size in enumerate(SIZES) if gpu_milli <= size * DEVICE), len(SIZES)
    )


def _size_name(place: int) -> str:
    if place < 1:
        return "part of a device" if place == 0 else "no device"
    if place > len(SIZES):
        return f"over {SIZES[-1]:,} devices"
    low = SIZES[place - 2] + 1 if place > 1 else 1
    high = SIZES[place - 1]
    if low == high:
        return "1 device" if high == 1 else f"{high:,} devices"
    return f"{low:,}–{high:,} devices"


def _picture(key: str, title: str, views: Sequence[View], groups: Sequence[Group]) -> str:
    pitch = 15 if len(views) < 4 else 12
    inside = max(len(views) * pitch, 26)
    top, between = 10, 12
    bottom = top + len(groups) * (inside + between)
    most = max((mean or 0 for group in groups for mean in group.means_ms), default=0)
    x = Scale(0, most or SECOND, LABEL, 490)
    shapes = [
        line(x.at(value), top, x.at(value), bottom) + label(x.at(value), bottom + 17, words)
        for value, words in (span_ticks(x.high) if most else [(0, "0")])
    ]
    shapes.append(text((LABEL + 490) / 2, bottom + 36, "mean queueing delay", "m n"))
    for place, group in enumerate(groups):
        upper = top + place * (inside + between) + between / 2
        middle = upper + inside / 2
        shapes.append(text(LABEL - 8, middle - 1, fitted(group.name, LABEL - 10, 12), "e"))
        shapes.append(text(LABEL - 8, middle + 12, group.note, "e s"))
        shapes += _bars(views, group, x, upper + (inside - len(views) * pitch) / 2, pitch)
    shapes.append(line(LABEL, top, LABEL, bottom, "axis"))
    says = " ".join(
        f"{view.name}: "
        + listed([f"{g.name} {_shown(g.means_ms[n])}" for g in groups[:MOST_TENANTS]])
        + "."
        for n, view in enumerate(views)
    )
    return svg(Picture(key, title, says, bottom + 44), shapes)


def _bars(views: Sequence[View], group: Group, x: Scale, top: float, pitch: float) -> list[str]:
    shapes: list[str] = []
    for place, (view, mean) in enumerate(zip(views, group.means_ms, strict=True)):
        y, right = top + place * pitch, x.at(mean or 0)
        words = f"{view.name}, {group.name}: {_shown(mean)}"
        shapes.append(
            f'<g data-p="{view.index}"><title>{safe(words)}</title>'
            f'<path class="bar p{view.index}" fill="url(#h{view.index})" '
            f'd="M{LABEL} {px(y + 1)}H{px(right)}V{px(y + pitch - 2)}H{LABEL}Z"/>'
            f"{text(right + 5, y + pitch / 2 + 3.5, _shown(mean), 's')}</g>"
        )
    return shapes


def _shown(mean: float | None) -> str:
    return "none completed" if mean is None else duration(mean)


def _finding(views: Sequence[View], groups: Sequence[Group], who_waits: str) -> str:
    known = [
        (mean, view, group)
        for group in groups
        if group.alone
        for view, mean in zip(views, group.means_ms, strict=True)
        if mean is not None
    ]
    if not known:
        return ""
    worst, view, group = max(known, key=lambda entry: entry[0])
    own = [(mean, other) for mean, v, other in known if v is view]
    least, lucky = min(own, key=lambda entry: entry[0])
    under = f" under {view.name}" if len(views) > 1 else ""
    longest = "" if all(other is group for _, _, other in known) else " longest,"
    said = f"{who_waits.format(group.name)}{longest} {duration(worst)} on average{under}"
    said = said[0].upper() + said[1:]
    if lucky is group:
        return f"{said}."
    return f"{said}; {who_waits.format(lucky.name)} least there, {duration(least)}."
