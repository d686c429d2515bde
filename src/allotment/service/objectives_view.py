"""What `allot objectives` shows: whether service objectives were met."""

import msgspec

from allotment.metrics.objectives import Measured
from allotment.model.quantity import Moment


class ObjectivesReport(msgspec.Struct, frozen=True):
    """How service objectives were met in a period of the service's own history."""

    since: Moment
    """When the stretch begins: not before `known_since`."""
    until: Moment
    known_since: Moment
    """From when on nothing was forgotten."""
    forgotten: int
    """Jobs that ended before then and are no longer known."""
    rows: tuple[Measured, ...]
    """By tenant; the objectives of the newest configuration. docs/metrics.md"""
