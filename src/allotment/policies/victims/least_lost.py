"""Who loses the least work: lowest priority first, then the newest save of progress.

Lost work is what was done since the last good checkpoint, times the devices that did it.

Bad at: jobs that never checkpoint and started just now: they yield again and again.
"""

from allotment.core.gang import Gang
from allotment.model.quantity import Instant


class LeastLost:
    """Order by priority, then by device-time since progress was last safe."""

    def key(self, gang: Gang, now: Instant) -> tuple[int, ...]:
        devices = max(1000, sum(need.gpu_milli for need in gang.needs))
        return (gang.priority, (now - gang.saved_at) * devices)
