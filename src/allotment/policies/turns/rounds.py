"""In rounds of fixed length, counted from the epoch: within one, no gang is preempted.

Source: Narayanan et al., Gavel, OSDI 2020, section 5 (rounds of six minutes).

Bad at: urgent work, which waits for the end of the round.
"""

from allotment.model.quantity import Instant


class Rounds:
    """The beginnings of rounds of `length_ms`."""

    def __init__(self, length_ms: int) -> None:
        if length_ms < 1:
            raise ValueError(f"a round of {length_ms} ms")
        self.length_ms = length_ms

    def next(self, now: Instant) -> Instant:
        return Instant(-(-now // self.length_ms) * self.length_ms)
