"""Who is held up in queues that are first come, first served, where kinds are walked.

A blocked kind is met once, not in each of its queues. So whether a job is held up is asked
when it is met: somebody before it in its queue, without a promise, must have been blocked.
A kind holds up others from where in line it was blocked to where it lost its right to a place.
"""

from allotment.core.caps import capped_out
from allotment.core.cluster import Cluster
from allotment.core.entitle import due_of
from allotment.core.gang import Standing
from allotment.core.kinds import STRICT
from allotment.core.lengths import Key
from allotment.core.owed import owed_ever
from allotment.core.request import Shape
from allotment.model.ledger import Entitlement


class Behind:
    """The blocked kinds of one walk."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._blocked: dict[Shape, Key] = {}
        """From where on."""
        self._until: dict[Shape, Key] = {}
        """Up to where, if it is due no longer."""

    def blocked(self, kind: Shape, at: Key) -> None:
        """Note that a kind was found not to fit, at the place in line of the first of it."""
        self._blocked[kind] = at

    def placed(self, job: Standing, at: Key, entitlement: Entitlement) -> None:
        """Note that a job got a place: its tenant's other kinds may be due no longer."""
        for kind in self._blocked:
            if kind.tenant == job.shape.tenant and kind not in self._until:
                # Who is owed a place waits for one, whoever of its tenant's has it now.
                due = due_of(self._cluster, kind)
                waits = due is entitlement or (
                    entitlement is Entitlement.GUARANTEED and owed_ever(self._cluster, kind)
                )
                if not waits or capped_out(self._cluster, kind):
                    self._until[kind] = at

    def holds_up(self, job: Standing, kind: Shape) -> bool:
        """Whether a blocked job is before this one in its strict queue. O(its shapes)."""
        if kind.queue != STRICT or not self._blocked:
            return False
        cluster = self._cluster
        pending, kinds = cluster.pending, cluster.kinds
        assert kinds is not None, "asked only where there are kinds"
        place = pending.key(job.id)
        for shape in pending.shapes_beside(job):
            other = kinds.of(shape)
            begin = self._blocked.get(other)
            if begin is None:
                continue
            first = pending.first_of(shape, cluster.reserved, begin)
            end = min(place, self._until.get(other, place))
            if first is not None and first < end:
                return True
        return False
