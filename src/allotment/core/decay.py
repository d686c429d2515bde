"""Use that is forgotten with time: half of it in every half-life.

It is forgotten in steps, 64 to a half-life, at the same moments for everybody; within a
step it adds up as it is. So what is known at a moment does not depend on how often it was
asked before, and nothing hangs on a float's last bit. (The idea is that of the fair-share
factors of batch systems: Kay and Lauder, CACM 1988; Slurm's multifactor priority.)
"""

from math import isqrt

import msgspec

from allotment.model.quantity import Instant

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
    """What somebody has used up to `at`, in rate · milliseconds, less what is forgotten."""

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
