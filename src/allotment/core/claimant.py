"""What shares by a rule: a tenant, a queue of it, or a user of that; and its use over time.

Half of the use is forgotten in every half-life: in steps, 64 to a half-life, at the same
moments for all; within a step it adds up as it is. So what is known at a moment does not
depend on how often it was asked before, and nothing hangs on a float's last bit. (The idea is
that of the fair-share factors of batch systems: Kay and Lauder, CACM 1988; Slurm's
multifactor priority.)
"""

from math import isqrt

import msgspec

from allotment.model.quantity import NOTHING, Instant, Resources

STEPS = 64
"""Steps to a half-life. A power of two."""
_ONE = 1 << 40


def _factor() -> int:
    """Return what is left after one step, of `_ONE`."""
    left = _ONE // 2
    for _ in range(STEPS.bit_length() - 1):
        left = isqrt(left * _ONE)
    return left


_LEFT = _factor()


class Past(msgspec.Struct, gc=False):
    """What a claimant has used up to `at`, in rate · milliseconds, less what is forgotten."""

    value: int = 0
    at: Instant = Instant(0)

    def settle(self, now: Instant, rate: int, step_ms: int) -> None:
        """Add what was used at this rate since; forget what is due."""
        self.value, self.at = worth(self, now, rate, step_ms), now


def worth(past: Past, now: Instant, rate: int, step_ms: int) -> int:
    """Return what it comes to by now. O(steps since), less once it moves no more."""
    value, at = past.value, past.at
    while (end := at - at % step_ms + step_ms) <= now:
        whole = end - at == step_ms
        before = value
        value = (value + rate * (end - at)) * _LEFT // _ONE
        at = Instant(end)
        if whole and value == before:
            at = Instant(now - now % step_ms)
    return value + rate * (now - at)


PPB = 1_000_000_000
ONE = PPB * PPB
"""What a share is a part of: so fine that equal ones are equal in billionths when rescaled."""

Shares = tuple[int, ...]
"""Which part of the cluster's devices, CPU, memory, disk and device memory; each of `ONE`."""


class Claimant:
    """What a tenant, queue or user that shares has, and how much it counts for."""

    __slots__ = ("_whole", "held", "level", "past", "shares", "step_ms", "weight_milli")

    def __init__(self, whole: Resources, weight_milli: int, step_ms: int) -> None:
        self._whole = whole
        self.weight_milli = weight_milli
        self.step_ms = step_ms
        self.held = NOTHING
        """What its jobs hold and have reserved, by whatever entitlement."""
        self.shares: Shares = (0, 0, 0, 0, 0)
        """The same as parts of the cluster."""
        self.level = 0
        """Its dominant share for its weight, of `ONE`."""
        self.past = Past()

    @property
    def devices_ppb(self) -> int:
        """Return the part of the cluster's devices that it holds, in billionths."""
        return self.shares[0] // PPB

    @property
    def dominant_ppb(self) -> int:
        """Return the part that it holds of what it has the largest part of, in billionths."""
        return max(self.shares) // PPB

    def hold(self, held: Resources) -> None:
        """Take note of what it holds now."""
        whole = self._whole
        self.held = held
        self.shares = (
            held.gpu_milli * ONE // (whole.gpu_milli or 1),
            held.cpu_milli * ONE // (whole.cpu_milli or 1),
            held.memory * ONE // (whole.memory or 1),
            held.disk * ONE // (whole.disk or 1),
            held.gpu_memory * ONE // (whole.gpu_memory or 1),
        )
        self.level = max(self.shares) * 1000 // self.weight_milli

    def counting(self, shares: Shares) -> "Claimant":
        """Return the same claimant as if these were its shares."""
        found = Claimant(self._whole, self.weight_milli, self.step_ms)
        found.held, found.shares, found.past = self.held, shares, self.past
        found.level = max(shares) * 1000 // self.weight_milli
        return found

    def used(self, now: Instant) -> int:
        """Return its dominant share, added up over time and forgotten by halves: ppb · ms."""
        return worth(self.past, now, self.dominant_ppb, self.step_ms)

    def settle(self, now: Instant) -> None:
        """Note what it has used so far, before what it holds changes."""
        self.past.settle(now, self.dominant_ppb, self.step_ms)
