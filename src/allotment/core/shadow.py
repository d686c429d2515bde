"""What comes for a blocked job: what will be free when, if everybody ends when expected.

Who was told to leave is gone at the next moment, and so is who borrows where the job is owed
its place; who is promised a place ends as if it had that now. A node that is drained, lost or
broken does not count. One of a window counts from the moment on at which the job may be put
there: not while a window that is not for it is open, nor so late before it that the job could
still run when it begins. Enough may be free at the end of a gang, or of a window.
"""

from collections.abc import Iterator, Set
from heapq import merge
from itertools import groupby

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, Standing
from allotment.core.measures import Holding, Measure, add, holding_of, promised_to
from allotment.core.profile import Amounts, choose
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant
from allotment.model.windows import Window

End = tuple[int, Holding | None]
"""Who gives back what at a moment; None where a window ends."""


class Outlook:
    """What comes for one job."""

    def __init__(
        self,
        cluster: Cluster,
        job: Standing,
        now: Instant,
        grounds: Entitlement,
        down: Set[NodeId],
    ) -> None:
        """`grounds` are those it may have a place on; `down` are nodes not counted on."""
        self._cluster, self._job, self._now = cluster, job, now
        self._grounds, self._down = grounds, down

    def earliest(self, measure: Measure, *, later: bool = False) -> Instant | None:
        """Return when there is enough for the job, now or only `later`; None if never.

        O((gangs that end by then + windows) × windows).
        """
        wants = measure.wants(self._job.shape)
        for at, free in self._over_time(measure):
            if not (later and at == self._now) and choose(wants, free) is not None:
                return Instant(at)
        return None

    def free_at(self, measure: Measure, at: Instant) -> Amounts:
        """Return what is free for the job at a moment that was found so."""
        found = Amounts()
        for moment, free in self._over_time(measure):
            if moment > at:
                break
            found = dict(free)
        return found

    def _over_time(self, measure: Measure) -> Iterator[tuple[int, Amounts]]:
        """Return what is free now, and from each later moment on."""
        now, cluster = self._now, self._cluster
        entered, books = self._job.shape.enters, cluster.ledger.books
        windows = [each for each in cluster.windows.all if each.name not in entered]
        shut = {node for w in windows for node in w.nodes if node in books} | self._down
        on_shut = {node: measure.free_on(node) for node in shut}
        elsewhere = measure.free(shut)

        def free_for(at: int) -> Amounts:
            if not shut:
                return elsewhere
            free = dict(elsewhere)
            for node in shut - self._barred(windows, at) - self._down:
                add(free, on_shut[node])
            return free

        yield now, free_for(now)
        openings = [(int(w.end), None) for w in windows if w.end > now]
        moments = merge(self._ends(measure.tenant), sorted(openings, key=_when), key=_when)
        for at, happens in groupby(moments, key=_when):
            for _, held in happens:
                for node, amounts in measure.gives(held) if held is not None else ():
                    add(on_shut[node] if node in shut else elsewhere, amounts)
            yield at, free_for(at)

    def _ends(self, tenant: str) -> Iterator[End]:
        """Return those of one tenant, or of all, who end, in the order of when."""
        cluster, now = self._cluster, self._now
        ends, estimates = cluster.ends, cluster.policies.estimates
        assert ends is not None, "the ends of gangs are kept where a queue is in EASY order"
        assert estimates is not None, "a queue in EASY order needs estimates"
        gangs, pending = cluster.gangs, cluster.pending
        going = self._going(tenant)
        early: list[End] = [(now + 1, holding_of(gang)) for gang in going.values()]
        early += [(now + 1, holding_of(each)) for each in cluster.placed.parting.values()]
        for job, promise in cluster.reserved.items():
            gang = cluster.gangs.get(job)
            standing = gang.standing if gang is not None else pending[job]
            run_ms = estimates.run_ms(standing)
            if run_ms is not None:
                at = now + max(1, standing.left_of(run_ms))
                early.append((at, promised_to(standing.shape.tenant, promise)))
        running = (
            (at, holding_of(gangs[job]))
            for at, job, _ in ends.soonest(now, tenant)
            if job not in going and not gangs[job].suspended
        )
        return merge(sorted(early, key=_when), running, key=_when) if early else running

    def _going(self, tenant: str) -> dict[JobId, Gang]:
        """Return the gangs of one tenant, or of all, who are taken to be gone at once."""
        cluster = self._cluster
        going = {
            job: gang
            for job, gang in cluster.placed.leaving.items()
            if not gang.suspended and tenant in {"", gang.tenant}
        }
        if self._grounds is Entitlement.GUARANTEED and not tenant:
            for gangs in cluster.placed.borrowers.values():
                going |= {job: gang for job, gang in gangs.items() if not gang.suspended}
        return going

    def _barred(self, windows: list[Window], at: int) -> set[NodeId]:
        """Name the nodes that windows keep the job off at an instant."""
        span = self._job.shape.span_ms
        return {
            node
            for window in windows
            if window.bars_from(span) < at < window.end
            for node in window.nodes
        }


def _when(end: End) -> int:
    return end[0]
