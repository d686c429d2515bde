"""When a blocked job can start where nodes are shut or set aside: the shadow of EASY there.

A node that is drained, lost or broken does not count. One of a window counts from the moment
on at which the job may be put there: not while a window that is not for it is open, nor so
late before it that the job could still run when it begins. Enough may be free at the end of
a running gang, or of a window.
"""

from heapq import merge
from itertools import groupby

from allotment.core.cluster import Cluster
from allotment.core.ends import Ends
from allotment.core.gang import Gang, Standing
from allotment.core.ledger import ANY_TYPE
from allotment.model.ids import JobId, NodeId
from allotment.model.quantity import DEVICE, Instant
from allotment.model.windows import Window

NOBODY = JobId(0)


def enough_beside(
    cluster: Cluster, ends: Ends, blocked: Standing, wanted: int, now: Instant
) -> tuple[Instant, int] | None:
    """Say when `wanted` will be free on nodes that a job may use then, and how much in all.

    As `Ends.enough`, in thousandths. O((gangs that end by then + windows) × windows).
    """
    entered = blocked.shape.enters
    windows = [each for each in cluster.windows.all if each.name not in entered]
    books = cluster.ledger.books
    closed = cluster.shut_nodes()
    shut = {node for window in windows for node in window.nodes if node in books} | closed
    on_shut = {node: books[node].whole[ANY_TYPE] * DEVICE for node in shut}
    elsewhere = cluster.ledger.whole_free * DEVICE - sum(on_shut.values())
    openings = sorted((int(window.end), NOBODY, 0) for window in windows if window.end > now)
    moments = groupby(merge(ends.soonest(now), openings), key=lambda moment: moment[0])
    for at, happens in moments:
        for _, job, milli in happens:
            if job == NOBODY:
                continue
            there = _parts_on(cluster.gangs[job], shut)
            for node, part in there:
                on_shut[node] += part
            elsewhere += milli - sum(part for _, part in there)
        free = elsewhere + _usable(on_shut, windows, blocked, at, closed)
        if free >= wanted:
            return Instant(at), free
    return None


def _parts_on(gang: Gang, nodes: set[NodeId]) -> list[tuple[NodeId, int]]:
    """Say what a gang gives back on which of some nodes, in thousandths."""
    if gang.suspended:
        return []
    return [(slot.node, slot.gpu_milli) for slot in gang.slots if slot.node in nodes]


def _usable(
    on_shut: dict[NodeId, int],
    windows: list[Window],
    blocked: Standing,
    at: int,
    closed: frozenset[NodeId],
) -> int:
    """Sum up what is free, at an instant, on such nodes as are open to a job then."""
    span = blocked.shape.span_ms
    barred = {
        node
        for window in windows
        if window.bars_from(span) < at < window.end
        for node in window.nodes
    }
    barred |= closed
    return sum(milli for node, milli in on_shut.items() if node not in barred)
