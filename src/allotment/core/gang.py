"""The entries of the cluster's books, as the decision sees them."""

import msgspec

from allotment.core.request import Request, Shape, held_by, lease_part, total_of
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import NOTHING, Instant, Resources


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """A job in line: what orders it and what it needs."""

    id: JobId
    shape: Shape
    priority: int
    submitted_at: Instant


class Gang(msgspec.Struct):
    """A placed gang: what it holds, on what grounds, and whether it is leaving."""

    id: JobId
    tenant: str
    priority: int
    requests: tuple[Request, ...]
    slots: tuple[Slot, ...]
    needs: tuple[Resources, ...]
    entitlement: Entitlement
    placed_at: Instant
    preemptible: bool = True
    saved_at: Instant = Instant(0)
    """When its progress was last safe: its newest checkpoint, or its start."""
    leaving: bool = False
    suspended: bool = False
    wants_resume: bool = False

    def kept(self, need: Resources) -> Resources:
        """Give what one task holds now: all of its need, or what suspension keeps."""
        return need - lease_part(need) if self.suspended else need

    def held(self) -> Resources:
        """Sum up what the gang holds now."""
        if not self.suspended:
            return total_of(self.requests)
        total = NOTHING
        for need in self.needs:
            total += held_by_now(need, suspended=self.suspended)
        return total


def held_by_now(need: Resources, *, suspended: bool) -> Resources:
    """Give what one task counts for: device memory on every device, leases unless suspended."""
    whole = held_by(need)
    return whole - lease_part(need) if suspended else whole


class Reservation(msgspec.Struct, frozen=True):
    """A place promised to a job while its present holders leave."""

    job: JobId
    slots: tuple[Slot, ...]
    needs: tuple[Resources, ...]
    entitlement: Entitlement
    victims: tuple[JobId, ...]
