"""Small clusters with gangs on them, set up without an engine."""

from collections.abc import Mapping
from functools import partial

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, Standing
from allotment.core.guarantee import guarantee_of
from allotment.core.policies import Policies
from allotment.core.rank import Rank
from allotment.core.request import Request, Shape, needs_of
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import DEVICE, Instant, Resources
from allotment.model.tenancy import Queue, QueueOrder, Tenant
from allotment.policies.ordering.fifo import Fifo
from allotment.policies.placing.pack import Pack
from allotment.policies.rescheduling.taking_turns import TakingTurns
from allotment.policies.sharing.borrow_and_return import BorrowAndReturn
from allotment.policies.turns.at_once import AtOnce
from allotment.policies.victims.least_lost import LeastLost
from allotment.sim.cluster import cluster_of

PLENTY = Resources(*([1 << 60] * 5))
POLICIES = Policies(
    Fifo(),
    BorrowAndReturn(),
    Pack(),
    LeastLost(),
    rescheduler=partial(TakingTurns, turns=AtOnce()),
)


class Given:
    """An order in which every job's rank is given beforehand."""

    def __init__(self, ranks: Mapping[int, Rank]) -> None:
        self.ranks = dict(ranks)

    def rank(self, job: Standing, now: Instant) -> Rank:  # noqa: ARG002 - the protocol's
        return self.ranks[job.id]


def a_shape(gpus: int, each: int = 1) -> Shape:
    """Tasks of `each` devices, anywhere; together `gpus`."""
    request = Request(gpus // each, Resources(gpu_milli=each * DEVICE))
    return Shape("t", "default", (request,), devices=gpus)


def a_standing(job: int, gpus: int = 1, priority: int = 100, each: int = 1) -> Standing:
    return Standing(JobId(job), a_shape(gpus, each), priority, Instant(job))


def a_gang(standing: Standing) -> Gang:
    """A gang that holds nothing yet."""
    return Gang(
        standing.id,
        "t",
        standing.priority,
        standing.shape.requests,
        (),
        needs_of(standing.shape.requests),
        Entitlement.GUARANTEED,
        Instant(1),
        standing,
    )


def a_cluster(
    text: str, policies: Policies = POLICIES, order: QueueOrder = QueueOrder.SKIP
) -> Cluster:
    """One tenant that may have everything."""
    tenant = Tenant("t", PLENTY, (Queue("default", order),))
    return Cluster(cluster_of(text), (tenant,), policies, guarantee_of)


def place(cluster: Cluster, standing: Standing) -> Gang:
    """Let a job run wherever there is room; there must be."""
    gang = a_gang(standing)
    slots = cluster.ledger.find(gang.requests, cluster.policies.placing)
    assert slots is not None
    gang.slots = slots
    cluster.add(gang)
    return gang
