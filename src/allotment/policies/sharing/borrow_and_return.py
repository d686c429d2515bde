"""A tenant's guarantee first; beyond it, what others leave idle, until they reclaim it.

A gang that fits in what is left of its tenant's guarantee is guaranteed, as a whole; any
other is opportunistic if it may be preempted and its tenant may borrow, and waits if not.

Bad at: dividing what is idle: the first one to ask gets it.
"""

from allotment.model.ledger import GUARANTEED, OPPORTUNISTIC, Entitlement
from allotment.model.tenancy import Tenant


class BorrowAndReturn:
    """Guaranteed within the tenant's guarantee, opportunistic beyond it."""

    def entitle(self, tenant: Tenant, *, fits: bool, preemptible: bool) -> Entitlement | None:
        if fits:
            return GUARANTEED
        return OPPORTUNISTIC if tenant.borrow and preemptible else None
