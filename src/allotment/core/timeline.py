"""The availability timeline of one resource dimension: a step function over time.

Running gangs, reserved places, reservations and planned starts of jobs take parts of it.
What ends at an instant is gone at that instant. Where it is free is left to the placement.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import accumulate

from allotment.model.amounts import Vector
from allotment.model.quantity import Instant

FOREVER = 1 << 62
"""Longer than anything runs."""

Want = tuple[int, tuple[str, ...]]
"""So much, in thousandths or bytes, of one of these kinds; of any where none is named."""


class Timeline:
    """What is free from each of some instants on, by kind.

    One instant may have several steps: the last of them holds, and none is below both the one
    before them and the last.
    """

    def __init__(
        self,
        now: Instant,
        free: Mapping[str, int],
        at: Sequence[int] = (),
        gains: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """`gains` are, by kind, how much more is free from each instant of `at` on.

        `at` is in order, and after `now`.
        """
        gains = gains or {}
        none = [0] * len(at)
        self._at = [int(now), *at]
        self._free = {
            kind: list(accumulate(gains.get(kind, none), initial=free.get(kind, 0)))
            for kind in dict.fromkeys([*free, *gains])
        }

    def take(self, start: int, end: int, amounts: Mapping[str, int]) -> None:
        """Let so much be in use from `start` until `end`. O(instants)."""
        first, last = self._cut(start), self._cut(end) if end < FOREVER else len(self._at)
        for kind, amount in amounts.items():
            steps = self._free.get(kind)
            if steps is not None and amount:
                for step in range(first, last):
                    steps[step] -= amount

    def earliest(
        self, wants: Sequence[Want], run_ms: int, after: int
    ) -> tuple[Instant, Vector] | None:
        """Return from when on so much is free for so long, and of which types; None if never.

        O(instants) for each type that would do: what is too little at one instant rules out
        every start whose run meets it.
        """
        if len(self._free) == 1:
            return self._earliest_of_one_type(wants, run_ms, after)
        if len(wants) == 1 and wants[0][1]:
            return self._earliest_of_either(wants[0], run_ms, after)
        if len({types for _, types in wants if len(types) == 1}) == len(wants):
            return self._earliest_of_each(wants, run_ms, after)
        return self.earliest_of_any(wants, run_ms, after)

    def _earliest_of_one_type(
        self, wants: Sequence[Want], run_ms: int, after: int
    ) -> tuple[Instant, Vector] | None:
        (kind,) = self._free
        milli = 0
        for wanted, types in wants:
            if types and kind not in types:
                return None
            milli += wanted
        found = self._stretch(kind, milli, run_ms, after)
        return None if found is None else (Instant(found), {kind: milli} if milli else {})

    def _earliest_of_either(
        self, want: Want, run_ms: int, after: int
    ) -> tuple[Instant, Vector] | None:
        """Look for a stretch of each type by itself: the earliest, of equals the first."""
        milli, types = want
        best: tuple[int, str] | None = None
        for kind in types:
            found = self._stretch(kind, milli, run_ms, after) if kind in self._free else None
            if found is not None and (best is None or found < best[0]):
                best = found, kind
        return None if best is None else (Instant(best[0]), {best[1]: milli})

    def _earliest_of_each(
        self, wants: Sequence[Want], run_ms: int, after: int
    ) -> tuple[Instant, Vector] | None:
        """Look for a stretch of every type that is named, until they agree on when."""
        at, before = after, -1
        while at != before:
            before = at
            for milli, (kind,) in wants:
                found = self._stretch(kind, milli, run_ms, at) if kind in self._free else None
                if found is None:
                    return None
                at = found
        return Instant(at), {kind: milli for milli, (kind,) in wants}

    def _stretch(self, kind: str, milli: int, run_ms: int, after: int) -> int | None:
        """Return from when on so much of one type is free for so long. O(instants)."""
        at, steps = self._at, self._free[kind]
        if milli <= 0:
            return after
        step, last = max(0, bisect_right(at, after) - 1), len(at)
        start, until = max(after, at[step]), -1
        while True:
            if steps[step] < milli:
                step += 1
                while step < last and steps[step] < milli:
                    step += 1
                if step == last:
                    return None
                start, until = at[step], -1
            if until < 0:
                until = min(start + run_ms, FOREVER)
            step += 1
            if step == last or at[step] >= until:
                return start

    def fits(self, wants: Sequence[Want], run_ms: int, start: int) -> Vector | None:
        """Return types of which so much is free for so long from an instant on; None if not.

        O(instants until then, or until there is too little).
        """
        at, last = self._at, len(self._at)
        step = max(0, bisect_right(at, start) - 1)
        end = min(max(start, at[step]) + run_ms, FOREVER)
        least = {kind: steps[step] for kind, steps in self._free.items()}
        found = choose(wants, least)
        while found is not None and step + 1 < last and at[step + 1] < end:
            step += 1
            lower = False
            for kind, steps in self._free.items():
                if steps[step] < least[kind]:
                    least[kind], lower = steps[step], True
            if lower:
                found = choose(wants, least)
        return found

    def earliest_of_any(
        self, wants: Sequence[Want], run_ms: int, after: int
    ) -> tuple[Instant, Vector] | None:
        """Look at every start, with the least that is free of each kind while it runs."""
        at, last = self._at, len(self._at)
        least = {kind: _Least(steps) for kind, steps in self._free.items()}
        behind, before = 0, Vector()
        for first in range(max(0, bisect_right(at, after) - 1), last):
            if first + 1 < last and at[first + 1] == at[first]:
                continue
            start = max(after, at[first])
            end = min(start + run_ms, FOREVER)
            behind = max(behind, first + 1)
            while behind < last and at[behind] < end:
                behind += 1
            lowest = {kind: each.between(first, behind) for kind, each in least.items()}
            if lowest != before:
                found, before = choose(wants, lowest), lowest
                if found is not None:
                    return Instant(start), found
        return None

    def at(self, instant: int) -> Vector:
        """Return what is free of each kind at an instant."""
        step = max(0, bisect_right(self._at, instant) - 1)
        return {kind: steps[step] for kind, steps in self._free.items()}

    def least(self, run_ms: int, start: int) -> Vector:
        """Return how much of each type is free all the time for so long from an instant on."""
        first = max(0, bisect_right(self._at, start) - 1)
        last = bisect_left(self._at, min(start + run_ms, FOREVER))
        span = slice(first, max(first + 1, last))
        return {kind: min(steps[span]) for kind, steps in self._free.items()}

    def next_step(self, after: int) -> int | None:
        """Return when something changes next; None if nothing does."""
        step = bisect_right(self._at, after)
        return self._at[step] if step < len(self._at) else None

    def longest(self, wants: Sequence[Want], start: int, most: int = FOREVER) -> int:
        """Return for how long so much is free from an instant on, `most` at the most; or 0."""
        at = self._at
        first = max(0, bisect_right(at, start) - 1)
        least = {kind: steps[first] for kind, steps in self._free.items()}
        if choose(wants, least) is None:
            return 0
        for step in range(first + 1, len(at)):
            if at[step] - start >= most:
                return most
            lower = False
            for kind, steps in self._free.items():
                if steps[step] < least[kind]:
                    least[kind], lower = steps[step], True
            if lower and choose(wants, least) is None:
                return at[step] - start
        return most

    def _cut(self, instant: int) -> int:
        """Let a step begin at an instant, not before the first; return its last place."""
        at = max(instant, self._at[0])
        place = bisect_right(self._at, at) - 1
        if self._at[place] != at:
            place += 1
            self._at.insert(place, at)
            for steps in self._free.values():
                steps.insert(place, steps[place - 1])
        return place


class _Least:
    """The least of some steps, for stretches that move on: both ends only grow."""

    def __init__(self, steps: Sequence[int]) -> None:
        self._steps = steps
        self._rising: deque[int] = deque()
        """Places of steps with no lower one behind them."""
        self._read = 0

    def between(self, first: int, behind: int) -> int:
        """Return the least from one place up to, but without, another. O(1) in the long run."""
        steps, rising = self._steps, self._rising
        for place in range(max(self._read, first), behind):
            while rising and steps[rising[-1]] >= steps[place]:
                rising.pop()
            rising.append(place)
        self._read = max(self._read, behind)
        while rising[0] < first:
            rising.popleft()
        return steps[rising[0]]


Wanted = Sequence[tuple[tuple[Want, ...], Timeline]]
"""What a job wants in each dimension, and what is free there."""


def together(wanted: Wanted, run_ms: int, after: int) -> tuple[Instant, list[Vector]] | None:
    """Return from when on all is free together for so long, and of which kinds; or None."""
    at, agreed, taken = after, 0, [Vector() for _ in wanted]
    while agreed < len(wanted):
        for place, (wants, free) in enumerate(wanted):
            found = free.earliest(wants, run_ms, at)
            if found is None:
                return None
            agreed = agreed + 1 if found[0] == at else 1
            at, taken[place] = found
            if agreed >= len(wanted):
                break
    return Instant(at), taken


def choose(wants: Sequence[Want], free: Mapping[str, int]) -> Vector | None:
    """Return how much of which types would be taken; None if there is too little.

    A want that names types gets all of one of them, the first with enough; one that names
    none goes last and takes what is left of any.
    """
    left, taken = dict(free), Vector()
    for milli, types in sorted(wants, key=lambda want: not want[1]):
        missing = milli
        for kind in types or tuple(left):
            part = min(missing, max(0, left.get(kind, 0)))
            if types and part < milli:
                continue
            if part:
                left[kind] -= part
                taken[kind] = taken.get(kind, 0) + part
                missing -= part
            if not missing:
                break
        if missing:
            return None
    return taken
