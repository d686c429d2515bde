"""How soon work of others is taken whose last was refused where it was put. Pure.

Who made it may make it anew at once and for ever, as controllers of Kubernetes do, and each
time is a job in the log. So after some refusals in a row one is tried after a pause, then
the next.
"""

from collections import Counter

from allotment.model.ids import Actor

FREE = 20
"""Refusals in a row that cost no pause."""
FIRST_S, LONGEST_S = 5.0, 300.0
MOST_DOUBLED = 6


class Pace:
    """Counts refusals by owner. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._refused: Counter[Actor] = Counter()
        self._next: dict[Actor, float] = {}

    def refused(self, owner: Actor) -> None:
        """Take note that work of an owner was refused where it was put."""
        self._refused[owner] += 1

    def ran(self, owner: Actor) -> None:
        """Take note that work of an owner ran."""
        self._refused.pop(owner, None)
        self._next.pop(owner, None)

    def may_take(self, owner: Actor, now: float) -> bool:
        """Whether new work of an owner is taken now."""
        return now >= self._next.get(owner, 0.0)

    def took(self, owner: Actor, now: float) -> None:
        """Take note that new work of an owner is tried."""
        beyond = self._refused[owner] - FREE
        if beyond >= 0:
            pause_s = min(FIRST_S * 2 ** min(beyond, MOST_DOUBLED), LONGEST_S)
            self._next[owner] = now + pause_s
