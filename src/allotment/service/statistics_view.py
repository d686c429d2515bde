"""What `allot stats` shows: the numbers of a stretch of the service's own history."""

import msgspec

from allotment.metrics.summary import Summary
from allotment.model.quantity import Moment


class TenantShare(msgspec.Struct, frozen=True, gc=False):
    """The guarantee of one tenant, and what it got. `numbers.tenants` has the rest, by name."""

    tenant: str
    guaranteed_milli: int
    """Devices of its guarantee, by the newest configuration of the stretch."""
    mean_milli: int
    """Devices its jobs ran on, on average over the stretch."""


class Statistics(msgspec.Struct, frozen=True):
    """A stretch of history in numbers, as docs/metrics.md defines them.

    A job that was there when it begins counts from then on, as it stood.
    """

    since: Moment
    """When the stretch begins: not before `known_since`."""
    until: Moment
    known_since: Moment
    """From when on nothing was forgotten."""
    forgotten: int
    """Jobs that ended before then and are no longer known."""
    carried: int
    """Jobs of `numbers` that were there already when the stretch begins."""
    events: int
    """Events of the stretch."""
    capacity_milli: int
    """Devices of the cluster, by its newest configuration."""
    in_use: float
    """The part of all device-time of the stretch that jobs held, start-up included; 0…1."""
    numbers: Summary
    shares: tuple[TenantShare, ...]
    """Every tenant that is configured or had jobs, by name."""
