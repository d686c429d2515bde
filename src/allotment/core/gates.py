"""The gates between a waiting job and its place, in the one order in which they are asked.

The queue pass (`queue_pass.py`) stops each job at the first gate that is shut. `why` asks the
same gates of one job (`explain/question.py`), and puts the first that is shut in words. What a
gate compares stands here alone. The two differ in how they know three things: by which
entitlements places are given now, what holds up a job, and where it finds a place. The pass
remembers these of the jobs before; a question works them out for one. A gate that nothing in
the configuration can shut is left out. To ask changes nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import Enum

from allotment.core.caps import capped_out, caps_matter, narrowed_to_caps
from allotment.core.cluster import Cluster
from allotment.core.discipline import Filter, QueueDiscipline
from allotment.core.entitle import entitlement_of
from allotment.core.gang import Standing
from allotment.core.lending import Kept, kept_of_idle, kept_of_share, narrowed_to_lent
from allotment.core.plan import Decision, Evict, Place
from allotment.core.policies import Rescheduler
from allotment.core.quota import Account
from allotment.core.request import Shape
from allotment.core.sharing import entitle_shape
from allotment.model.ids import JobId
from allotment.model.ledger import GUARANTEED, Entitlement
from allotment.model.quantity import Instant


class Stage(Enum):
    """Whose turn it is, of the queues that share a tenant."""

    WITHIN = 1
    """Jobs within their queue's guarantee."""
    REST = 2
    """Jobs below the soft limit of the queue."""
    BEYOND_SOFT = 3
    """Those beyond it, if no other queue has a waiting job below its own."""


WITHIN, REST, BEYOND_SOFT = Stage


class Gate(Enum):
    """What may keep a job from starting."""

    RESERVED = "a place is reserved for it, which others must leave first"
    CAP = "its user or queue holds all it may, its budget is used up, or its queue is stopped"
    TIER = "the rest is for other queues of its tenant"
    RIGHT = "its tenant has no room for it, and may not borrow for it"
    BYPASSED = "a job before it was overtaken as often as it may be"
    ORDER = "a blocked job before it in its queue, which it may not pass"
    ROOM = "others hold what it needs"
    RESERVATION = "of a suspended gang: its nodes are set aside for others"
    NODES = "of a suspended gang: its nodes are drained, lost or broken"


RESERVED, CAP, TIER, RIGHT, BYPASSED, ORDER, ROOM, *_ = Gate
"""By names of their own: to look one up in its enum costs more than to ask most gates."""


class Gates(ABC):
    """The gates of one cluster, asked by a queue pass or by a question."""

    entitled: Entitlement | None
    asking: Standing
    """The job that has the right: its entitlement, and what it may ask for."""
    where: Filter | None
    """Where it may start without delaying those before it in its queue; None for anywhere."""
    decision: Decision
    """What gives the last job that passed all gates its place."""

    def __init__(self, cluster: Cluster, now: Instant, rescheduler: Rescheduler | None) -> None:
        """`rescheduler` is what displaces running gangs now; None if nothing does."""
        self.cluster = cluster
        self.now = now
        self.rescheduler = rescheduler
        self.stage = REST
        """Whose turn it is, where queues have guarantees or soft limits."""
        self.capped = caps_matter(cluster)
        self._bounded = cluster.overtaking is not None

    def first_shut(self, job: Standing) -> Gate | None:
        """Return the first gate that keeps a job from starting now; None if all are open."""
        gate = None
        if job.id in self.cluster.reserved:
            gate = RESERVED
        elif self.capped and self.is_capped(job):
            gate = CAP
        elif self.cluster.queues.any and self.is_out_of_turn(job):
            gate = TIER
        elif self.has_no_right(job):
            gate = RIGHT
        elif self._bounded and self.is_bypassed(job):
            gate = BYPASSED
        elif self.is_held_up(job):
            gate = ORDER
        elif self.has_no_room(job):
            gate = ROOM
        return gate

    def is_reserved(self, job: Standing) -> bool:
        """Whether a job waits for others to leave the place that is reserved for it."""
        return job.id in self.cluster.reserved

    def is_capped(self, job: Standing) -> bool:
        """Whether a cap, a budget or a stopped queue keeps a job."""
        return capped_out(self.cluster, job.shape)

    def is_out_of_turn(self, job: Standing) -> bool:
        """Whether a job's queue leaves what there is to other queues of the tenant."""
        cluster, shape = self.cluster, job.shape
        if not cluster.queues.chain(shape.tenant, shape.queue):
            return self.stage is not REST
        return aside(cluster, shape, self.stage) or barred(cluster, shape, self.stage)

    def has_no_right(self, job: Standing) -> bool:
        """Whether a job has no right to a place now; note its entitlement, and what it asks."""
        cluster = self.cluster
        asking = narrowed_to_caps(cluster, job) if self.capped else job
        entitled = self.entitled = entitlement_of(cluster, asking.shape)
        self.asking = narrowed_to_lent(cluster, asking, entitled) if self.capped else asking
        return not self.gives_places_by(entitled)

    @abstractmethod
    def gives_places_by(self, entitled: Entitlement | None) -> bool:
        """Whether a job gets a place now by what it is entitled to, if there is one."""

    def is_bypassed(self, job: Standing) -> bool:
        """Whether a job before this one was overtaken as often as it may be."""
        return bypassed_before(self.cluster, job) is not None

    def is_held_up(self, job: Standing) -> bool:
        """Whether a job may not pass a blocked one before it; note where one may that does."""
        ahead, self.where = self.ahead_of(job), None
        if ahead is None:
            return False
        if not self.is_too_large(job):
            self.where = ahead.may_start(self.asking)
        return self.where is None

    @abstractmethod
    def ahead_of(self, job: Standing) -> QueueDiscipline | None:
        """Return what the blocked jobs before one in its queue let it do; None if none is."""

    def has_no_room(self, job: Standing) -> bool:  # noqa: ARG002 - what it asks for is noted
        """Whether there is no place for a job, nor one that others can be made to leave."""
        where, asking = self.where, self.asking
        if where is None:
            found = self.place_for(asking)
        else:
            found = self.place_for(where.narrowed(asking))
            if where.by_type and isinstance(found, Place | Evict):
                place = found.placement if isinstance(found, Place) else found.place
                found = found if where.admits(place.slots) else None
        if found is not None:
            self.decision = found
        return found is None

    @abstractmethod
    def place_for(self, asking: Standing) -> Decision | None:
        """Return what gives a place to the job at the gates, which asks for this."""

    def is_too_large(self, job: Standing) -> bool:
        """Whether too few devices are free in all, and no job can be made to leave."""
        cluster = self.cluster
        return (
            job.shape.devices > cluster.ledger.whole_free
            and self.rescheduler is None
            and cluster.is_settled()
        )


