"""The job that loses the least work: opportunistic jobs first, then borrowers, then others.

Among these the lowest priority first, then the least lost work, then the newest.

Lost work is what was done since the last good checkpoint, times the devices that did it.

Bad at: jobs that never checkpoint and started just now: they are evicted again and again.
"""

from allotment.core.gang import Gang
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant


class LeastLost:
    """Order by entitlement, by priority, then by device-time since the last save."""

    def key(self, gang: Gang, now: Instant) -> tuple[int, ...]:
        devices = max(1000, sum(need.gpu_milli for need in gang.needs))
        guaranteed = (
            2 if gang.entitlement is Entitlement.GUARANTEED else int(not gang.opportunistic)
        )
        return (guaranteed, gang.priority, (now - gang.saved_at) * devices)
