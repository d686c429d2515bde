"""What users hold and are promised, where their tenant caps what one of them may."""

from collections.abc import Iterable

from allotment.model.ids import JobId
from allotment.model.quantity import NOTHING, Resources
from allotment.model.tenancy import Tenant

Who = tuple[str, str]
"""A tenant, and one of its users."""


class Users:
    """The accounts of users whose tenant has a cap; of no others."""

    def __init__(self, tenants: Iterable[Tenant]) -> None:
        self._caps = {t.name: t.per_user for t in tenants if t.per_user != NOTHING}
        self._use: dict[Who, Resources] = {}
        self._promised: dict[JobId, tuple[Who, Resources]] = {}

    def capped(self, tenant: str, user: str) -> str:
        """Give a user whom its tenant caps; '' where it caps nobody."""
        return user if tenant in self._caps else ""

    def cap_of(self, tenant: str) -> Resources | None:
        """Give what one user of a tenant may hold; None where there is no cap."""
        return self._caps.get(tenant)

    def held(self, tenant: str, user: str) -> Resources:
        """Give what a user of a tenant with a cap holds and is promised."""
        return self._use.get((tenant, user), NOTHING)

    def count(self, who: Who, amount: Resources, sign: int) -> None:
        """Add (+1) or subtract (-1) what a job of a user's holds."""
        if who[0] not in self._caps:
            return
        before = self._use.get(who, NOTHING)
        after = before + amount if sign > 0 else before - amount
        if after == NOTHING:
            self._use.pop(who, None)
        else:
            self._use[who] = after

    def promise(self, job: JobId, who: Who, amount: Resources) -> None:
        """Count what a job is promised."""
        self._promised[job] = (who, amount)
        self.count(who, amount, +1)

    def take_back(self, job: JobId) -> None:
        """Undo `promise`; nothing may have been counted."""
        known = self._promised.pop(job, None)
        if known is not None:
            self.count(*known, -1)
