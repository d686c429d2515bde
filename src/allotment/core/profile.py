"""Free devices over time, by type: a step function that running gangs and promises make.

In thousandths of devices. Whoever ends at an instant is gone at that instant. Where devices
are free is left to the placement.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

from allotment.model.quantity import Instant

FOREVER = 1 << 62
"""Longer than anything runs."""

Want = tuple[int, tuple[str, ...]]
"""So many thousandths, of one of these types; of any where none is named."""

Amounts = dict[str, int]


class Profile:
    """What is free from each of some instants on."""

    def __init__(
        self,
        now: Instant,
        free: Mapping[str, int],
        ends: Sequence[tuple[int, Mapping[str, int]]] = (),
    ) -> None:
        """`ends` says who gives back how much when, in the order of time, and after `now`."""
        self._at = [int(now)]
        self._free = {kind: [amount] for kind, amount in free.items()}
        for at, amounts in ends:
            if at != self._at[-1]:
                self._at.append(at)
                for steps in self._free.values():
                    steps.append(steps[-1])
            for kind, amount in amounts.items():
                self._free[kind][-1] += amount

    def release(self, at: int, amounts: Mapping[str, int]) -> None:
        """Let so much more be free from an instant on. O(instants)."""
        self._change(at, FOREVER, amounts, +1)

    def take(self, start: int, end: int, amounts: Mapping[str, int]) -> None:
        """Let so much be in use from `start` until `end`. O(instants)."""
        self._change(start, end, amounts, -1)

    def earliest(
        self, wants: Sequence[Want], run_ms: int, after: int
    ) -> tuple[Instant, Amounts] | None:
        """Return from when on so much is free for so long, and of which types; None if never.

        O(instants) for each type that would do: what is too little at one instant rules out
        every start whose run meets it. O(instants²) where a job takes parts of several types.
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
    ) -> tuple[Instant, Amounts] | None:
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
    ) -> tuple[Instant, Amounts] | None:
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
    ) -> tuple[Instant, Amounts] | None:
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

    def fits(self, wants: Sequence[Want], run_ms: int, start: int) -> Amounts | None:
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
    ) -> tuple[Instant, Amounts] | None:
        """Do the same by trying every start: the slow way, for jobs of several types."""
        at, last = self._at, len(self._at)
        first = max(0, bisect_right(at, after) - 1)
        while first < last:
            start = max(after, at[first])
            end = min(start + run_ms, FOREVER)
            least = {kind: steps[first] for kind, steps in self._free.items()}
            found = choose(wants, least)
            step = first
            while found is not None and step + 1 < last and at[step + 1] < end:
                step += 1
                for kind, steps in self._free.items():
                    least[kind] = min(least[kind], steps[step])
                found = choose(wants, least)
            if found is not None:
                return Instant(start), found
            first = step + 1 if len(self._free) == 1 else first + 1
        return None

    def least(self, run_ms: int, start: int) -> Amounts:
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

    def _change(self, start: int, end: int, amounts: Mapping[str, int], sign: int) -> None:
        first, last = self._cut(start), self._cut(end) if end < FOREVER else len(self._at)
        for kind, amount in amounts.items():
            steps = self._free.get(kind)
            if steps is not None and amount:
                for step in range(first, last):
                    steps[step] += sign * amount

    def _cut(self, instant: int) -> int:
        """Let a step begin at an instant, not before the first; give its place."""
        at = max(instant, self._at[0])
        place = bisect_left(self._at, at)
        if place == len(self._at) or self._at[place] != at:
            self._at.insert(place, at)
            for steps in self._free.values():
                steps.insert(place, steps[place - 1])
        return place


def choose(wants: Sequence[Want], free: Mapping[str, int]) -> Amounts | None:
    """Return how much of which types would be taken; None if there is too little.

    Who names types gets all of one of them, the first with enough; who names none goes last
    and takes what is left of any.
    """
    left, taken = dict(free), Amounts()
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
