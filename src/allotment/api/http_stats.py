"""What the API counts about itself. Plain numbers; `metrics` gives them their names."""

from allotment.service.telemetry import Timings


class HttpStats:
    """Counters of requests. Routes are templates, so their number is bounded."""

    def __init__(self) -> None:
        self.latencies: dict[tuple[str, str], Timings] = {}
        """By method and route: from a request's headers to its answer's."""
        self.answers: dict[tuple[str, str, int], int] = {}
        """By method, route and status."""
        self.refusals: dict[str, int] = {}
        """By code."""

    @property
    def asked(self) -> int:
        """Return how many requests were answered, whatever the answer."""
        return sum(self.answers.values()) + sum(self.refusals.values())

    def refused(self, code: str) -> None:
        self.refusals[code] = self.refusals.get(code, 0) + 1

    def answered(self, method: str, route: str, status: int, ms: float) -> None:
        key = (method, route)
        timings = self.latencies.get(key)
        if timings is None:
            timings = self.latencies[key] = Timings()
        timings.add(ms)
        full = (method, route, status)
        self.answers[full] = self.answers.get(full, 0) + 1
