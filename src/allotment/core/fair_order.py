"""The queue pass where claimants share: the claimant with least puts its first job next.

With every job that is placed its owner has more, and falls back: progressive filling, of
whole gangs (dominant resource fairness: Ghodsi et al., NSDI '11, algorithm 1). Where
the parts of a claimant share by no rule, that part comes next whose own next job came first.

Hierarchical DRF: a part counts for no more than what would bring it level with the least part
that can go on. So a queue that fills idle devices no other asks for does not keep a queue
beside it, which wants CPUs, from its share of these. A part that cannot go on, because it wants
no more or nothing of what it wants is left, is no such least part: it would hold the claimant
at its own level while the others take all there is.

Source: Bhattacharya et al., Hierarchical Scheduling for Diverse Datacenter Workloads, SoCC
2013, 4.1 (rescaling to the minimum, blocked nodes ignored). There a blocked part counts in
full; here, too, for no more than the least: else one that holds all of what ran out starves
the part beside it after all.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace

from allotment.core.claimant import Shares
from allotment.core.claimants import Claimants, Path
from allotment.core.gang import Standing
from allotment.core.pending import Pending
from allotment.core.rank import Key
from allotment.core.request import Shape
from allotment.model.quantity import Instant

_FINE = 1 << 64
_NONE: Shares = (0, 0, 0, 0, 0)

_Turn = tuple[int, ...]
"""Among those that share by a rule: what it has, its number; of all: when its next job came."""


def in_fair_order(
    pending: Pending,
    claimants: Claimants,
    skip: set[Shape],
    leap: dict[Shape, Key],
    now: Instant,
) -> Iterator[Standing]:
    """Go through all jobs, leaving out shapes as soon as they are in `skip`.

    O(shapes) to begin, then O(depth · log parts + log shapes) a job. A claimant that comes
    to have less during the pass, because gangs leave, moves up at the next one.
    """
    tree = _Tree(pending, claimants, skip, leap, now)
    while (leaf := tree.next()) is not None:
        assert leaf.first is not None, "only a leaf with a waiting job comes next"
        yield leaf.first
        leaf.step()


class _Leaf:
    """Waiting jobs that are not compared with each other: a leaf's, or one user's in it."""

    __slots__ = ("_walk", "first", "path")

    def __init__(self, path: Path, walk: Iterator[Standing]) -> None:
        self.path = path
        self._walk = walk
        self.first = next(walk, None)

    def step(self) -> None:
        """Go to its next job."""
        self.first = next(self._walk, None)


class Rescaled:
    """The parts of one claimant: each with its level, its share by weight, and its shares.

    O(log parts) amortised for what changes while the least rises; O(parts) where it falls.
    """

    def __init__(self) -> None:
        self._parts: dict[Path, tuple[int, Shares, bool]] = {}
        """Level, shares, and whether it is ahead of the least."""
        self._least = 0
        self._even, self._ahead = [*_NONE], [*_NONE]
        """Sums: the shares of those that are not ahead; those of the others by their level."""
        self._levels: list[tuple[int, Path]] = []
        """Those ahead, and some that were; the least first."""

    def put(self, part: Path, level: int, shares: Shares) -> None:
        """Note what a part has now."""
        known = self._parts.get(part)
        if known is not None:
            if known[0] == level and known[1] == shares:
                return
            self._count(known, -1)
        self._enter(part, level, shares)

    def rise_to(self, part: Path) -> None:
        """Note which part has least of those that can continue."""
        parts, levels = self._parts, self._levels
        least = parts[part][0] if part in parts else 0
        falls, self._least = least < self._least, least
        if falls:
            self._begin_anew()
        while levels and levels[0][0] <= least:
            level, passed = heappop(levels)
            found = parts[passed]
            if found[2] and found[0] == level:
                self._count(found, -1)
                self._enter(passed, level, found[1])

    def shares(self) -> Shares:
        """Return what counts."""
        least = self._least
        both = zip(self._even, self._ahead, strict=True)
        return tuple(even + ahead * least // _FINE for even, ahead in both)

    def _enter(self, part: Path, level: int, shares: Shares) -> None:
        known = self._parts[part] = (level, shares, level > self._least)
        self._count(known, +1)
        if known[2]:
            heappush(self._levels, (level, part))

    def _count(self, known: tuple[int, Shares, bool], sign: int) -> None:
        level, shares, is_ahead = known
        if not level:
            return  # Most parts of a large claimant hold nothing.
        if is_ahead:
            for at, share in enumerate(shares):
                self._ahead[at] += sign * (share * _FINE // level)
        else:
            for at, share in enumerate(shares):
                self._even[at] += sign * share

    def _begin_anew(self) -> None:
        known = [*self._parts.items()]
        self._levels.clear()
        self._even, self._ahead = [*_NONE], [*_NONE]
        for part, (level, shares, _) in known:
            self._enter(part, level, shares)


class _Inner:
    """A claimant and its parts, the one that comes next on top of the heap."""

    __slots__ = ("counted", "first", "heap", "path", "shared")

    def __init__(self, path: Path, *, shared: bool, counted: Rescaled | None) -> None:
        self.path = path
        self.shared = shared
        """Whether its parts are compared by a rule."""
        self.counted = counted
        """What its parts count for; None where all that they have counts."""
        self.heap: list[tuple[_Turn, int, _Leaf | _Inner]] = []
        self.first: Standing | None = None


class _Tree:
    """All claimants with waiting jobs."""

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
        for shape in pending.shapes():
            shapes.setdefault(self._path(shape), []).append(shape)
        for path in sorted(shapes):
            leaf = _Leaf(path, pending.in_order(skip, leap, shapes[path]))
            self._inner(path[:-1]).heap.append(((), len(shapes), leaf))
        # Inner ones first come to know their parts, then which of these is next.
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
        """Return the next leaf, with a job that still waits; None when none is left."""
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
        """See which part of a claimant comes next."""
        if not inner.heap:
            inner.first = None
            return
        part = inner.heap[0][2]
        inner.first = part.first
        if inner.counted is not None:
            inner.counted.rise_to(part.path)

    def _pass_over(self, leaf: _Leaf) -> None:
        """Go on to a job that still waits, and to be looked at."""
        while (job := leaf.first) is not None:
            if job.shape not in self._skip and job.id in self._pending:
                return
            leaf.step()

    def _place(self, above: _Inner, part: "_Leaf | _Inner") -> _Turn:
        job = part.first
        assert job is not None, "only a leaf with a waiting job is compared"
        came = (-job.priority, job.submitted_at, job.id)
        if not above.shared:
            return came
        return (*self._standing(above, part.path, part), *came)

    def _standing(
        self, above: _Inner, path: Path, part: "_Leaf | _Inner | None" = None
    ) -> _Turn:
        """Return what a part has, and its number; without `part`, of one that cannot go on."""
        counts = part.counted if isinstance(part, _Inner) else None
        claimant = self._claimants.known(path, counts.shares() if counts else None)
        if claimant is not None and above.counted is not None:
            above.counted.put(path, claimant.level, claimant.shares)
        return self._claimants.place(path, self._now, claimant)
