"""The gates between a waiting job and its place, in the one order in which they are asked.

The queue pass (`queue_pass.py`) stops each job at the first gate that is shut. `why` asks the
same gates of one job (`question.py`) and puts the first that is shut in words (`explain.py`). A
gate that nothing in the configuration can shut is left out. To ask changes nothing.
"""

from abc import ABC, abstractmethod
from enum import Enum

from allotment.core.bounds import Bounds
from allotment.core.caps import capped_out, caps_matter
from allotment.core.cluster import Cluster
from allotment.core.gang import Standing
from allotment.core.queue_stages import Stage, aside, barred
from allotment.model.quantity import Instant


class Gate(Enum):
    """What may keep a job from starting."""

    RESERVED = "a place is reserved for it, which others must leave first"
    CAP = "its user or queue holds all it may, its budget is used up, or its queue is stopped"
    SIZE = "it asks for more devices than are free in all, and no job can be made to leave"
    TIER = "what is left is for other queues of its tenant"
    RIGHT = "its tenant has no room for it, and may not borrow for it"
    BYPASSED = "a job before it was overtaken as often as it may be"
    ORDER = "a blocked job before it in its queue, which it may not pass"
    ROOM = "others hold what it needs"


class Gates(ABC):
    """The gates of one cluster, asked by a queue pass or by a question."""

    def __init__(self, cluster: Cluster, now: Instant) -> None:
        self.cluster = cluster
        self.now = now
        self.stage = Stage.REST
        """Whose turn it is, where queues have guarantees or soft limits."""
        self.capped = caps_matter(cluster)
        self._sized = cluster.orders.all_skip and not cluster.windows.all
        self._bounds = Bounds(cluster) if cluster.overtaking is not None else None

    def first_shut(self, job: Standing) -> Gate | None:
        """Return the first gate that keeps a job from starting now; None if all are open."""
        gate = None
        if job.id in self.cluster.reserved:
            gate = Gate.RESERVED
        elif self.capped and self.is_capped(job):
            gate = Gate.CAP
        elif self._sized and self.is_too_large(job):
            gate = Gate.SIZE
        elif self.cluster.queues.any and self.is_out_of_turn(job):
            gate = Gate.TIER
        elif self.has_no_right(job):
            gate = Gate.RIGHT
        elif self._bounds is not None and self.is_bypassed(job):
            gate = Gate.BYPASSED
        elif self.is_held_up(job):
            gate = Gate.ORDER
        elif self.has_no_room(job):
            gate = Gate.ROOM
        return gate

    def is_reserved(self, job: Standing) -> bool:
        """Whether a job waits for others to leave the place that is reserved for it."""
        return job.id in self.cluster.reserved

    def is_capped(self, job: Standing) -> bool:
        """Whether a cap, a budget or a stopped queue keeps a job."""
        return capped_out(self.cluster, job.shape)

    def is_too_large(self, job: Standing) -> bool:
        """Whether it is plain that there is no room, where no job holds up another."""
        raise NotImplementedError

    def is_out_of_turn(self, job: Standing) -> bool:
        """Whether a job's queue leaves what there is to other queues of the tenant."""
        cluster, shape = self.cluster, job.shape
        if not cluster.queues.chain(shape.tenant, shape.queue):
            return self.stage is not Stage.REST
        return aside(cluster, shape, self.stage) or barred(cluster, shape, self.stage)

    @abstractmethod
    def has_no_right(self, job: Standing) -> bool:
        """Whether a job has no grounds for a place now."""

    def is_bypassed(self, job: Standing) -> bool:
        """Whether a job before this one was overtaken as often as it may be."""
        return self._bounds is not None and self._bounds.holds_up(job)

    @abstractmethod
    def is_held_up(self, job: Standing) -> bool:
        """Whether a job may not pass a blocked one before it in its queue."""

    @abstractmethod
    def has_no_room(self, job: Standing) -> bool:
        """Whether there is no place for a job, nor one that others can be made to leave."""
