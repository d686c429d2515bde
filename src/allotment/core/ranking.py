"""Queues that rank their jobs in different ways, behind one ordering."""

from collections.abc import Mapping

from allotment.core.gang import Standing
from allotment.core.ports import Ordering
from allotment.core.rank import Rank
from allotment.model.quantity import Instant


class ByQueue:
    """Ask the ordering of a job's queue; ranks of different queues are not to be compared."""

    def __init__(self, rest: Ordering, named: Mapping[tuple[str, str], Ordering]) -> None:
        """`named` are orderings by tenant and queue; all other queues have `rest`."""
        self._rest = rest
        self._named = named

    def rank(self, job: Standing, now: Instant) -> Rank:
        ordering = self._named.get((job.shape.tenant, job.shape.queue), self._rest)
        return ordering.rank(job, now)
