"""By which entitlement the sharing policy lets a tenant have more."""

from collections.abc import Mapping

from allotment.core.cluster import Cluster
from allotment.core.quota import has_room
from allotment.core.request import Shape, demand_of
from allotment.model.ledger import Entitlement


def entitle(
    cluster: Cluster,
    tenant_name: str,
    need: Mapping[str, int],
    *,
    preemptible: bool,
    alone: bool = False,
) -> Entitlement | None:
    """Return by which entitlement a tenant may have `need` more now, by the sharing policy.

    Or where it has nothing else, if this is `alone`.
    """
    tenant = cluster.tenants.get(tenant_name)
    if tenant is None:
        return None
    account = cluster.queues.tenants[tenant_name]
    fits = has_room(account.guaranteed if alone else account.left, need)
    return cluster.policies.sharing.entitle(tenant, fits=fits, preemptible=preemptible)


def entitle_shape(cluster: Cluster, shape: Shape, *, alone: bool = False) -> Entitlement | None:
    """Return by which entitlement a gang of this shape may have its place."""
    need, may_go = demand_of(shape.requests), shape.preemptible
    return entitle(cluster, shape.tenant, need, preemptible=may_go, alone=alone)


def borrows(cluster: Cluster, tenant_name: str, *, preemptible: bool) -> bool:
    """Whether a tenant may have more than its guaranteed quota, by the sharing policy."""
    tenant = cluster.tenants.get(tenant_name)
    if tenant is None:
        return False
    sharing = cluster.policies.sharing
    return sharing.entitle(tenant, fits=False, preemptible=preemptible) is not None


def may_borrow(cluster: Cluster, shape: Shape) -> bool:
    """Whether a gang may use what is idle beyond its tenant's quota.

    One that names a pinned cell runs nowhere else.
    """
    return not shape.pin and borrows(cluster, shape.tenant, preemptible=shape.preemptible)


def beyond_share(cluster: Cluster, tenant: str, need: Mapping[str, int]) -> tuple[str, ...]:
    """Return the parts of which a tenant's quota has too little left for `need` more."""
    left = cluster.queues.tenants[tenant].left
    return tuple(part for part, amount in need.items() if amount > left[part])
