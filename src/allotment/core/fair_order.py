"""The walk of the line where claimants share it: whoever has least puts its first job next.

With every job that is placed its owner has more, and falls back: progressive filling, of
whole gangs (dominant resource fairness: Ghodsi et al., NSDI '11, algorithm 1).
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from allotment.core.claimants import Claimants
from allotment.core.gang import Standing
from allotment.core.lengths import Key
from allotment.core.pending import Pending
from allotment.core.request import Shape
from allotment.model.quantity import Instant

_Place = tuple[tuple[int, ...], tuple[int, ...], int]
"""What those before it have, its first job by arrival, and its number."""


def in_fair_order(
    pending: Pending,
    claimants: Claimants,
    skip: set[Shape],
    leap: dict[Shape, Key],
    now: Instant,
) -> Iterator[Standing]:
    """Go through all jobs, leaving out shapes as soon as they are in `skip`.

    O(shapes) to begin, then O(log claimants + log shapes) a job. Whoever comes to have less
    while the line is walked, because others go, moves up at the next walk.
    """
    walks = _walks(pending, skip, leap)
    line: list[tuple[_Place, Standing, Iterator[Standing]]] = []
    for number, walk in enumerate(walks):
        first = next(walk, None)
        if first is not None:
            line.append((_place(claimants, first, number, now), first, walk))
    heapify(line)
    while line:
        place, job, walk = heappop(line)
        if job.shape in skip or job.id not in pending:
            following = next(walk, None)
        else:
            true = _place(claimants, job, place[2], now)
            if true > place:
                heappush(line, (true, job, walk))
                continue
            yield job
            following = next(walk, None)
        if following is not None:
            heappush(line, (_place(claimants, following, place[2], now), following, walk))


def _walks(
    pending: Pending, skip: set[Shape], leap: dict[Shape, Key]
) -> list[Iterator[Standing]]:
    """Give the line of each claimant by itself."""
    shapes: dict[tuple[str, str, str], list[Shape]] = {}
    for shape, _ in pending.heads():
        shapes.setdefault((shape.tenant, shape.queue, shape.user), []).append(shape)
    return [pending.in_order(skip, leap, shapes[key]) for key in sorted(shapes)]


def _place(claimants: Claimants, first: Standing, number: int, now: Instant) -> _Place:
    came = (-first.priority, first.submitted_at, first.id)
    return claimants.place(first.shape, now), came, number
