"""What every book of the cluster does: it follows what gangs hold and what is reserved.

Each book answers other questions. All are told the same four things, in the same order, by
`Cluster` alone; to take them back, it tells the opposite.
"""

from typing import NamedTuple, Protocol

from allotment.core.gang import Gang, ReservedPlace
from allotment.core.request import Shape, sum_of
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import NOTHING, Resources


class Holder(NamedTuple):
    """The job that a place is reserved for."""

    shape: Shape
    user: str
    is_placed: bool
    """Whether it has another place, which it leaves."""


class Book(Protocol):
    """One view of what is held."""

    def enter(self, gang: Gang) -> None:
        """Count a gang, or the surplus that a shrinking one gives up: it holds its slots."""

    def leave(self, gang: Gang) -> None:
        """Undo `enter`. The gang is as it was then."""

    def reserve(self, place: ReservedPlace, holder: Holder) -> None:
        """Count a place that a job gets once others have left it."""

    def release(self, place: ReservedPlace) -> None:
        """Undo `reserve`."""


class Placed:
    """The index of all that hold something."""

    def __init__(self) -> None:
        self.gangs: dict[JobId, Gang] = {}
        self.borrowers: dict[str, dict[JobId, Gang]] = {}
        """Opportunistic gangs by tenant, in the order they came; of tenants that have any."""
        self.leaving: dict[JobId, Gang] = {}
        """Gangs that were told to go."""
        self.parting: dict[JobId, Gang] = {}
        """What shrinking gangs give up: tasks that were told to go, and are not gone yet."""
        self.elastic: dict[JobId, Gang] = {}
        """Gangs that can go on with fewer tasks than they started with."""
        self.resuming: dict[JobId, Gang] = {}
        """Suspended gangs that want their devices back."""
        self.frozen: dict[JobId, Gang] = {}
        """Gangs that are suspended, and keep memory, disk and device memory where they were."""
        self.reserved: dict[JobId, ReservedPlace] = {}

    def enter(self, gang: Gang) -> None:
        """Count a gang, or the surplus of one."""
        if gang.is_surplus:
            self.parting[gang.id] = gang
            return
        self.gangs[gang.id] = gang
        if gang.entitlement is Entitlement.OPPORTUNISTIC:
            self.borrowers.setdefault(gang.tenant, {})[gang.id] = gang
        if gang.wants_resume:
            self.resuming[gang.id] = gang
        if gang.leaving:
            self.leaving[gang.id] = gang
        if gang.suspended:
            self.frozen[gang.id] = gang
        if gang.least:
            self.elastic[gang.id] = gang

    def leave(self, gang: Gang) -> None:
        """Undo `enter`."""
        if gang.is_surplus:
            del self.parting[gang.id]
            return
        del self.gangs[gang.id]
        if gang.entitlement is Entitlement.OPPORTUNISTIC:
            others = self.borrowers[gang.tenant]
            del others[gang.id]
            if not others:
                del self.borrowers[gang.tenant]
        self.resuming.pop(gang.id, None)
        self.leaving.pop(gang.id, None)
        self.frozen.pop(gang.id, None)
        self.elastic.pop(gang.id, None)

    def awaited(self, place: ReservedPlace) -> list[Gang]:
        """Return the victims that have yet to leave a place. Some may be back, elsewhere."""
        wanted = {(slot.node, index) for slot in place.slots for index in slot.devices}
        return [
            gang
            for job in place.victims
            if (gang := self.gangs.get(job)) is not None
            and (
                gang.leaving
                or any((slot.node, i) in wanted for slot in gang.slots for i in slot.devices)
            )
        ]

    def reserve(self, place: ReservedPlace, holder: Holder) -> None:
        """Note a place that is reserved."""
        del holder
        self.reserved[place.job] = place

    def release(self, place: ReservedPlace) -> None:
        """Undo `reserve`."""
        del self.reserved[place.job]


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
