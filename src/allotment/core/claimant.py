"""One of those who share: a tenant, a queue of it, or a user of that."""

from allotment.core.decay import Past, worth
from allotment.model.quantity import NOTHING, Instant, Resources

_PPB = 1_000_000_000


class Claimant:
    """What one of those who share has, and how much it counts for."""

    __slots__ = ("_whole", "held", "past", "step_ms", "weight_milli")

    def __init__(self, whole: Resources, weight_milli: int, step_ms: int) -> None:
        self._whole = whole
        self.weight_milli = weight_milli
        self.step_ms = step_ms
        self.held = NOTHING
        """What its jobs hold and are promised, on whatever grounds."""
        self.past = Past()

    @property
    def devices_ppb(self) -> int:
        """The part of the cluster's devices that it holds, in billionths."""
        return self.held.gpu_milli * _PPB // (self._whole.gpu_milli or 1)

    @property
    def dominant_ppb(self) -> int:
        """The part that it holds of what it has the largest part of, in billionths."""
        held, whole = self.held, self._whole
        return max(
            held.gpu_milli * _PPB // (whole.gpu_milli or 1),
            held.cpu_milli * _PPB // (whole.cpu_milli or 1),
            held.memory * _PPB // (whole.memory or 1),
            held.disk * _PPB // (whole.disk or 1),
            held.gpu_memory * _PPB // (whole.gpu_memory or 1),
        )

    def used(self, now: Instant) -> int:
        """Return its dominant share, added up over time and forgotten by halves: ppb · ms."""
        return worth(self.past, now, self.dominant_ppb, self.step_ms)

    def settle(self, now: Instant) -> None:
        """Note what it has used so far, before what it holds changes."""
        self.past.settle(now, self.dominant_ppb, self.step_ms)
