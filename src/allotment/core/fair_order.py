"""The walk of the line where claimants share it: whoever has least puts its first job next.

With every job that is placed its owner has more, and falls back: progressive filling, of
whole gangs (dominant resource fairness: Ghodsi et al., NSDI '11, algorithm 1; in a tree:
core/fair/rescaled.py). Where the parts of a claimant share by no rule, that part comes next
whose own next job came first.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace

from allotment.core.claimants import Claimants, Path
from allotment.core.fair.rescaled import Rescaled
from allotment.core.gang import Standing
from allotment.core.pending import Pending
from allotment.core.rank import Key
from allotment.core.request import Shape
from allotment.model.quantity import Instant

_Place = tuple[int, ...]
"""Among those that share by a rule: what it has, its number; of all: when its next job came."""


def in_fair_order(
    pending: Pending,
    claimants: Claimants,
    skip: set[Shape],
    leap: dict[Shape, Key],
    now: Instant,
) -> Iterator[Standing]:
    """Go through all jobs, leaving out shapes as soon as they are in `skip`.

    O(shapes) to begin, then O(depth · log parts + log shapes) a job. Whoever comes to have
    less while the line is walked, because others go, moves up at the next walk.
    """
    tree = _Tree(pending, claimants, skip, leap, now)
    while (leaf := tree.next()) is not None:
        assert leaf.first is not None, "only who has a job in line comes next"
        yield leaf.first
        leaf.step()


class _Leaf:
    """The line of those who are not compared with each other: a leaf's, or one user's in it."""

    __slots__ = ("_walk", "first", "path")

    def __init__(self, path: Path, walk: Iterator[Standing]) -> None:
        self.path = path
        self._walk = walk
        self.first = next(walk, None)

    def step(self) -> None:
        """Go on to its next job."""
        self.first = next(self._walk, None)


class _Inner:
    """A claimant and its parts, those who come next on top of the heap."""

    __slots__ = ("counted", "first", "heap", "path", "shared")

    def __init__(self, path: Path, *, shared: bool, counted: Rescaled | None) -> None:
        self.path = path
        self.shared = shared
        """Whether its parts are compared by a rule."""
        self.counted = counted
        """What its parts count for; None where all that they have counts."""
        self.heap: list[tuple[_Place, int, _Leaf | _Inner]] = []
        self.first: Standing | None = None


class _Tree:
    """All who have jobs in line."""

    def __init__(
        self,
        pending: Pending,
        claimants: Claimants,
        skip: set[Shape],
        leap: dict[Shape, Key],
        now: Instant,
    ) -> None:
        self._pending = pending
        self._claimants = claimants
        self._skip = skip
        self._now = now
        self._known: dict[Path, _Inner] = {}
        self._top = self._inner(())
        shapes: dict[Path, list[Shape]] = {}
        for shape, _ in pending.heads():
            shapes.setdefault(self._path(shape), []).append(shape)
        for path in sorted(shapes):
            leaf = _Leaf(path, pending.in_order(skip, leap, shapes[path]))
            self._inner(path[:-1]).heap.append(((), len(shapes), leaf))
        # Inner ones first come to know their parts, then who of these is next.
        for inner in sorted(self._known.values(), key=lambda each: -len(each.path)):
            heap = [(number, part) for number, (_, _, part) in enumerate(inner.heap)]
            inner.heap = [
                (self._place(inner, part), number, part)
                for number, part in heap
                if part.first is not None
            ]
            heapify(inner.heap)
            self._look(inner)

    def _path(self, shape: Shape) -> Path:
        path = self._claimants.path(shape.tenant, shape.queue, shape.user)
        return path if self._claimants.shared(path[:-1]) else path[:-1]

    def _inner(self, path: Path) -> _Inner:
        known = self._known.get(path)
        if known is None:
            parts = self._claimants.parts(path)
            counted = None if parts is None else Rescaled()
            shared = self._claimants.shared(path)
            known = self._known[path] = _Inner(path, shared=shared, counted=counted)
            for part in parts or ():
                self._standing(known, part)
            if path:
                self._inner(path[:-1]).heap.append(((), 0, known))
        return known

    def next(self) -> _Leaf | None:
        """Return who comes next, with a job that is in line still; None when nobody is left."""
        self._settle(self._top)
        part: _Leaf | _Inner = self._top
        while isinstance(part, _Inner):
            if not part.heap:
                return None
            part = part.heap[0][2]
        return part

    def _settle(self, inner: _Inner) -> None:
        """Let the part come to the top that is next now."""
        heap = inner.heap
        while heap:
            place, number, part = heap[0]
            if isinstance(part, _Leaf):
                self._pass_over(part)
            else:
                self._settle(part)
            if part.first is None:
                heappop(heap)
                self._standing(inner, part.path)
                continue
            true = self._place(inner, part)
            if true == place:
                break
            heapreplace(heap, (true, number, part))
        self._look(inner)

    def _look(self, inner: _Inner) -> None:
        """See who comes next of the parts of one."""
        if not inner.heap:
            inner.first = None
            return
        part = inner.heap[0][2]
        inner.first = part.first
        if inner.counted is not None:
            inner.counted.rise_to(part.path)

    def _pass_over(self, leaf: _Leaf) -> None:
        """Go on to a job that is still in line, and to be looked at."""
        while (job := leaf.first) is not None:
            if job.shape not in self._skip and job.id in self._pending:
                return
            leaf.step()

    def _place(self, above: _Inner, part: "_Leaf | _Inner") -> _Place:
        job = part.first
        assert job is not None, "only who has a job in line is compared"
        came = (-job.priority, job.submitted_at, job.id)
        if not above.shared:
            return came
        return (*self._standing(above, part.path, part), *came)

    def _standing(
        self, above: _Inner, path: Path, part: "_Leaf | _Inner | None" = None
    ) -> _Place:
        """Return what a part has, and its number; without `part`, of one that cannot go on."""
        counts = part.counted if isinstance(part, _Inner) else None
        claimant = self._claimants.known(path, counts.shares() if counts else None)
        if claimant is not None and above.counted is not None:
            above.counted.put(path, claimant.level, claimant.shares)
        return self._claimants.place(path, self._now, claimant)
