"""Changes by date back into what is read: from when until when, and what differs then."""

from collections.abc import Mapping

from allotment.model.budget import FOREVER
from allotment.model.tenancy import DatedChange
from allotment.wire.config_budgets import write_date
from allotment.wire.tree import Plain

Written = dict[str, Plain]


def period_to_wire(change: DatedChange) -> Written:
    """Return a period as the configuration writes it."""
    return {
        **({"from": write_date(change.begin)} if change.begin else {}),
        **({"until": write_date(change.end)} if change.end < FOREVER else {}),
    }


def differing(always: Written, then: Written, usual: Mapping[str, Plain]) -> Written:
    """Return the keys whose value changes; `usual` has the keys that are not written."""
    return {
        key: then.get(key, value)
        for key, value in usual.items()
        if then.get(key, value) != always.get(key, value)
    }
