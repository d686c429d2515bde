"""What `allot objectives` shows: whether what tenants were promised was kept."""

import msgspec

from allotment.metrics.objectives import Measured
from allotment.model.quantity import Moment


class ObjectivesReport(msgspec.Struct, frozen=True):
    """How promises were kept in a stretch of the service's own history."""

    since: Moment
    """When the stretch begins: not before `known_since`."""
    until: Moment
    known_since: Moment
    """From when on nothing was forgotten."""
    forgotten: int
    """Jobs that ended before then and are no longer known."""
    rows: tuple[Measured, ...]
    """By tenant; what the newest configuration promises. docs/metrics.md"""
