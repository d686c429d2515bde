"""Nodes that are set aside, as the API takes it and shows it."""

import msgspec

from allotment.model.ids import JobId
from allotment.model.windows import NOTICE_MS


class ReservationNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an administrator sets aside. For nobody it is maintenance."""

    name: str
    begin: int
    """In milliseconds since the epoch; what is past begins now."""
    end: int
    nodes: tuple[str, ...] = ()
    devices: int = 0
    """In place of nodes: as many whole nodes as have so many devices."""
    type: str = ""
    """Of which type these devices are; '' for any."""
    users: tuple[str, ...] = ()
    """Who may use the nodes meanwhile; so for tenants and queues."""
    tenants: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    """Each as TENANT/QUEUE."""
    evict: bool = False
    """Whether who still runs there when it begins is evicted, and queued again."""
    notice_ms: int = NOTICE_MS
    """How long before it jobs of which nobody knows how long they run are kept off."""
    reason: str = ""


class ReservationView(msgspec.Struct, frozen=True):
    """Nodes that are set aside, now or some time ahead."""

    name: str
    begin: int
    end: int
    begun: bool
    nodes: tuple[str, ...]
    devices: int
    """How many these nodes have."""
    users: tuple[str, ...]
    tenants: tuple[str, ...]
    queues: tuple[str, ...]
    evict: bool
    notice_ms: int
    reason: str
    jobs: tuple[JobId, ...]
    """Who is on these nodes and may not use them meanwhile; not who ends before by a limit."""
