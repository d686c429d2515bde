"""Placed gangs and reserved places by what matters of them."""

from allotment.core.books import Holder
from allotment.core.gang import Gang, ReservedPlace
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement


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

    def reserve(self, place: ReservedPlace, holder: Holder) -> None:
        """Note a place that is reserved."""
        del holder
        self.reserved[place.job] = place

    def release(self, place: ReservedPlace) -> None:
        """Undo `reserve`."""
        del self.reserved[place.job]
