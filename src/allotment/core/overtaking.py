"""How often waiting jobs were overtaken, and the bound on it.

Rule: of a queue with `overtaken: N`, a job whose place in job order is behind others that wait
overtakes each of them when it is placed, or gets a place reserved. One that was overtaken N
times holds up all behind it in its queue, by whatever entitlement they would start. Counted is
from when a job began to wait.

Kept are the waiting jobs of such queues in order, in blocks: a job that is placed adds one to
whole blocks before it. O(√n) a job. Queues without a bound are not kept.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence

from allotment.core.rank import Key
from allotment.model.ids import JobId
from allotment.model.tenancy import Tenant

SIZE = 128
"""Jobs of a block: twice as many are parted."""

Name = tuple[str, str]
"""A line: the names of a tenant and of its queue."""


class _Block:
    """Some neighbours in a line, and how often each was overtaken."""

    def __init__(self, keys: list[Key], counts: list[int]) -> None:
        self.keys = keys
        self.counts = counts
        """Each without `added`."""
        self.added = 0
        self.top = max(counts, default=0)
        """No count is larger."""

    def parted(self) -> "_Block":
        """Part from the second half, and return it."""
        half = len(self.keys) // 2
        other = _Block(self.keys[half:], self.counts[half:])
        other.added = self.added
        del self.keys[half:], self.counts[half:]
        return other


class Overtaken:
    """The waiting jobs of one queue, and how often each was overtaken."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.full: list[Key] = []
        """Those that were overtaken as often as they may be, in order."""
        self._blocks: list[_Block] = [_Block([], [])]

    def add(self, key: Key, count: int) -> None:
        """Note a job that came, and how often it was overtaken before. O(√n)."""
        at = self._block_of(key)
        block = self._blocks[at]
        place = bisect_left(block.keys, key)
        block.keys.insert(place, key)
        block.counts.insert(place, count - block.added)
        block.top = max(block.top, count - block.added)
        if count >= self.most:
            insort(self.full, key)
        if len(block.keys) > 2 * SIZE:
            self._blocks.insert(at + 1, block.parted())

    def remove(self, key: Key) -> bool:
        """Remove a job; return whether it held up others. O(√n)."""
        at = self._block_of(key)
        block = self._blocks[at]
        place = bisect_left(block.keys, key)
        count = block.counts.pop(place) + block.added
        del block.keys[place]
        if not block.keys and len(self._blocks) > 1:
            del self._blocks[at]
        if count < self.most:
            return False
        del self.full[bisect_left(self.full, key)]
        return True

    def count(self, key: Key) -> int:
        """Return how often a job was overtaken."""
        block = self._blocks[self._block_of(key)]
        return block.counts[bisect_left(block.keys, key)] + block.added

    def overtake(self, key: Key) -> None:
        """Let all before a place be overtaken once more. O(√n + those full now)."""
        for block in self._blocks:
            if not block.keys or block.keys[0] >= key:
                return
            if block.keys[-1] < key:
                block.added += 1
                behind = len(block.keys)
            else:
                behind = bisect_left(block.keys, key)
                for place in range(behind):
                    block.counts[place] += 1
                block.top = max(block.counts)
            just = self.most - block.added
            if block.top >= just:
                for key_of, count in zip(block.keys[:behind], block.counts, strict=False):
                    if count == just:
                        insort(self.full, key_of)

    def _block_of(self, key: Key) -> int:
        """Return the last block that begins at or before a place in job order."""
        low, high = 0, len(self._blocks) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._blocks[middle].keys[0] <= key:
                low = middle
            else:
                high = middle - 1
        return low


class Overtaking:
    """The queues with a bound, and the jobs that wait in them."""

    def __init__(self, most: Mapping[Name, int]) -> None:
        self._most = most
        self._lines: dict[Name, Overtaken] = {}
        self._where: dict[JobId, tuple[Overtaken, Key]] = {}
        self._before: dict[JobId, int] = {}
        """How often those were overtaken that are about to wait again."""

    def came(self, line: Name, key: Key) -> None:
        """Note a job that began to wait."""
        most = self._most.get(line)
        if most is None:
            return
        there = self._lines.get(line)
        if there is None:
            there = self._lines[line] = Overtaken(most)
        there.add(key, self._before.pop(key[1], 0))
        self._where[key[1]] = (there, key)

    def left(self, job: JobId) -> bool:
        """Note that a job waits no longer; return whether it held up others."""
        found = self._where.pop(job, None)
        return found is not None and found[0].remove(found[1])

    def passes(self, job: JobId) -> None:
        """Note that a waiting job was placed, or got a place reserved."""
        found = self._where.get(job)
        if found is not None:
            found[0].overtake(found[1])

    def of(self, job: JobId) -> tuple[int, int] | None:
        """Return how often a job was overtaken, and may be; None where that is not bounded."""
        found = self._where.get(job)
        return None if found is None else (found[0].count(found[1]), found[0].most)

    def full(self, line: Name) -> Sequence[Key]:
        """Return those of a queue that were overtaken as often as they may be, in order."""
        there = self._lines.get(line)
        return there.full if there is not None else ()

    @property
    def any_full(self) -> bool:
        """Whether any job was overtaken as often as it may be. O(queues)."""
        return any(line.full for line in self._lines.values())

    def counts(self) -> dict[JobId, int]:
        """Return how often each was overtaken, of those that were, for a snapshot. O(n)."""
        counts = {job: line.count(key) for job, (line, key) in sorted(self._where.items())}
        return {job: count for job, count in counts.items() if count}

    def recall(self, counts: Mapping[JobId, int]) -> None:
        """Remember how often those were overtaken that are about to wait."""
        self._before = dict(counts)


def overtaking_of(tenants: Sequence[Tenant]) -> Overtaking | None:
    """Keep the lines of queues with a bound; None where there is none."""
    most = {
        (tenant.name, queue.name): queue.terms.overtaken
        for tenant in tenants
        for queue in tenant.queues
        if queue.terms.overtaken
    }
    return Overtaking(most) if most else None
