"""Taking turns: at its moments a waiting gang takes the place of gangs that rank behind it.

Rule: see `displacing.py` for whose place it takes. Between turns no gang is displaced. At a
turn, once all had theirs, running gangs go where the moving policy says they are better off.

Bad at: gangs that lose seconds to minutes whenever they are sent away, if turns are short.
"""

from collections.abc import Callable, Iterator, Sequence

from allotment.core.books import FreePlace
from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, Standing
from allotment.core.plan import Decision, PreemptionPlan, Proposals
from allotment.core.preemption.search import awaited
from allotment.core.rank import Key
from allotment.core.request import devices_of
from allotment.model.quantity import Instant, earlier
from allotment.policies.rescheduling.displacing import (
    displace,
    displace_from,
    displace_in_cells,
)
from allotment.policies.rescheduling.moves import better_place, moves
from allotment.policies.rescheduling.ports import Moving, Recounting, Turns
from allotment.policies.rescheduling.running import Running


class TakingTurns:
    """The rescheduler of one cluster: `turns` says when.

    With `recounting` the order counts anew at some of them; with `moving` running gangs move.
    """

    def __init__(
        self,
        cluster: Cluster,
        turns: Turns,
        moving: Moving | None = None,
        recounting: Recounting | None = None,
    ) -> None:
        self.cluster = cluster
        self.order = Running(cluster.orders.ordering)
        self._turns = turns
        self._moving = moving
        self._recounting = recounting
        self._since_turn = False
        """Whether there was a cycle between turns since the last one."""

    # ── when ────────────────────────────────────────────────────────────────────────────

    def looks(self, now: Instant) -> bool:
        return self._turns.next(now) == now

    def next_look(self, now: Instant) -> Instant | None:
        cluster, first = self.cluster, self.order.next_change()
        waiting = len(cluster.pending) or cluster.placed.resuming
        if waiting or (self._moving is not None and cluster.gangs):
            turn = self._turns.next(Instant(now + 1))
            if turn != now + 1:  # Turns at any moment are taken when something happens.
                first = earlier(first, turn)
        return first

    def rerank(self, now: Instant) -> bool:
        due = self.order.due(now)
        for job in due:
            self.order.again(self.cluster.gangs[job], now)
        return bool(due)

    # ── what ────────────────────────────────────────────────────────────────────────────

    def around(self, decisions: Proposals, now: Instant) -> Proposals:
        turn = self.looks(now)
        if turn:
            self._begin(now)
        self._since_turn = not turn
        yield from self._joined(now)
        for decision in decisions:
            yield decision
            yield from self._joined_to(decision, now)
        if turn and self._moving is not None:
            yield from self._moves(now)

    def reach(self, now: Instant) -> Callable[[Key], bool]:
        worst = self.order.worst(now)
        return lambda at: worst is not None and at < worst

    def deals(self, gang: Gang) -> bool:  # noqa: ARG002 - all take turns
        return True

    def plan(self, job: Standing, now: Instant) -> PreemptionPlan | None:
        suspended = self.cluster.gangs.get(job.id)
        if suspended is not None:
            return displace_from(self.cluster, self.order, suspended, now)
        at = self.cluster.pending.key(job.id)
        if not self.reach(now)(at) or self._stands_back(job, now):
            return None
        return self._displace(job, now)

    def suspended(self, now: Instant) -> Sequence[tuple[Key, Gang]]:
        cluster, order = self.cluster, self.order
        keys = {job: order.key(job, now) for job in cluster.placed.resuming}
        return [(keys[job], cluster.gangs[job]) for job in sorted(keys, key=keys.__getitem__)]

    def _begin(self, now: Instant) -> None:
        """Begin a turn."""
        cluster = self.cluster
        if self._recounting is not None and self._recounting.recount(all_jobs(cluster), now):
            self._rank_anew(now)
        if self._since_turn or self.order.rising:
            # By now a job may displace gangs that did not rank behind it.
            cluster.memos.blocked.clear()

    def _rank_anew(self, now: Instant) -> None:
        """Ask anew for every rank. O(n log n)."""
        cluster = self.cluster
        for standing in cluster.pending.all():
            cluster.pending.again(standing, now)
        for gang in cluster.gangs.values():
            self.order.again(gang, now)
        cluster.ledger.version += 1

    def _joined(self, now: Instant) -> Iterator[Decision]:  # noqa: ARG002 - for pairs
        """Propose what gangs with a place bring with them."""
        return iter(())

    def _joined_to(self, decision: Decision, now: Instant) -> Iterator[Decision]:  # noqa: ARG002
        """Propose what a decision of the queue pass brings with it."""
        return iter(())

    def _displace(self, waiting: Standing, now: Instant) -> PreemptionPlan | None:
        """Find whose turn is over so that a waiting job gets its own."""
        counted = self.cluster.cells is None
        find = displace if counted else displace_in_cells
        return find(self.cluster, self.order, waiting, now)

    def _moves(self, now: Instant) -> Iterator[Decision]:
        """Propose where running gangs go, best-ranked ones first."""
        if not self.cluster.ledger.whole_free:
            return iter(())
        return moves(self.cluster, self.order.best_first(now), self._better_place, now)

    def _better_place(self, gang: Gang) -> FreePlace | None:
        """Find where a gang is better off, if anywhere."""
        assert self._moving is not None, "nothing moves without a policy for it"
        return better_place(self.cluster, gang, self._moving)

    def _stands_back(self, waiting: Standing, now: Instant) -> bool:
        """Whether a gang that was sent away comes before this job, and may return.

        By now enough may come free for it too; a job that takes that would be sent away at
        once. So the job waits until they are gone, and wait themselves.
        """
        cluster = self.cluster
        if not cluster.reserved:
            return False
        key, shape = cluster.pending.key(waiting.id), waiting.shape
        spare = cluster.guarantee.coming_free(shape)
        return any(
            gang.tenant == shape.tenant
            and devices_of(gang.requests) <= spare
            and self.order.key(gang.id, now) < key
            for job in awaited(cluster)
            if (gang := cluster.gangs.get(job)) is not None and not gang.suspended
        )


def all_jobs(cluster: Cluster) -> list[Standing]:
    """Return all jobs that wait or have a place, by their ids."""
    placed = [gang.standing for gang in cluster.gangs.values()]
    return sorted([*cluster.pending.all(), *placed], key=lambda job: job.id)
