"""Equivalence classes of waiting jobs: those whose shapes differ in their queue alone.

Such jobs fit or wait alike. A thousand queues have thousands of shapes, but few classes. What a
tenant's sharing says of one shape it says of its whole class, and so does a search for room:
once a class is blocked, all its queues are passed over in one step. A class is named by the
shape of its jobs, with a name for queues of its order in place of the queue.

Queues that let later jobs pass, and those that are first come, first served, are classes apart.
Where jobs pass by backfilling, each queue is looked at by itself: that depends on the moment.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from typing import Final

import msgspec

from allotment.core.rank import Key
from allotment.core.request import Shape
from allotment.model.tenancy import QueueOrder

Head = tuple[Key, Shape]
"""The place in job order of the first job of a shape."""

PASSING: Final = "\0skip"
STRICT: Final = "\0strict"
"""What stands for the queue in a class. No queue has such a name."""

_NAMES = {QueueOrder.SKIP: PASSING, QueueOrder.STRICT: STRICT}


def equivalence_classes(
    orders: Mapping[tuple[str, str], QueueOrder],
) -> "EquivalenceClasses | None":
    """Return the classes of shapes; None where every tenant has one queue.

    Not to be asked where ranks or shares set the jobs of different queues apart, nor for cells:
    there a job that is not entitled may hold up others.
    """
    several = len({tenant for tenant, _ in orders}) < len(orders)
    return EquivalenceClasses(orders) if several else None


class EquivalenceClasses:
    """For each class, the heads of its shapes in order."""

    def __init__(self, orders: Mapping[tuple[str, str], QueueOrder]) -> None:
        """`orders` of the queues, by tenant and name; one that is gone is strict."""
        self._orders = orders
        self._of: dict[Shape, Shape] = {}
        self._heads: dict[Shape, list[Head]] = {}

    def __iter__(self) -> Iterator[Shape]:
        return iter(self._heads)

    def of(self, shape: Shape) -> Shape:
        """Return the class of a shape of which a job waits, or of a class itself."""
        return self._of.get(shape, shape)

    def opened(self, shape: Shape, head: Key) -> None:
        """Note a shape of which no job waited."""
        order = self._orders.get((shape.tenant, shape.queue), QueueOrder.STRICT)
        name = _NAMES.get(order)
        if name is not None:
            self._of[shape] = msgspec.structs.replace(shape, queue=name)
        insort(self._heads.setdefault(self.of(shape), []), (head, shape))

    def moved(self, shape: Shape, before: Key, after: Key) -> None:
        """Note that another job is now the first of a shape."""
        heads = self._heads[self.of(shape)]
        del heads[bisect_left(heads, before, key=_key)]
        insort(heads, (after, shape), key=_key)

    def closed(self, shape: Shape, head: Key) -> None:
        """Note that no job of a shape waits any longer."""
        eclass = self.of(shape)
        heads = self._heads[eclass]
        del heads[bisect_left(heads, head, key=_key)]
        if not heads:
            del self._heads[eclass]
        self._of.pop(shape, None)

    def behind(self, eclass: Shape, last: Key | None, skip: set[Shape]) -> Head | None:
        """Return the first head behind a place, of a shape that is not left out."""
        heads = self._heads.get(eclass, ())
        at = 0 if last is None else bisect_right(heads, last, key=_key)
        while at < len(heads) and heads[at][1] in skip:
            at += 1
        return heads[at] if at < len(heads) else None


class Cursor:
    """Where a queue pass is in one class. Jobs may leave their queues meanwhile."""

    def __init__(
        self, eclass: Shape, classes: EquivalenceClasses, groups: Mapping[Shape, list[Key]]
    ) -> None:
        self.eclass = eclass
        self._classes = classes
        self._groups = groups
        self._met: Head | None = None
        """The job that was met last."""
        self._stayed: list[Head] = []
        """Of shapes whose first job was met and stayed, the next: a heap."""

    def next(self, skip: set[Shape], leap: dict[Shape, Key]) -> Head | None:
        """Go to the next job of a shape that is not left out.

        Of a shape put in `leap` the next is that one.
        """
        met = self._met
        if met is not None and met[1] not in skip:
            self._follow(met, leap)
        stayed = self._stayed
        while stayed and stayed[0][1] in skip:
            heappop(stayed)
        found = self._classes.behind(self.eclass, met[0] if met else None, skip)
        if stayed and (found is None or stayed[0][0] < found[0]):
            found = heappop(stayed)
        self._met = found
        return found

    def _follow(self, met: Head, leap: dict[Shape, Key]) -> None:
        """Note the next of a shape whose first job was met, and so is no head ahead."""
        key, shape = met
        group = self._groups.get(shape)
        if group is None or group[0] > key:
            return
        place = (
            bisect_left(group, leap.pop(shape)) if shape in leap else bisect_right(group, key)
        )
        if place < len(group):
            heappush(self._stayed, (group[place], shape))


def _key(head: Head) -> Key:
    return head[0]
