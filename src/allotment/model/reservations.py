"""Reservations: periods for which nodes are set aside, for none or for some users.

Without users it is maintenance. Before a reservation begins, no job is placed on its nodes that
could still run then.
"""

import msgspec

from allotment.model.ids import NodeId
from allotment.model.quantity import DAY, Instant, Millis, WallTime

NOTICE_MS = Millis(7 * DAY)
"""How long before a reservation jobs that may run for ever are kept off, by default."""


class Reservation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Nodes set aside from `begin` until `end`, for those named, or for no user."""

    name: str
    begin: WallTime
    end: WallTime
    nodes: tuple[NodeId, ...]
    users: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    """Each as TENANT/QUEUE."""
    evict: bool = False
    """Jobs that still run there when it begins, and may not use it, are evicted."""
    notice_ms: Millis = NOTICE_MS
    """Jobs of unknown run time are taken to run for so long."""
    reason: str = ""
    engine: str = ""
    """Whose it is, where it was made in an engine; '' for those that are set here."""
    shut: bool = False
    """Not even those named may use the nodes: they cannot in its engine, or not yet."""

    def moved(self, ms: int) -> "Reservation":
        """Return the same reservation some time later, or on another clock."""
        begin, end = WallTime(self.begin + ms), WallTime(self.end + ms)
        return msgspec.structs.replace(self, begin=begin, end=end) if ms else self

    @property
    def for_nobody(self) -> bool:
        """Whether it is maintenance."""
        return not (self.users or self.tenants or self.queues)

    def admits(self, tenant: str, queue: str, user: str) -> bool:
        """Whether a job of theirs may use the nodes meanwhile."""
        return not self.shut and (
            user in self.users or tenant in self.tenants or f"{tenant}/{queue}" in self.queues
        )

    def bars_from(self, span_ms: int) -> Instant:
        """Return from when on a job that may run for so long (-1: for ever) is kept off."""
        return Instant(self.begin - (span_ms if span_ms >= 0 else self.notice_ms))


class FoundReservation(msgspec.Struct, frozen=True):
    """A reservation as an engine tells of it, its nodes by name; else as `Reservation`."""

    name: str
    begin: WallTime
    end: WallTime
    nodes: tuple[str, ...]
    users: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    shut: bool = True
    notice_ms: Millis = Millis(DAY)
    reason: str = ""
