"""On what grounds a job may have what it needs: the sharing policy, asked with true figures."""

from allotment.core.caps import is_over, resumes_beyond
from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, ReservedPlace
from allotment.core.lending import kept_of_share
from allotment.core.owed import owed_place
from allotment.core.request import Shape, lease_part, sum_of, total_of
from allotment.core.urgency import outranks
from allotment.model.ledger import Entitlement
from allotment.model.quantity import NOTHING, Instant, Resources
from allotment.model.tenancy import Preempt


def entitle(
    cluster: Cluster, tenant_name: str, need: Resources, *, preemptible: bool
) -> Entitlement | None:
    """Ask the sharing policy on what grounds a tenant may have `need` more now."""
    tenant = cluster.tenants.get(tenant_name)
    if tenant is None:
        return None
    used = cluster.use.guaranteed.get(tenant_name, NOTHING)
    if cluster.reserved:
        used += cluster.use.reserved(tenant_name)
    return cluster.policies.sharing.entitle(need, used, tenant, preemptible=preemptible)


def due_of(cluster: Cluster, shape: Shape) -> Entitlement | None:
    """Return on what grounds a gang of this shape may have a place now, if any.

    What another queue of its tenant keeps for itself it may have on idle devices only.
    """
    due = _due(cluster, shape)
    if due is not Entitlement.GUARANTEED or not cluster.queues.keeps:
        return due
    if shape.tenant not in cluster.queues.keeps or not may_borrow(cluster, shape):
        return due
    kept = kept_of_share(cluster, shape)
    return due if kept is None else Entitlement.OPPORTUNISTIC


def _due(cluster: Cluster, shape: Shape) -> Entitlement | None:
    if cluster.cells is not None:
        if owed_place(cluster, shape) is not None:
            return Entitlement.GUARANTEED
    elif not shape.opportunistic and not shape.pin:
        need = total_of(shape.requests)
        return entitle(cluster, shape.tenant, need, preemptible=shape.preemptible)
    return Entitlement.OPPORTUNISTIC if may_borrow(cluster, shape) else None


def may_borrow(cluster: Cluster, shape: Shape) -> bool:
    """Whether a gang may use what is idle beyond its tenant's share.

    One that names a pinned cell runs nowhere else.
    """
    if shape.pin:
        return False
    need = total_of(shape.requests)
    return borrows(cluster, shape.tenant, need, preemptible=shape.preemptible)


def borrows(cluster: Cluster, tenant_name: str, need: Resources, *, preemptible: bool) -> bool:
    """Ask the sharing policy whether a tenant could have `need` beyond its guarantee."""
    tenant = cluster.tenants.get(tenant_name)
    if tenant is None:
        return False
    used = tenant.guaranteed + need  # More than all of it.
    due = cluster.policies.sharing.entitle(need, used, tenant, preemptible=preemptible)
    return due is not None


def is_due(cluster: Cluster, place: ReservedPlace) -> bool:
    """Whether a promise is still within its tenant's guarantee, which may have shrunk.

    What its victims of the same tenant still hold is not counted: it takes their place.
    """
    name = cluster.tenant_of(place.job)
    tenant = cluster.tenants.get(name)
    if tenant is None:
        return False
    if place.job not in place.victims and is_over(cluster, place.job):
        return False
    if cluster.cells is not None and place.entitlement is Entitlement.GUARANTEED:
        # It holds its cells already; unless they were cut, or broke.
        return cluster.cells.stands(name, place.pin, place.slots, place.quota)
    used = cluster.use.guaranteed.get(name, NOTHING)
    used += cluster.use.reserved(name, besides=place.job)
    used -= own_victims(cluster, place)
    need = sum_of(place.needs)
    gang = cluster.gangs.get(place.job)
    moves = place.job in place.victims
    if gang is not None and gang.entitlement is Entitlement.OPPORTUNISTIC and not moves:
        need += gang.held()
    guaranteed = place.entitlement is Entitlement.GUARANTEED
    due = cluster.policies.sharing.entitle(need, used, tenant, preemptible=not guaranteed)
    return due is place.entitlement or due is Entitlement.GUARANTEED


def own_victims(cluster: Cluster, place: ReservedPlace) -> Resources:
    """Sum up what victims still hold out of the guarantee of the promise's own tenant."""
    total = NOTHING
    name = cluster.tenant_of(place.job)
    for victim in place.victims:
        gang = cluster.gangs.get(victim)
        if gang and gang.tenant == name and gang.entitlement is Entitlement.GUARANTEED:
            total += gang.held()
    return total


def is_used_up(cluster: Cluster, gang: Gang) -> bool:
    """Whether a budget that counts a suspended gang is used up."""
    shape = gang.standing.shape
    return bool(cluster.used_up.closed) and (
        total_of(gang.requests).gpu_milli > 0
        and cluster.used_up.counts(gang.tenant, shape.queue, gang.user)
    )


def more_urgent(cluster: Cluster, gang: Gang, now: Instant) -> bool:
    """Whether a waiting job would at once take from a gang what it were given.

    The room is for that job: it may be just what the gang had to give up.
    """
    tenant = cluster.tenants.get(gang.tenant)
    return (
        tenant is not None
        and tenant.preempt is not Preempt.NONE
        and any(outranks(cluster.tenants, each, gang, now) for each in cluster.pending.all())
    )


def resume_entitlement(cluster: Cluster, gang: Gang, now: Instant) -> Entitlement | None:
    """Return on what grounds a suspended gang may go on; what it kept counts already.

    A borrower is not given what a more urgent job of its tenant would at once take from it.
    """
    leases = sum_of(tuple(lease_part(need) for need in gang.needs))
    if resumes_beyond(cluster, gang) or is_used_up(cluster, gang):
        return None
    if cluster.cells is not None:
        borrowed = gang.entitlement is Entitlement.OPPORTUNISTIC
        own = not gang.opportunistic and cluster.quota_kept(gang)
        if own and not (borrowed and more_urgent(cluster, gang, now)):
            return Entitlement.GUARANTEED
        may = borrows(cluster, gang.tenant, leases, preemptible=gang.preemptible)
        return Entitlement.OPPORTUNISTIC if may else None
    if gang.entitlement is not Entitlement.OPPORTUNISTIC:
        return entitle(cluster, gang.tenant, leases, preemptible=gang.preemptible)
    whole = leases + gang.held()
    due = entitle(cluster, gang.tenant, whole, preemptible=gang.preemptible)
    if due is Entitlement.GUARANTEED and more_urgent(cluster, gang, now):
        may = borrows(cluster, gang.tenant, leases, preemptible=gang.preemptible)
        return Entitlement.OPPORTUNISTIC if may else None
    return due
