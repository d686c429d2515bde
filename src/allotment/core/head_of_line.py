"""Head-of-line blocking: which queues have a blocked job, and what it lets others do.

A job that cannot start holds up those behind it in its queue, as the queue has it. Where the
line is walked by equivalence classes, a blocked class of strict queues is met once, not in
each of its queues. So whether it is ahead of a job is asked when that job is met: a job of the
class, without a reserved place, must be before it in its queue. A class holds up others from
where in line it was blocked to where it lost its right to a place.
"""

from allotment.core.caps import capped_out
from allotment.core.cluster import Cluster
from allotment.core.conservative import Conservative
from allotment.core.discipline import QueueDiscipline, Skip, Strict
from allotment.core.easy import Easy
from allotment.core.entitle import due_of
from allotment.core.equivalence import STRICT
from allotment.core.gang import Standing
from allotment.core.guarantee import guarantee_of
from allotment.core.rank import Key
from allotment.core.request import Shape
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant
from allotment.model.tenancy import QueueOrder


class HeadOfLine:
    """The blocked queues of one walk."""

    def __init__(self, cluster: Cluster, now: Instant, grounds: Entitlement) -> None:
        """`grounds` are those on which jobs get a place in this walk."""
        self._cluster, self._now, self._grounds = cluster, now, grounds
        self._queues: dict[tuple[str, str], QueueDiscipline] = {}
        self._classes: dict[Shape, Key] = {}
        """Blocked classes of strict queues, and from where in line on."""
        self._until: dict[Shape, Key] = {}
        """Up to where, if they are due no longer."""

    def block(self, job: Standing, eclass: Shape) -> bool:
        """Note a job that cannot start; return whether others like it are noted as well."""
        if eclass.queue == STRICT:
            # It may be met again: each queue of it that might make others give way is.
            self._classes.setdefault(eclass, self._cluster.pending.key(job.id))
            return False
        shape = job.shape
        queue = (shape.tenant, shape.queue)
        found = self._queues.get(queue)
        if found is None:
            if self._cluster.orders.of(shape) is QueueOrder.SKIP:
                return False
            found = discipline_of(self._cluster, job, self._now, self._grounds)
            self._queues[queue] = found
        return found.blocked(job)

    def of(self, shape: Shape) -> QueueDiscipline | None:
        """Return what holds up the jobs of a queue that were met; None where nothing does."""
        return self._queues.get((shape.tenant, shape.queue))

    def ahead_of(self, job: Standing, eclass: Shape) -> QueueDiscipline | None:
        """Return what holds up a job that is met now; None if nothing does. O(its shapes)."""
        found = self.of(job.shape)
        if found is None and eclass.queue == STRICT and self._class_before(job):
            found = self._queues[job.shape.tenant, job.shape.queue] = Strict()
        return found

    def started(self, job: Standing, at: Key) -> None:
        """Note that a job that was `at` got a place: others may be due no longer."""
        ahead = self.of(job.shape)
        if ahead is not None:
            ahead.started(job)
        for eclass in self._classes:
            if eclass.tenant == job.shape.tenant and eclass not in self._until:
                # One that fits its tenant's guarantee waits for it, whichever job has it now.
                due = due_of(self._cluster, eclass)
                waits = due is self._grounds or (
                    self._grounds is Entitlement.GUARANTEED
                    and guarantee_of(self._cluster).could_fit(eclass)
                )
                if not waits or capped_out(self._cluster, eclass):
                    self._until[eclass] = at

    def _class_before(self, job: Standing) -> bool:
        """Whether a job of a blocked class is before this one in its queue."""
        cluster = self._cluster
        pending, classes = cluster.pending, cluster.classes
        if not self._classes or classes is None:
            return False
        place = pending.key(job.id)
        for shape in pending.shapes_beside(job):
            other = classes.of(shape)
            begin = self._classes.get(other)
            if begin is None:
                continue
            first = pending.first_of(shape, cluster.reserved, begin)
            end = min(place, self._until.get(other, place))
            if first is not None and first < end:
                return True
        return False


def discipline_of(
    cluster: Cluster, first: Standing, now: Instant, grounds: Entitlement
) -> QueueDiscipline:
    """Return the discipline of a job's queue, of which it is the first that is blocked."""
    match cluster.orders.of(first.shape):
        case QueueOrder.STRICT:
            return Strict()
        case QueueOrder.SKIP:
            return Skip(cluster)
        case QueueOrder.EASY:
            return Easy(cluster, first, now, grounds)
        case QueueOrder.CONSERVATIVE:
            return Conservative(cluster, first.shape, now, grounds)
