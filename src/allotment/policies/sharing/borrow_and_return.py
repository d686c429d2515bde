"""A tenant's guarantee first; beyond it, what others leave idle, until they reclaim it.

A gang that fits in what is left of its tenant's guarantee is guaranteed, as a whole; any
other is opportunistic if it may be preempted and its tenant may borrow, and waits if not.
Counted is every part: devices and their memory, CPU, memory and disk.

Bad at: dividing what is idle: the first one to ask gets it.
"""

from allotment.model.ledger import Entitlement
from allotment.model.quantity import Resources
from allotment.model.tenancy import Tenant


class BorrowAndReturn:
    """Guaranteed within the tenant's guarantee, opportunistic beyond it."""

    def entitle(
        self, need: Resources, used: Resources, tenant: Tenant, *, preemptible: bool
    ) -> Entitlement | None:
        if covers(tenant.guaranteed, used, need):
            return Entitlement.GUARANTEED
        if tenant.borrow and preemptible:
            return Entitlement.OPPORTUNISTIC
        return None


class StaticQuota:
    """Within the tenant's share or not at all: nothing is lent, nothing is evicted."""

    def entitle(
        self, need: Resources, used: Resources, tenant: Tenant, *, preemptible: bool
    ) -> Entitlement | None:
        return Entitlement.GUARANTEED if covers(tenant.guaranteed, used, need) else None


def covers(guarantee: Resources, used: Resources, need: Resources) -> bool:
    """Whether a guarantee has room for `need` beside what is used of it.

    Where too much is used of disk or device memory that matters only to who wants more.
    """
    return (
        used.gpu_milli + need.gpu_milli <= guarantee.gpu_milli
        and used.cpu_milli + need.cpu_milli <= guarantee.cpu_milli
        and used.memory + need.memory <= guarantee.memory
        and (not need.disk or used.disk + need.disk <= guarantee.disk)
        and (not need.gpu_memory or used.gpu_memory + need.gpu_memory <= guarantee.gpu_memory)
    )
