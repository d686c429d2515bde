"""Why a job waits where nodes are set aside: what it could have, but for a window."""

from collections.abc import Callable

import msgspec

from allotment.core.cells.words import listed
from allotment.core.cluster import Cluster
from allotment.core.gang import Standing
from allotment.core.request import Shape
from allotment.core.windows import bare
from allotment.model.quantity import Instant, show_millis
from allotment.model.reasons import Blocked, Reason

Judge = Callable[[Cluster, Standing, Instant], Blocked]


def judge_in_windows(
    cluster: Cluster, waiting: Standing, now: Instant, judge: Judge
) -> Blocked:
    """Return the reason that would hold without windows; if none would, the window."""
    shape = waiting.shape
    unhindered = msgspec.structs.replace(waiting, shape=bare(shape))
    otherwise = judge(cluster, unhindered, now)
    if otherwise.reason is not Reason.PENDING:
        return otherwise
    with cluster.fenced(shape, now):
        fenced = judge(cluster, waiting, now)
    if fenced.reason is Reason.PENDING:
        return fenced
    return set_aside(cluster, shape, now)


def set_aside(cluster: Cluster, shape: Shape, now: Instant) -> Blocked:
    """Name the window that keeps a job off its nodes: one does."""
    barring, span_ms = cluster.windows.barring(shape, now), shape.span_ms
    first = barring[0]
    names = [cluster.nodes[node].name for node in first.nodes if node in cluster.nodes]
    what = "in maintenance" if first.for_nobody else "reserved for others"
    whose = f"{listed(names)}: {first.name}" + (f" ({first.reason})" if first.reason else "")
    until = Instant(max(window.end for window in barring))
    if now >= first.begin:
        left = show_millis(first.end - now)
        return Blocked(
            Reason.WINDOW,
            f"It would fit but for nodes that are {what}, for another {left}: {whose}.",
            until=until,
            hint="See `allot reservations`.",
        )
    ahead = show_millis(first.begin - now)
    runs = (
        f"it may run for {show_millis(span_ms)}"
        if span_ms >= 0
        else "nobody knows how long it runs"
    )
    return Blocked(
        Reason.WINDOW,
        f"It would fit but for nodes that are {what} in {ahead}, and {runs}: {whose}.",
        until=until,
        hint=f"With a max_run_time below {ahead} it could run before (allot edit).",
    )
