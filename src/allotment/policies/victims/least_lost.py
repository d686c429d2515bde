"""Who loses the least work: opportunistic jobs first, then borrowers, then owners.

Among these lowest priority first, then who loses least, then the newest.

Lost work is what was done since the last good checkpoint, times the devices that did it.

Bad at: jobs that never checkpoint and started just now: they yield again and again.
"""

from allotment.core.gang import Gang
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant


class LeastLost:
    """Order by what jobs are owed, by priority, then by device-time since the last save."""

    def key(self, gang: Gang, now: Instant) -> tuple[int, ...]:
        devices = max(1000, sum(need.gpu_milli for need in gang.needs))
        owed = 2 if gang.entitlement is Entitlement.GUARANTEED else int(not gang.opportunistic)
        return (owed, gang.priority, (now - gang.saved_at) * devices)
