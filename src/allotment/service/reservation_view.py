"""Nodes that are set aside, as the API takes it and shows it."""

import msgspec

from allotment.model.ids import JobId
from allotment.model.reservations import NOTICE_MS


class ReservationNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an administrator sets aside: for maintenance if no user is named."""

    name: str
    begin: int
    """In milliseconds since the epoch; what is past begins now."""
    end: int
    nodes: tuple[str, ...] = ()
    devices: int = 0
    """In place of nodes: whole nodes with this number of devices."""
    type: str = ""
    """Of which type these devices are; '' for any."""
    users: tuple[str, ...] = ()
    """Users that may use the nodes; likewise tenants and queues."""
    tenants: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    """Each as TENANT/QUEUE."""
    evict: bool = False
    """Whether jobs that still run there when it begins are evicted, and queued again."""
    notice_ms: int = NOTICE_MS
    """How long before it no job of unknown run time is placed there."""
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
    engine: str
    """Whose it is, where it was made in an engine; '' for those that are set here."""
    jobs: tuple[JobId, ...]
    """Jobs on these nodes that may not use them then, unless a limit ends them before."""
