"""The one place that reads the machine's clock."""

import time

from allotment.model.quantity import Instant


class WallClock:
    """Milliseconds since the epoch. It may jump; the engine never goes back with it."""

    def now(self) -> Instant:
        return Instant(time.time_ns() // 1_000_000)
