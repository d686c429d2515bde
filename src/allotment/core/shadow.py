"""What will be free when, if everybody ends when expected: the shadow of EASY backfilling.

Who was told to leave is gone at the next moment; who is promised a place ends as if it had
that now. A node that is drained, lost or broken does not count. One of a window counts from
the moment on at which the job may be put there: not while a window that is not for it is
open, nor so late before it that the job could still run when it begins. Enough may be free
at the end of a gang, or of a window.
"""

from collections.abc import Iterator, Set
from heapq import merge
from itertools import groupby

from allotment.core.cluster import Cluster
from allotment.core.gang import Standing
from allotment.core.measures import Holding, Measure, add, holding_of, promised_to
from allotment.core.profile import Amounts, choose
from allotment.model.ids import NodeId
from allotment.model.quantity import Instant
from allotment.model.windows import Window


def earliest(
    cluster: Cluster,
    measure: Measure,
    blocked: Standing,
    now: Instant,
    down: Set[NodeId],
    *,
    later: bool = False,
) -> Instant | None:
    """Say when a job will have enough by a measure, at `now` or only later; None if never.

    `down` are nodes that are not counted on. O((gangs that end by then + windows) × windows).
    """
    wants = measure.wants(blocked.shape)
    for at, free in over_time(cluster, measure, blocked, now, down):
        if not (later and at == now) and choose(wants, free) is not None:
            return Instant(at)
    return None


def free_at(
    cluster: Cluster,
    measure: Measure,
    blocked: Standing,
    now: Instant,
    down: Set[NodeId],
    *,
    at: Instant,
) -> Amounts:
    """Say what will be free, by a measure and for that job, at one of those moments."""
    found = Amounts()
    for moment, free in over_time(cluster, measure, blocked, now, down):
        if moment > at:
            break
        found = dict(free)
    return found


def over_time(
    cluster: Cluster, measure: Measure, blocked: Standing, now: Instant, down: Set[NodeId]
) -> Iterator[tuple[int, Amounts]]:
    """Say what is free for a job by a measure now, and from each later moment on."""
    entered, books = blocked.shape.enters, cluster.ledger.books
    windows = [each for each in cluster.windows.all if each.name not in entered]
    shut = {node for window in windows for node in window.nodes if node in books} | down
    on_shut = {node: measure.free_on(node) for node in shut}
    elsewhere = measure.free(shut)

    def free_for(at: int) -> Amounts:
        if not shut:
            return elsewhere
        free = dict(elsewhere)
        for node in shut - _barred(windows, blocked, at) - down:
            add(free, on_shut[node])
        return free

    yield now, free_for(now)
    openings = [(int(w.end), None) for w in windows if w.end > now]
    moments = merge(_ends(cluster, now, measure.tenant), sorted(openings, key=_when), key=_when)
    for at, happens in groupby(moments, key=_when):
        for _, held in happens:
            for node, amounts in measure.gives(held) if held is not None else ():
                add(on_shut[node] if node in shut else elsewhere, amounts)
        yield at, free_for(at)


End = tuple[int, Holding | None]
"""Who gives back what at a moment; None where a window ends."""


def _when(end: End) -> int:
    return end[0]


def _ends(cluster: Cluster, now: Instant, tenant: str) -> Iterator[End]:
    """Give those who end, in the order of when: who runs, leaves, or is promised a place."""
    ends, estimates = cluster.ends, cluster.policies.estimates
    assert ends is not None, "the ends of gangs are kept where a queue is in EASY order"
    assert estimates is not None, "a queue in EASY order needs estimates"
    gangs, pending = cluster.gangs, cluster.pending
    going = [*cluster.leaving.values(), *cluster.parting.values()]
    early: list[End] = [(now + 1, holding_of(gang)) for gang in going]
    for job, promise in cluster.reservations.items():
        run_ms = estimates.run_ms(pending[job]) if job in pending else None
        if run_ms is not None:
            at, tenant = now + max(1, pending[job].left_of(run_ms)), pending[job].shape.tenant
            early.append((at, promised_to(tenant, promise)))
    running = (
        (at, holding_of(gangs[job]))
        for at, job, _ in ends.soonest(now, tenant)
        if not gangs[job].suspended and job not in cluster.leaving
    )
    return merge(sorted(early, key=_when), running, key=_when) if early else running


def _barred(windows: list[Window], blocked: Standing, at: int) -> set[NodeId]:
    """Name the nodes that windows keep a job off at an instant."""
    span = blocked.shape.span_ms
    return {
        node
        for window in windows
        if window.bars_from(span) < at < window.end
        for node in window.nodes
    }
