"""Elastic gangs: which of their tasks are surplus, and may be given up one by one.

Surplus tasks are those with the highest numbers, never below the least that the job can go on
with. A gang that has not got to run yet, or is scaling down already, is left as it is.
"""

from collections.abc import Iterable

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang
from allotment.core.guarantee import guarantee_of
from allotment.model.ledger import Slot


def may_scale_down(cluster: Cluster, gang: Gang) -> bool:
    """Whether a gang has tasks that it can go on without."""
    if not gang.least or len(gang.slots) <= gang.least:
        return False
    if gang.leaving or gang.suspended or gang.shrinking or gang.standing.starting:
        return False
    return guarantee_of(cluster).may_hold_in_part(gang.needs[-1])


def size_off(cluster: Cluster, gang: Gang, slots: Iterable[Slot]) -> int:
    """Return with how many tasks a gang is off these devices; 0 if it has to go whole."""
    if not may_scale_down(cluster, gang):
        return 0
    wanted = {(slot.node, index) for slot in slots for index in slot.devices}
    for number, slot in enumerate(gang.slots):
        if any((slot.node, index) in wanted for index in slot.devices):
            beyond = number - gang.least
            return gang.least + beyond // gang.step * gang.step if beyond >= 0 else 0
    return len(gang.slots)
