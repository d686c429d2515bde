"""Counters of the service's own work, for `/metrics`. Plain numbers; no library here."""

from bisect import bisect_left

BUCKETS_MS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000)


class Timings:
    """A histogram of lengths of time, in milliseconds."""

    def __init__(self, bounds: tuple[float, ...] = BUCKETS_MS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total_ms = 0.0

    def add(self, ms: float) -> None:
        self.counts[bisect_left(self.bounds, ms)] += 1
        self.total_ms += ms

    @property
    def count(self) -> int:
        return sum(self.counts)


class Telemetry:
    """Everything the service counts about itself."""

    def __init__(self) -> None:
        self.cycles = Timings()
        self.commits = Timings()
        self.waits = Timings((10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000))
        """From a job's submission to its first start."""
        self.starts = Timings()
        """From placing a gang to its running."""
        self.decisions: dict[str, int] = {}
        """Events by kind."""
        self.finished: dict[tuple[str, str], int] = {}
        """Finished jobs by tenant and state."""
        self.backend_faults = 0
