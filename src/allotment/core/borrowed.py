"""What a job borrows: the parts in which it goes beyond what its tenant is guaranteed."""

from collections.abc import Iterator

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang
from allotment.model.amounts import CPU, FIELDS, GPU
from allotment.model.ledger import Entitlement
from allotment.model.quantity import NOTHING, Resources


def borrowed_by(cluster: Cluster, gang: Gang) -> tuple[str, ...]:
    """Name the parts that a gang has on loan; none of one that is there by right.

    Where its tenant would have room for all of them, it is there on loan as a whole.
    """
    if gang.entitlement is not Entitlement.OPPORTUNISTIC:
        return ()
    held = gang.held()
    whole = tuple(part for part, field in FIELDS.items() if getattr(held, field))
    if gang.opportunistic:
        return whole
    if cluster.cells is not None:
        return (GPU if held.gpu_milli else CPU,)
    return beyond_share(cluster, gang.tenant, held) or whole


def beyond_share(cluster: Cluster, tenant: str, need: Resources) -> tuple[str, ...]:
    """Name the parts of which a tenant has too little left of its own for `need` more."""
    used = cluster.use.guaranteed.get(tenant, NOTHING) + cluster.use.reserved(tenant)
    return tuple(_beyond(used, need, _guaranteed(cluster, tenant)))


def never_covered(cluster: Cluster, tenant: str, need: Resources) -> tuple[str, ...]:
    """Name the parts of a need that even a tenant's whole guarantee does not cover."""
    return tuple(_beyond(NOTHING, need, _guaranteed(cluster, tenant)))


def _guaranteed(cluster: Cluster, tenant: str) -> Resources:
    found = cluster.tenants.get(tenant)
    return found.guaranteed if found is not None else NOTHING


def _beyond(used: Resources, need: Resources, owed: Resources) -> Iterator[str]:
    for part, field in FIELDS.items():
        more: int = getattr(need, field)
        if more and getattr(used, field) + more > getattr(owed, field):
            yield part
