"""What each tenant holds: out of its guarantee, borrowed, and what is reserved for it."""

from allotment.core.books import Holder
from allotment.core.gang import Gang, ReservedPlace
from allotment.core.request import sum_of
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import NOTHING, Resources


class TenantUse:
    """Sums by tenant."""

    def __init__(self) -> None:
        self.guaranteed: dict[str, Resources] = {}
        """What each tenant holds out of its own guarantee."""
        self.borrowed: dict[str, Resources] = {}
        self.borrowed_sizes: dict[str, dict[Resources, int]] = {}
        """How many borrowing gangs hold so much."""
        self.by_devices: dict[int, dict[JobId, Gang]] = {}
        """Gangs by what they hold of devices, in thousandths."""
        self._reserved: dict[str, Resources] = {}
        """What reserved places will add to each tenant's guaranteed use."""
        self._tenants: dict[JobId, tuple[str, Resources]] = {}
        """The tenants under which reserved places are counted there."""

    def enter(self, gang: Gang) -> None:
        """Add what a gang holds."""
        held, tenant = gang.held(), gang.tenant
        use = self._use_of(gang)
        use[tenant] = use.get(tenant, NOTHING) + held
        if gang.is_surplus:
            return
        self.by_devices.setdefault(held.gpu_milli, {})[gang.id] = gang
        if gang.entitlement is not Entitlement.GUARANTEED:
            sizes = self.borrowed_sizes.setdefault(tenant, {})
            sizes[held] = sizes.get(held, 0) + 1

    def leave(self, gang: Gang) -> None:
        """Undo `enter`."""
        held, tenant = gang.held(), gang.tenant
        use = self._use_of(gang)
        use[tenant] -= held
        if gang.is_surplus:
            return
        del self.by_devices[held.gpu_milli][gang.id]
        if gang.entitlement is not Entitlement.GUARANTEED:
            sizes = self.borrowed_sizes[tenant]
            sizes[held] -= 1
            if not sizes[held]:
                del sizes[held]

    def _use_of(self, gang: Gang) -> dict[str, Resources]:
        owed = gang.entitlement is Entitlement.GUARANTEED
        return self.guaranteed if owed else self.borrowed

    def reserve(self, place: ReservedPlace, holder: Holder) -> None:
        """Add a reserved place that will count as its tenant's own use."""
        if place.entitlement is Entitlement.GUARANTEED:
            tenant, amount = holder.shape.tenant, sum_of(place.needs)
            self._reserved[tenant] = self._reserved.get(tenant, NOTHING) + amount
            self._tenants[place.job] = (tenant, amount)

    def release(self, place: ReservedPlace) -> None:
        """Undo `reserve`."""
        if place.job in self._tenants:
            tenant, amount = self._tenants.pop(place.job)
            self._reserved[tenant] -= amount

    def reserved(self, tenant: str, besides: JobId | None = None) -> Resources:
        """Sum up what reserved places, but one, will add to a tenant's guaranteed use."""
        total = self._reserved.get(tenant, NOTHING)
        if besides is not None and besides in self._tenants:
            other, amount = self._tenants[besides]
            if other == tenant:
                total -= amount
        return total

    def total(self, tenant: str) -> Resources:
        """Sum up what a tenant holds, on whatever grounds."""
        return self.guaranteed.get(tenant, NOTHING) + self.borrowed.get(tenant, NOTHING)
