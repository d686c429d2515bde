"""The books of what gangs hold and what is reserved, and what is asked of guaranteed quota."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from allotment.core.book import Holder
from allotment.core.cells.space import Space
from allotment.core.gang import Gang, ReservedPlace
from allotment.core.ledger import Ledger
from allotment.core.request import Request, Shape
from allotment.model.ids import JobId
from allotment.model.ledger import OPPORTUNISTIC, Beside, Entitlement, Quota, Slot
from allotment.model.quantity import Resources


class Placed:
    """The index of all that hold something, and by machine what is handed over there."""

    def __init__(self, ledger: Ledger) -> None:
        self._books = ledger.books
        """By machine: they are told what leaving gangs hold there, and what is reserved."""
        self.gangs: dict[JobId, Gang] = {}
        self.borrowers: dict[str, dict[JobId, Gang]] = {}
        """Opportunistic gangs by tenant, in the order they came; of tenants that have any."""
        self.leaving: dict[JobId, Gang] = {}
        """Gangs that were told to go."""
        self.parting: dict[JobId, Gang] = {}
        """What shrinking gangs give up: tasks that were told to go, and are not gone yet."""
        self.elastic: dict[JobId, Gang] = {}
        """Gangs that can continue with fewer tasks than they started with."""
        self.resuming: dict[JobId, Gang] = {}
        """Suspended gangs that want their devices back."""
        self.frozen: dict[JobId, Gang] = {}
        """Gangs that are suspended, and keep memory, disk and device memory where they were."""
        self.reserved: dict[JobId, ReservedPlace] = {}
        self.by_devices: dict[int, dict[JobId, Gang]] = {}
        """Gangs by what they hold of devices, in thousandths."""
        self.borrowed_sizes: dict[str, dict[Resources, int]] = {}
        """By tenant, how many borrowing gangs hold so much."""

    def enter(self, gang: Gang) -> None:
        """Count a gang, or the surplus of one."""
        if gang.leaving:
            self._note_leaving(gang, +1)
        if gang.is_surplus:
            self.parting[gang.id] = gang
            return
        self.gangs[gang.id] = gang
        held = gang.held()
        self.by_devices.setdefault(held.gpu_milli, {})[gang.id] = gang
        if gang.entitlement is OPPORTUNISTIC:
            self.borrowers.setdefault(gang.tenant, {})[gang.id] = gang
            sizes = self.borrowed_sizes.setdefault(gang.tenant, {})
            sizes[held] = sizes.get(held, 0) + 1
        if gang.wants_resume:
            self.resuming[gang.id] = gang
        if gang.leaving:
            self.leaving[gang.id] = gang
        if gang.suspended_at is not None:
            self.frozen[gang.id] = gang
        if gang.least:
            self.elastic[gang.id] = gang

    def leave(self, gang: Gang) -> None:
        """Undo `enter`."""
        if gang.leaving:
            self._note_leaving(gang, -1)
        if gang.is_surplus:
            del self.parting[gang.id]
            return
        del self.gangs[gang.id]
        held = gang.held()
        del self.by_devices[held.gpu_milli][gang.id]
        if gang.entitlement is OPPORTUNISTIC:
            others = self.borrowers[gang.tenant]
            del others[gang.id]
            if not others:
                del self.borrowers[gang.tenant]
            sizes = self.borrowed_sizes[gang.tenant]
            sizes[held] -= 1
            if not sizes[held]:
                del sizes[held]
        if gang.suspended_at is not None:
            del self.frozen[gang.id]
        if gang.least:
            del self.elastic[gang.id]
        self.resuming.pop(gang.id, None)
        self.leaving.pop(gang.id, None)

    def mark_leaving(self, gang: Gang) -> None:
        """Note that a gang is told to go."""
        if not gang.leaving:
            gang.leaving = True
            self._note_leaving(gang, +1)
        self.leaving[gang.id] = gang

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
        for slot, need in zip(place.slots, place.needs, strict=True):
            self._books[slot.node].note_reserved(need, +1)

    def release(self, place: ReservedPlace) -> None:
        """Undo `reserve`."""
        del self.reserved[place.job]
        for slot, need in zip(place.slots, place.needs, strict=True):
            self._books[slot.node].note_reserved(need, -1)

    def _note_leaving(self, gang: Gang, sign: int) -> None:
        for slot, held in zip(gang.slots, gang.kept(), strict=True):
            self._books[slot.node].note_leaving(held, sign)


# ── guaranteed quota ────────────────────────────────────────────────────────────────────

FreePlace = tuple[tuple[Slot, ...], Quota]
"""A place of which nothing is in use, and the cells that it counts as."""


class Claim(msgspec.Struct, frozen=True):
    """A place, what it holds in sum, and which of its tenant's cells it counts as."""

    tenant: str
    pin: str
    slots: tuple[Slot, ...]
    needs: tuple[Resources, ...]
    quota: Quota
    total: Mapping[str, int]
    preemptible: bool


