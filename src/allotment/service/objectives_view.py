"""What `allot objectives` shows: whether what tenants were promised was kept."""

import msgspec

from allotment.metrics.objectives import Measured


class ObjectivesReport(msgspec.Struct, frozen=True):
    """How promises were kept in a stretch of the service's own history."""

    since: int
    """When the stretch begins: not before `known_since`."""
    until: int
    known_since: int
    """From when on nothing was forgotten."""
    forgotten: int
    """Jobs that ended before then and are no longer known."""
    rows: tuple[Measured, ...]
    """By tenant; what the newest configuration promises. docs/metrics.md"""
