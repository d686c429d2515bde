"""What a cycle proposes, and what it plans first: nothing of it has happened yet."""

from collections.abc import Iterator

import msgspec

from allotment.core.gang import ReservedPlace
from allotment.model.gains import Gain
from allotment.model.ids import JobId
from allotment.model.ledger import GUARANTEED, Beside, Entitlement, Placement, Quota, Slot
from allotment.model.quantity import Resources


class Place(msgspec.Struct, frozen=True):
    """Start a waiting job here; `reserved` when the place was reserved for it before."""

    placement: Placement
    reserved: bool = False


class Resume(msgspec.Struct, frozen=True):
    """Resume a suspended gang on its devices."""

    job: JobId
    entitlement: Entitlement
    reserved: bool = False
    quota: Quota = ()


class Pack(msgspec.Struct, frozen=True):
    """Let a suspended gang run beside the one that has its devices; it holds none of them."""

    job: JobId
    beside: JobId


class Promote(msgspec.Struct, frozen=True):
    """Count a borrowing gang as its tenant's own use: there is room in the guarantee."""

    job: JobId
    quota: Quota = ()
    beside: Beside = ()
    """The leaves that its slots have beside their devices from then on; as before if none."""


class Demote(msgspec.Struct, frozen=True):
    """Let a gang run on as a borrower: a job before it in its tenant needs the guarantee."""

    job: JobId
    wanted_by: JobId


class Evict(msgspec.Struct, frozen=True):
    """Reserve a place and evict the gangs that borrow it.

    `place.victims` are all gangs whose leaving is awaited; `evict` are those of them that
    have yet to be told. Empty when they are leaving anyway.
    """

    place: ReservedPlace
    evict: tuple[JobId, ...]
    demote: tuple[JobId, ...] = ()
    """The gangs that hold the very cells now: from here on they are borrowers there."""
    revoke: tuple[JobId, ...] = ()
    """Those whose reserved places it takes over: they wait again."""
    suspend: tuple[JobId, ...] = ()
    """The gangs that are suspended instead of evicted."""
    moves: tuple[ReservedPlace, ...] = ()
    """The places that some of the evicted gangs have elsewhere."""
    shrink: tuple[tuple[JobId, int], ...] = ()
    """Elastic gangs that give up surplus tasks, and how many tasks each keeps."""
    gain: Gain | None = None
    """What a gang is expected to gain that leaves for a place of its own."""


class Unreserve(msgspec.Struct, frozen=True):
    """Release a reserved place that can no longer be used: a node of it was closed, say."""

    job: JobId


class PreemptionPlan(msgspec.Struct, frozen=True):
    """A place for a gang, and what others give up for it."""

    slots: tuple[Slot, ...]
    needs: tuple[Resources, ...]
    quota: Quota = ()
    entitlement: Entitlement = GUARANTEED
    evict: tuple[JobId, ...] = ()
    """Gangs that must leave the place; some may be leaving already."""
    demote: tuple[JobId, ...] = ()
    """Those of them that lose their own tenant's share to it at once."""
    revoke: tuple[JobId, ...] = ()
    """Jobs whose reserved places it takes over: they wait again."""
    shrink: tuple[tuple[JobId, int], ...] = ()
    """Elastic gangs that scale down, and how many tasks each keeps."""
    in_turn: bool = False
    """Whether those that go come back at their turn: suspended where that is possible."""


Decision = Place | Resume | Promote | Demote | Evict | Unreserve | Pack

Proposals = Iterator[Decision]
