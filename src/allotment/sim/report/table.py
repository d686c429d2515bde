"""The figures: a row for each run, the best of each column marked."""

from collections.abc import Callable, Sequence

import msgspec

from allotment.metrics.summary import Summary
from allotment.sim.idle import nothing_waits
from allotment.sim.report.view import View
from allotment.sim.report.words import number, safe, seconds


class Column(msgspec.Struct, frozen=True):
    """One figure of every run."""

    group: str
    head: str
    get: Callable[[Summary], float]
    show: Callable[[float], str]
    best: Callable[[Sequence[float]], float] | None = min
    """Chooses the best; None where no value is better than another."""
    of_completed: bool = True
    """Says nothing if no job completed."""


def _ratio(value: float) -> str:
    return f"{value:.3f}"


def _share(value: float) -> str:
    return f"{value * 100:.1f} %"


def _times(value: float) -> str:
    return f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


JCT, DELAY, CLUSTER, FAIR = "Completion time", "Queueing delay", "Cluster", "Fairness"

COLUMNS = (
    Column("Jobs", "done", lambda s: s.completed, number, None, of_completed=False),
    Column(JCT, "mean", lambda s: s.avg_jct_s, seconds),
    Column(JCT, "median", lambda s: s.p50_jct_s, seconds),
    Column(JCT, "p90", lambda s: s.p90_jct_s, seconds),
    Column(JCT, "p99", lambda s: s.p99_jct_s, seconds),
    Column(DELAY, "mean", lambda s: s.avg_queue_delay_s, seconds),
    Column(DELAY, "median", lambda s: s.p50_queue_delay_s, seconds),
    Column(DELAY, "p90", lambda s: s.p90_queue_delay_s, seconds),
    Column(DELAY, "p99", lambda s: s.p99_queue_delay_s, seconds),
    Column(CLUSTER, "makespan", lambda s: s.makespan_s, seconds, of_completed=False),
    Column(CLUSTER, "in use", lambda s: s.utilization, _share, max, of_completed=False),
    Column(CLUSTER, "preempted", lambda s: s.preemptions, number, of_completed=False),
    Column(FAIR, "Jain", lambda s: s.fairness.jain, _ratio, max),
    Column(FAIR, "worst ρ", lambda s: s.fairness.worst_rho, _times),
)

NOTES = (
    ("done", "jobs that completed. Completion times and delays are over these jobs alone."),
    ("completion time", "from submission to end."),
    (
        "queueing delay",
        "the part of it in which the job did not run: waiting, preempted, or still starting.",
    ),
    (
        "median, p90, p99",
        "half of the jobs, nine in ten, 99 in a hundred are at or below this.",
    ),
    ("makespan", "from the first submission to the last end of any job."),
    ("in use", "the part of all device-time, until the last end, that jobs held."),
    (
        "preempted",
        "how often a running job was preempted for another, to continue later; all jobs.",
    ),
    (
        "Jain",
        "Jain's index of fairness: 1 when every tenant is slowed down alike, less the more "
        "some are slowed down beyond others.",
    ),
    (
        "worst ρ",
        "of the job worst off: its completion time, divided by what it would have been if "
        "the cluster had been divided evenly among all jobs that asked for it. 1 is fair, "
        "2 is twice as long.",
    ),
)
"""What each figure means, for who reads them the first time."""
MARKED = "✓ the best of its column."
MARKED_TOLD = (
    "✓ the best of its column; (✓) the best without clairvoyance, where a clairvoyant policy, "
    "which knew run times that cannot be known, is ahead."
)


def table(views: Sequence[View]) -> str:
    """Write the table of figures, with notes on what they mean."""
    told = any(view.run.clairvoyant for view in views)
    marks = [_marks(column, views) for column in COLUMNS]
    if nothing_waits([view.summary for view in views]):
        marks = [[""] * len(views) for _ in COLUMNS]
    rows = "".join(_row(view, place, marks) for place, view in enumerate(views))
    legend = ""
    if any(mark for column in marks for mark in column):
        legend = f'<p class="notes">{safe(MARKED_TOLD if told else MARKED)}</p>'
    notes = "".join(f"<div><dt>{safe(a)}</dt><dd>{safe(b)}</dd></div>" for a, b in NOTES)
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="Figures of every policy">'
        f"<table><caption>Figures of every policy</caption>{_head()}<tbody>{rows}</tbody>"
        f'</table></div>{legend}<dl class="notes defs">{notes}</dl>'
    )


def _head() -> str:
    groups: list[tuple[str, int]] = []
    for column in COLUMNS:
        if groups and groups[-1][0] == column.group:
            groups[-1] = (column.group, groups[-1][1] + 1)
        else:
            groups.append((column.group, 1))
    upper = "".join(
        f'<th class="g" scope="colgroup" colspan="{width}">{safe(name)}</th>'
        for name, width in groups
    )
    lower = "".join(
        f'<th scope="col"{_first(n)}>{safe(column.head)}</th>'
        for n, column in enumerate(COLUMNS)
    )
    return (
        f'<thead><tr><th rowspan="2" scope="col">policy</th>{upper}</tr>'
        f"<tr>{lower}</tr></thead>"
    )


def _first(place: int) -> str:
    new = not place or COLUMNS[place - 1].group != COLUMNS[place].group
    return ' class="f"' if new else ""


def _row(view: View, place: int, marks: Sequence[Sequence[str]]) -> str:
    cells: list[str] = []
    for n, column in enumerate(COLUMNS):
        mark = marks[n][place]
        kind = " ".join(
            name for name in ("best" if mark else "", "f" if _first(n) else "") if name
        )
        known = view.summary.completed or not column.of_completed
        shown = column.show(column.get(view.summary)) if known else "–"
        cells.append(
            f"<td{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>{mark}{safe(shown)}</td>"
        )
    return f'<tr><th scope="row">{safe(view.name)}</th>{"".join(cells)}</tr>'


def _marks(column: Column, views: Sequence[View]) -> list[str]:
    """Mark the best of a column, and the best that is possible in practice.

    A run in which no job completed is best at nothing.
    """
    marks = [""] * len(views)
    choose = column.best
    known = [v for v in views if v.summary.completed]
    values = [column.get(view.summary) for view in known]
    if choose is None or len(views) < 2 or not values or len(set(map(column.show, values))) < 2:
        return marks
    best = column.show(choose(values))
    honest = [column.get(view.summary) for view in known if not view.run.clairvoyant]
    best_honest = column.show(choose(honest)) if honest else ""
    for place, view in enumerate(views):
        if view not in known:
            continue
        shown = column.show(column.get(view.summary))
        if shown == best:
            marks[place] = '<i title="best">✓ </i>'
        elif shown == best_honest and not view.run.clairvoyant:
            marks[place] = '<i title="best without clairvoyance">(✓) </i>'
    return marks
