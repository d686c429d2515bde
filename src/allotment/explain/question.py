"""A question about one waiting job: what the queue pass would find at each gate, and no more.

The pass remembers what it met on its way; a question works that out for the one job, in
trials that undo themselves.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import islice

from allotment.core.backfill import DEPTH, discipline_of
from allotment.core.caps import narrowed_to_caps
from allotment.core.claimants import Claimants
from allotment.core.cluster import Cluster
from allotment.core.discipline import QueueDiscipline
from allotment.core.entitle import entitlement_of, waited_for
from allotment.core.fair_order import in_fair_order
from allotment.core.gang import Standing
from allotment.core.gates import Gates, aside, stage_of
from allotment.core.lending import narrowed_to_lent
from allotment.core.pending import Pending
from allotment.core.places import Places
from allotment.core.plan import Decision, Evict, Place
from allotment.core.request import Shape
from allotment.model.ids import JobId
from allotment.model.ledger import GUARANTEED, Entitlement, Slot
from allotment.model.quantity import Instant
from allotment.model.tenancy import QueueOrder

Slots = tuple[Slot, ...] | None


class Question(Gates):
    """The gates, asked about one job at one moment."""

    def __init__(self, cluster: Cluster, job: Standing, now: Instant) -> None:
        super().__init__(cluster, now)
        self.job = job
        self.stage = stage_of(cluster, job.shape)
        self._places = Places(cluster, now)

    @cached_property
    def asking(self) -> Standing:
        """The job as it may ask: for types of devices that are not kept from it."""
        asking = narrowed_to_caps(self.cluster, self.job)
        if not self.cluster.queues.keeps_types:
            return asking
        return narrowed_to_lent(
            self.cluster, asking, entitlement_of(self.cluster, asking.shape)
        )

    @cached_property
    def entitled(self) -> Entitlement | None:
        """By which entitlement it may have a place."""
        return entitlement_of(self.cluster, self.asking.shape)

    @cached_property
    def decision(self) -> Decision | None:
        """What would give it a place by that entitlement."""
        return self._places.find(self.asking, self.entitled)

    @cached_property
    def preempts(self) -> bool:
        """Whether less urgent jobs of its own tenant would make way for it."""
        if self.entitled is GUARANTEED or self.decision is not None:
            return False
        return next(self._places.preempt_own(self.asking), None) is not None

    @cached_property
    def entitlement(self) -> Entitlement | None:
        """Its entitlement if it starts, even at the cost of less urgent jobs of its tenant."""
        return GUARANTEED if self.preempts else self.entitled

    @cached_property
    def ahead(self) -> JobId | None:
        """The first job before it in its queue that it may not pass."""
        return None if self.entitlement is None else self._first_ahead(self.entitlement)

    def is_too_large(self, job: Standing) -> bool:
        return False  # That there is no room is found out at the last gate.

    def has_no_right(self, job: Standing) -> bool:
        return self.entitlement is None

    def is_held_up(self, job: Standing) -> bool:
        return self.ahead is not None

    def has_no_room(self, job: Standing) -> bool:
        return self.decision is None and not self.preempts

    def _first_ahead(self, entitlement: Entitlement) -> JobId | None:
        """Return the first job of its queue that it may not pass by this entitlement."""
        ahead = self._blocked(entitlement)
        if not ahead:
            return None
        made = discipline_of(self.cluster, ahead[0], self.now, entitlement)
        for job in ahead:
            made.blocked(job)
            if not self._passes(made, entitlement):
                return job.id
        return None

    def _blocked(self, entitlement: Entitlement) -> list[Standing]:
        """Return the jobs that its queue's discipline lets it pass or not."""
        match self.cluster.orders.of(self.job.shape):
            case QueueOrder.SKIP:
                return []
            case QueueOrder.CONSERVATIVE:
                before = self._before(every=True)[:DEPTH]
                return [job for job in before if self._counts(job, entitlement)]
            case _:
                heads = self._before(every=False)
                blocked = (job for job in heads if self._is_blocked(job, entitlement))
                return [*islice(blocked, 1)]

    def _passes(self, made: QueueDiscipline, entitlement: Entitlement) -> bool:
        """Whether it may start before blocked jobs, in a place that leaves what they need."""
        where = made.may_start(self.asking)
        if where is None or self.decision is None or not where.by_type:
            return where is not None  # That there is no room at all another gate says.
        slots = _slots_of(self._places.find(where.narrowed(self.asking), entitlement))
        return slots is not None and where.admits(slots)

    def _before(self, *, every: bool) -> list[Standing]:
        """Return the jobs of its queue that the pass comes to before this one, in order.

        Those without a reservation; the first of each shape alone, unless `every` one counts.
        """
        pending, claimants = self.cluster.pending, self.cluster.claimants
        if claimants is not None:
            return list(self._in_fair_order(pending, claimants, every=every))
        most = None if every else 1
        before = [
            job
            for group in pending.ahead(self.job)
            for job in islice((job for job in group if not self.is_reserved(job)), most)
        ]
        return sorted(before, key=lambda job: pending.key(job.id))

    def _in_fair_order(
        self, pending: Pending, claimants: Claimants, *, every: bool
    ) -> Iterator[Standing]:
        """The same where those of the queue may share it by a rule. O(shapes that wait)."""
        mine, seen = self.job.shape, set[Shape]()
        for job in in_fair_order(pending, claimants, seen, {}, self.now):
            shape = job.shape
            if job.id == self.job.id:
                return
            here = (shape.tenant, shape.queue) == (mine.tenant, mine.queue)
            if here and not self.is_reserved(job):
                yield job
            if shape != mine and not (here and (every or self.is_reserved(job))):
                seen.add(shape)

    def _counts(self, head: Standing, entitlement: Entitlement) -> bool:
        """Whether jobs of this entitlement have to wait for a job before them.

        One whose turn in its tenant comes in another stage keeps its place in its queue.
        """
        cluster, shape = self.cluster, head.shape
        if self.is_capped(head) or not cluster.guarantee.ever_starts(shape):
            return False
        if cluster.queues.any:
            if aside(cluster, shape, self.stage):
                return True
            if self.is_out_of_turn(head):
                return False
        with cluster.fenced(shape, self.now):
            return waited_for(cluster, shape, entitlement)

    def _is_blocked(self, head: Standing, entitlement: Entitlement) -> bool:
        """Whether a job that counts cannot start now."""
        cluster, shape = self.cluster, head.shape
        if not self._counts(head, entitlement):
            return False
        if cluster.queues.any and aside(cluster, shape, self.stage):
            return True
        with cluster.fenced(shape, self.now):
            return (
                entitlement_of(cluster, shape) is not entitlement
                or self._places.find(head, entitlement) is None
            )


def _slots_of(decision: Decision | None) -> Slots:
    match decision:
        case Place(placement):
            return placement.slots
        case Evict(reserved):
            return reserved.slots
        case _:
            return None