class Guarantee(Protocol):
    """The guaranteed quotas of all tenants, in one form."""

    clears_suspended: bool
    """Whether an owner gets back what other tenants' suspended gangs keep in its way."""
    in_one_chain: bool
    """Whether all devices of a gang are of one type, whichever of its types that is."""
    spaces: Sequence[Space]
    """The books of free cells; none where there are no cells."""

    def regrows(self, place: ReservedPlace) -> bool:
        """Whether a gang whose reserved place came free may have a larger one elsewhere."""
        ...

    def entitlement(self, shape: Shape) -> Entitlement | None:
        """Return by which entitlement a gang of this shape may have a place now, if any."""
        ...

    def could_fit(self, shape: Shape) -> bool:
        """Whether a gang fits in its tenant's quota if all of it is free, and healthy."""
        ...

    def ever_starts(self, shape: Shape) -> bool:
        """Whether a gang fits what it may use if all of that is free and healthy."""
        ...

    def fits_machines(self, shape: Shape) -> bool:
        """Whether a gang fits the configured machines, or all cells, when all are idle."""
        ...

    def coming_free(self, shape: Shape) -> int:
        """Count the whole devices that gangs of a shape may have once all is gone that goes."""
        ...

    def has_pinned(self, tenant: str, pin: str) -> bool:
        """Whether a tenant has a pinned cell of that name."""
        ...

    def idle_place(self, requests: tuple[Request, ...]) -> tuple[Slot, ...] | None:
        """Find a free place for a gang that borrows."""
        ...

    def free_place(self, shape: Shape, entitlement: Entitlement) -> FreePlace | None:
        """Find a free place by this entitlement; None also where the gang has another."""
        ...

    def stands(self, place: ReservedPlace) -> bool:
        """Whether a reserved place is still within its tenant's quota, which may shrink."""
        ...

    def renewed(self, place: ReservedPlace) -> ReservedPlace | None:
        """Return a reserved place as it is in a new configuration; None if it cannot be."""
        ...

    def resumed(self, gang: Gang, leases: Resources) -> Entitlement | None:
        """Return by which entitlement a suspended gang may have its devices and CPU back."""
        ...

    def quota_kept(self, gang: Gang) -> Quota:
        """Return cells as which a gang could keep its place as its tenant's own; or none."""
        ...

    def may_promote(self, tenant: str) -> bool:
        """Whether a look at the borrowers of a tenant one by one is worth it."""
        ...

    def promotion(self, gang: Gang) -> tuple[Quota, Beside] | None:
        """Return as which cells a borrower could count as its tenant's own; None if it cannot.

        With them come the leaves that its slots have beside their devices from then on.
        """
        ...

    def objection(self, claim: Claim, entitlement: Entitlement) -> str:
        """Return why a place may not be used by this entitlement; '' when it may."""
        ...

    def borrowed_parts(self, gang: Gang) -> tuple[str, ...]:
        """Return the resources of which a borrower holds more than its tenant's quota has."""
        ...

    def may_hold_in_part(self, need: Resources) -> bool:
        """Whether each task with this need can leave its gang and give back what it holds."""
        ...

    def together(self, level: str, slots: Sequence[Slot]) -> bool:
        """Whether slots lie in one region of a level."""
        ...

    def keeping(self, tenant: str, pin: str) -> AbstractContextManager[None]:
        """Let a tenant have no other cells meanwhile than those it has."""
        ...
