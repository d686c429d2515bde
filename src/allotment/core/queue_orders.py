"""In what order the jobs of each queue come, and whether they hold up each other."""

from collections.abc import Mapping, Sequence

from allotment.core.equivalence import PASSING
from allotment.core.gang import Standing
from allotment.core.overtaking import overtaking_of
from allotment.core.ports import Ordering, Policies
from allotment.core.rank import Rank
from allotment.core.request import Shape
from allotment.model.quantity import Instant
from allotment.model.tenancy import QueueOrder, RankBy, Tenant

EASY, CONSERVATIVE, SKIP = QueueOrder.EASY, QueueOrder.CONSERVATIVE, QueueOrder.SKIP


class QueueOrders:
    """The orders of all queues of a configuration."""

    def __init__(self, tenants: Sequence[Tenant], policies: Policies) -> None:
        queues = [(tenant.name, queue) for tenant in tenants for queue in tenant.queues]
        self.by_queue = {(tenant, queue.name): queue.order for tenant, queue in queues}
        orders = set(self.by_queue.values())
        self.overtaking = overtaking_of(tenants)
        """How often jobs were overtaken, in queues where that is bounded; None without any."""
        self.all_skip = self.overtaking is None and orders <= {SKIP}
        """Whether no job holds up another in any queue."""
        self.any_skip = SKIP in orders
        """Whether there is a queue in which no job holds up another."""
        self.plan_ahead = bool({EASY, CONSERVATIVE} & orders)
        """Whether any queue goes by when placed gangs will end."""
        named = {
            (tenant, queue.name): policies.ranking[queue.rank]
            for tenant, queue in queues
            if queue.rank is not RankBy.SUBMITTED
        }
        self.ranks_apart = bool(named)
        """Whether any queue ranks its jobs otherwise than the cluster does."""
        self.ordering: Ordering = (
            ByQueue(policies.ordering, named) if named else policies.ordering
        )
        self.by_run_times = self.plan_ahead or any(
            queue.rank is RankBy.SHORTEST for _, queue in queues
        )
        """Whether any queue goes by how long jobs run."""

    def of(self, shape: Shape) -> QueueOrder:
        """Return the order of a shape's queue, or of a class; of one that is gone, strict."""
        if shape.queue == PASSING:
            return SKIP
        return self.by_queue.get((shape.tenant, shape.queue), QueueOrder.STRICT)


class ByQueue:
    """Ask the ordering of a job's queue; ranks of different queues are not to be compared."""

    def __init__(self, rest: Ordering, named: Mapping[tuple[str, str], Ordering]) -> None:
        """`named` are orderings by tenant and queue; all other queues have `rest`."""
        self._rest = rest
        self._named = named

    def rank(self, job: Standing, now: Instant) -> Rank:
        ordering = self._named.get((job.shape.tenant, job.shape.queue), self._rest)
        return ordering.rank(job, now)
