"""A question about one waiting job: the gates of the queue pass, asked for it alone.

The pass remembers what it met on its way; a question works that out for the one job, in
trials that undo themselves.
"""

from collections import deque
from collections.abc import Iterator
from functools import cached_property
from itertools import islice

from allotment.core.backfill import DEPTH, discipline_of
from allotment.core.claimants import Claimants
from allotment.core.cluster import Cluster
from allotment.core.discipline import QueueDiscipline
from allotment.core.entitle import entitlement_of, waited_for
from allotment.core.fair_order import in_fair_order
from allotment.core.gang import Standing
from allotment.core.gates import Gates, aside, stage_of
from allotment.core.pending import Pending
from allotment.core.places import Places
from allotment.core.plan import Decision
from allotment.core.request import Shape
from allotment.model.ids import JobId
from allotment.model.ledger import GUARANTEED, Entitlement
from allotment.model.quantity import Instant
from allotment.model.tenancy import QueueOrder


class Question(Gates):
    """The gates, asked about one job at one moment."""

    def __init__(self, cluster: Cluster, job: Standing, now: Instant) -> None:
        super().__init__(cluster, now, None)
        self.job = job
        self.stage = stage_of(cluster, job.shape)
        self._places = Places(cluster, now)

    def gives_places_by(self, entitled: Entitlement | None) -> bool:
        return entitled is not None or self.preempts

    def ahead_of(self, job: Standing) -> QueueDiscipline | None:  # noqa: ARG002 - its own
        noted = deque(self._noted(), maxlen=1)
        return noted[0][1] if noted else None

    def has_no_room(self, job: Standing) -> bool:
        return not self.preempts and super().has_no_room(job)

    def place_for(self, asking: Standing) -> Decision | None:
        return self.place if asking is self.asking else self._find(asking)

    @cached_property
    def place(self) -> Decision | None:
        """Return what would give it a place by its entitlement if no job were before it."""
        return self._find(self.asking)

    @cached_property
    def preempts(self) -> bool:
        """Whether less urgent jobs of its own tenant would be preempted for it."""
        if self.entitled is GUARANTEED or self.place is not None:
            return False
        return next(self._places.preempt_own(self.asking), None) is not None

    @property
    def fits_nowhere(self) -> bool:
        """Whether there would be no place for it either if no job were before it."""
        return self.place is None and not self.preempts

    @cached_property
    def ahead(self) -> JobId | None:
        """Return the first job before it in its queue that it may not pass."""
        return next((job for job, made in self._noted() if not self._passes(made)), None)

    def _find(self, asking: Standing) -> Decision | None:
        return self._places.find(asking, self.entitled)

    def _noted(self) -> Iterator[tuple[JobId, QueueDiscipline]]:
        """Return each blocked job before it, as its queue's discipline has noted it too."""
        # With a place that less urgent jobs of its tenant leave it has what is guaranteed.
        entitlement = GUARANTEED if self.preempts else self.entitled
        assert entitlement is not None, "the gate before this one is open"
        made = None
        for job in self._blocked(entitlement):
            made = made or discipline_of(self.cluster, job, self.now, entitlement)
            made.blocked(job)
            yield job.id, made

    def _blocked(self, entitlement: Entitlement) -> Iterator[Standing]:
        """Return the jobs that its queue's discipline lets it pass or not."""
        match self.cluster.orders.of(self.job.shape):
            case QueueOrder.SKIP:
                return iter(())
            case QueueOrder.CONSERVATIVE:
                before = self._before(every=True)[:DEPTH]
                return (job for job in before if self._counts(job, entitlement))
            case _:
                heads = self._before(every=False)
                return islice((job for job in heads if self._is_blocked(job, entitlement)), 1)

    def _passes(self, made: QueueDiscipline) -> bool:
        """Whether it may start before blocked jobs, in a place that leaves what they need."""
        where = None if self.is_too_large(self.job) else made.may_start(self.asking)
        if where is None or self.place is None or not where.by_type:
            return where is not None  # That there is no room at all another gate says.
        self.where = where
        return not super().has_no_room(self.job)

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