def bypassed_before(cluster: Cluster, waiting: Standing) -> JobId | None:
    """Name the first job before this one that was overtaken as often as it may be, if any.

    One that waits for something else than a place holds up none: for a cap or a budget, or for
    a configuration in which it fits. Nor does one with a reserved place.
    """
    if cluster.overtaking is None:
        return None
    full = cluster.overtaking.full((waiting.shape.tenant, waiting.shape.queue))
    if not full:
        return None
    place = cluster.pending.key(waiting.id)
    before = (key[1] for key in full if key < place)
    return next((job for job in before if _waits_for_a_place(cluster, job)), None)


def _waits_for_a_place(cluster: Cluster, job: JobId) -> bool:
    """Whether a place is all that a job waits for."""
    shape = cluster.pending[job].shape
    if job in cluster.reserved or capped_out(cluster, shape):
        return False
    right = entitle_shape(cluster, shape, alone=True)
    return right is not None and cluster.guarantee.fits_machines(shape)


# ── whose turn it is ────────────────────────────────────────────────────────────────────
#
# Where no queue has a guarantee or a soft limit none of this is asked.


def stages(cluster: Cluster) -> Iterator[Stage]:
    """Return the stages that there are."""
    if cluster.queues.guarantees:
        yield WITHIN
    yield REST
    if cluster.queues.softs:
        yield BEYOND_SOFT


def stage_of(cluster: Cluster, shape: Shape) -> Stage:
    """Return the last stage in which it is the turn of a job."""
    beyond = shape.tenant in cluster.queues.softs and beyond_soft(cluster, shape) is not None
    return BEYOND_SOFT if beyond else REST


def aside(cluster: Cluster, shape: Shape, stage: Stage) -> bool:
    """Whether it is not the turn of a job, though it may come in another stage."""
    if stage is WITHIN:
        return not cluster.queues.within(shape)
    return stage_of(cluster, shape) is not stage


def barred(cluster: Cluster, shape: Shape, stage: Stage) -> bool:
    """Whether what is left is for others now; such a job holds up none."""
    queues = cluster.queues
    if shape.tenant not in queues.guarantees and shape.tenant not in queues.softs:
        return False
    if waits_for_guarantee(cluster, shape) or kept_for_others(cluster, shape) is not None:
        return True
    return stage is BEYOND_SOFT and first_below(cluster, shape) is not None


def waits_for_guarantee(cluster: Cluster, shape: Shape) -> bool:
    """Whether a job that is never evicted would be beyond its queue's guarantee."""
    if shape.preemptible or shape.tenant not in cluster.queues.guarantees:
        return False
    return not cluster.queues.within(shape)


def beyond_soft(cluster: Cluster, shape: Shape) -> tuple[Account, str] | None:
    """Return the queue whose soft limit a job would go beyond, and in what part."""
    need = cluster.queues.need_of(shape)
    return cluster.queues.beyond_soft(shape.tenant, shape.queue, need)


def first_below(cluster: Cluster, shape: Shape) -> str | None:
    """Name another queue of the tenant that has a waiting job below its soft limit."""
    found = beyond_soft(cluster, shape)
    around = found[0] if found is not None else None
    names = {
        other.queue
        for other in cluster.pending.shapes()
        if other.tenant == shape.tenant
        and other.queue != shape.queue
        and around not in cluster.queues.chain(other.tenant, other.queue)
        and beyond_soft(cluster, other) is None
        and not capped_out(cluster, other)
        and not waits_for_guarantee(cluster, other)
        and not _all_reserved(cluster, other)
    }
    return min(names, default=None)


def _all_reserved(cluster: Cluster, shape: Shape) -> bool:
    reserved = cluster.reserved
    return bool(reserved) and all(job in reserved for job in cluster.pending.of(shape))


def kept_for_others(cluster: Cluster, shape: Shape) -> tuple[Kept, str] | None:
    """Return what a job would take of what others do not lend; None if it leaves enough.

    With it comes whose jobs alone could let it have more by ending; '' for any tenant's.
    """
    if shape.tenant not in cluster.queues.keeps:
        return None
    right = entitlement_of(cluster, shape)
    if right is GUARANTEED and (kept := kept_of_share(cluster, shape)) is not None:
        return kept, shape.tenant
    kept = kept_of_idle(cluster, shape, right)
    whose = shape.tenant if right is None else ""
    return None if kept is None else (kept, whose)
