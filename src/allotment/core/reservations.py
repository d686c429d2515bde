"""Which nodes a job must keep off because of reservations: maintenance, or kept for others.

Rule: a job is put on a node only if it is sure to be gone when a reservation of that node
begins, or may use it. What it may take is its time limit, or what is estimated; a job of
which neither is known keeps off from the reservation's notice on. Once a reservation is over
its nodes are open again. A job that runs on is left alone.

While a place is looked for, the nodes that the job must keep off are fenced: closed for the
search, and open again before anything is proposed. Jobs differ in that, so where reservations
are set a job's shape says how long it may run, and which reservations it may use.
"""

from collections.abc import Iterable, Sequence

import msgspec

from allotment.core.request import Shape
from allotment.model.ids import NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import MINUTE, Instant
from allotment.model.reservations import Reservation

NOWHERE: frozenset[NodeId] = frozenset()

Span = tuple[int, int]
"""From one instant until, but without, another."""


class Reservations:
    """The reservations that are set, in the order in which they begin."""

    def __init__(self, reservations: Iterable[Reservation] = ()) -> None:
        self.all = tuple(sorted(reservations, key=lambda each: (each.begin, each.name)))
        self._nodes = {
            reservation.name: frozenset(reservation.nodes) for reservation in self.all
        }

    def shaped(self, shape: Shape, user: str, span_ms: int) -> Shape:
        """Return a shape with what reservations ask of a job. Spans are whole minutes."""
        if not self.all:
            return shape
        span = -(-span_ms // MINUTE) * MINUTE if span_ms >= 0 else -1
        admitting = (each for each in self.all if each.admits(shape.tenant, shape.queue, user))
        enters = tuple(each.name for each in admitting)
        return msgspec.structs.replace(shape, span_ms=span, enters=enters)

    def barring(self, shape: Shape, now: Instant) -> list[Reservation]:
        """Return the reservations that keep a job off their nodes now."""
        return [
            each
            for each in self.all
            if now < each.end
            and each.bars_from(shape.span_ms) < now
            and each.name not in shape.enters
        ]

    def shut_to(self, shape: Shape, now: Instant) -> frozenset[NodeId]:
        """Name the nodes a job must keep off now."""
        return NOWHERE.union(*(self._nodes[each.name] for each in self.barring(shape, now)))

    def bar(self, shape: Shape, slots: Sequence[Slot], now: Instant) -> bool:
        """Whether a reservation keeps a job off a place."""
        shut = self.shut_to(shape, now)
        return any(slot.node in shut for slot in slots)

    def next_end(self, shape: Shape, now: Instant) -> Instant | None:
        """Return when the next reservation ends that is not for a job; None without one."""
        ends = (each.end for each in self.all if each.name not in shape.enters)
        return min((Instant(end) for end in ends if end > now), default=None)


def set_aside(
    reservations: Reservations, shape: Shape, now: Instant
) -> dict[NodeId, list[Span]]:
    """Return when which nodes are not for jobs of a queue, in order."""
    return _spans(
        (max(now, reservation.begin), reservation)
        for reservation in reservations.all
        if reservation.end > now
        and not reservation.admits(shape.tenant, shape.queue, shape.user)
    )


def kept_off(
    reservations: Reservations, shape: Shape, now: Instant
) -> dict[NodeId, list[Span]]:
    """Return when a job may not be put on which nodes, in order: it could still run there."""
    begins = ((max(now, each.bars_from(shape.span_ms) + 1), each) for each in reservations.all)
    bars = [
        (begin, reservation)
        for begin, reservation in begins
        if begin < reservation.end and reservation.name not in shape.enters
    ]
    return _spans(sorted(bars, key=lambda bar: bar[0]))


def _spans(bars: Iterable[tuple[int, Reservation]]) -> dict[NodeId, list[Span]]:
    """Join the spans of each node that meet."""
    spans: dict[NodeId, list[Span]] = {}
    for begin, reservation in bars:
        for node in reservation.nodes:
            mine = spans.setdefault(node, [])
            if mine and begin <= mine[-1][1]:
                mine[-1] = mine[-1][0], max(mine[-1][1], int(reservation.end))
            else:
                mine.append((begin, int(reservation.end)))
    return spans
