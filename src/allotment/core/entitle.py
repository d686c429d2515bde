"""By which entitlement a job may have what it needs: the sharing policy on true figures."""

from allotment.core.caps import is_over, resumes_beyond
from allotment.core.cluster import Cluster
from allotment.core.disruption import may_preempt
from allotment.core.gang import Gang, ReservedPlace
from allotment.core.lending import kept_of_share
from allotment.core.request import Shape, sum_of
from allotment.core.sharing import borrows, may_borrow
from allotment.model.ledger import GUARANTEED, OPPORTUNISTIC, Entitlement
from allotment.model.quantity import Instant
from allotment.model.tenancy import Preempt


def entitlement_of(cluster: Cluster, shape: Shape) -> Entitlement | None:
    """Return by which entitlement a gang of this shape may have a place now, if any.

    What another queue of its tenant keeps for itself it may have on idle devices only.
    """
    entitled = cluster.guarantee.entitlement(shape)
    if entitled is not GUARANTEED or not cluster.queues.keeps:
        return entitled
    if shape.tenant not in cluster.queues.keeps or not may_borrow(cluster, shape):
        return entitled
    kept = kept_of_share(cluster, shape)
    return entitled if kept is None else OPPORTUNISTIC


def is_due(cluster: Cluster, place: ReservedPlace) -> bool:
    """Whether a reserved place is still within its tenant's rights, which may have shrunk."""
    if cluster.tenant_of(place.job) not in cluster.tenants:
        return False
    if place.job not in place.victims and is_over(cluster, place.job):
        return False
    return cluster.guarantee.stands(place)


def waited_for(cluster: Cluster, shape: Shape, entitlement: Entitlement) -> bool:
    """Whether jobs that get a place by an entitlement wait for one of this shape before them.

    One that fits its tenant's guarantee waits for that, whichever job has it now.
    """
    return entitlement_of(cluster, shape) is entitlement or (
        entitlement is GUARANTEED and cluster.guarantee.could_fit(shape)
    )


def more_urgent(cluster: Cluster, gang: Gang, now: Instant) -> bool:
    """Whether a waiting job would at once take from a gang what it were given.

    The room is for that job: it may be just what the gang had to give up.
    """
    tenant = cluster.tenants.get(gang.tenant)
    return (
        tenant is not None
        and tenant.preempt is not Preempt.NONE
        and any(may_preempt(cluster.tenants, each, gang, now) for each in cluster.pending.all())
    )


def may_go_on(cluster: Cluster, gang: Gang, now: Instant) -> bool:
    """Whether a suspended gang may resume by the entitlement that it has, wherever it is."""
    entitled = resume_entitlement(cluster, gang, now)
    return entitled is GUARANTEED or entitled is gang.entitlement


def resume_entitlement(cluster: Cluster, gang: Gang, now: Instant) -> Entitlement | None:
    """Return by which entitlement a suspended gang may resume; what it kept counts already.

    A borrower is not given what a more urgent job of its tenant would at once take from it.
    """
    if resumes_beyond(cluster, gang):
        return None
    entitled = cluster.guarantee.resumed(gang, sum_of(gang.leases()))
    borrowed = gang.entitlement is OPPORTUNISTIC
    if borrowed and entitled is GUARANTEED and more_urgent(cluster, gang, now):
        may = borrows(cluster, gang.tenant, preemptible=gang.preemptible)
        return OPPORTUNISTIC if may else None
    return entitled
