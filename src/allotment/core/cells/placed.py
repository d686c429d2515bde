"""Placed gangs and reserved places in the book of cells."""

from allotment.core.books import Holder
from allotment.core.cells.book import Cells
from allotment.core.gang import Gang, ReservedPlace
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement

GUARANTEED = Entitlement.GUARANTEED


class PlacedInCells:
    """Tells the book of cells what gangs take of it. A suspended gang has no cells."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._tenants: dict[JobId, str] = {}
        """Of reserved places that take cells."""

    def enter(self, gang: Gang) -> None:
        """Take a gang's cells, or lend it leaves that nobody takes."""
        if gang.suspended:
            return
        if gang.entitlement is GUARANTEED:
            self._cells.take(gang.tenant, gang.pin, gang.slots, gang.needs, gang.quota, gang.id)
        else:
            loath = not (gang.opportunistic or gang.is_surplus)
            self._cells.lend(gang.id, gang.slots, gang.needs, loath=loath)

    def leave(self, gang: Gang) -> None:
        """Undo `enter`."""
        if gang.suspended:
            return
        if gang.entitlement is GUARANTEED:
            self._cells.give(gang.tenant, gang.pin, gang.slots, gang.needs, gang.quota, gang.id)
        else:
            self._cells.call_in(gang.id, gang.slots, gang.needs)

    def reserve(self, place: ReservedPlace, holder: Holder) -> None:
        """Take the cells of a reserved place, or set its leaves aside."""
        if place.entitlement is not GUARANTEED:
            self._cells.set_aside(place.slots, place.needs)
        elif place.quota:
            tenant = self._tenants[place.job] = holder.shape.tenant
            self._cells.take(
                tenant, place.pin, place.slots, place.needs, place.quota, place.job
            )

    def release(self, place: ReservedPlace) -> None:
        """Undo `reserve`."""
        if place.entitlement is not GUARANTEED:
            self._cells.put_back(place.slots, place.needs)
        elif place.quota:
            tenant = self._tenants.pop(place.job)
            self._cells.give(
                tenant, place.pin, place.slots, place.needs, place.quota, place.job
            )
