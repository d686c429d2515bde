"""Which nodes a job must keep off because of windows: maintenance, and reservations.

Rule: a job is put on a node only if it is sure to be gone when a window of that node
begins, or may use it. What it may take is its time limit, or what is estimated; a job of
which neither is known keeps off from the window's notice on. Once a window is over its
nodes are open again. A job that runs on is left alone.

While a place is looked for, the nodes that the job must keep off are fenced: closed for the
search, and open again before anything is proposed. Jobs differ in that, so where windows
are set a job's shape says how long it may run, and which windows it may use.
"""

from collections.abc import Iterable, Sequence

import msgspec

from allotment.core.request import Shape
from allotment.model.ids import NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import MINUTE, Instant
from allotment.model.windows import Window

NOWHERE: frozenset[NodeId] = frozenset()

Span = tuple[int, int]
"""From one instant until, but without, another."""


class Windows:
    """The windows that are set, in the order in which they begin."""

    def __init__(self, windows: Iterable[Window] = ()) -> None:
        self.all = tuple(sorted(windows, key=lambda window: (window.begin, window.name)))
        self._nodes = {window.name: frozenset(window.nodes) for window in self.all}

    def shaped(self, shape: Shape, user: str, span_ms: int) -> Shape:
        """Return the shape of a job with what windows ask of it. Spans are whole minutes."""
        if not self.all:
            return shape
        span = -(-span_ms // MINUTE) * MINUTE if span_ms >= 0 else -1
        enters = tuple(
            window.name for window in self.all if window.admits(shape.tenant, shape.queue, user)
        )
        return msgspec.structs.replace(shape, span_ms=span, enters=enters)

    def barring(self, shape: Shape, now: Instant) -> list[Window]:
        """Return the windows that keep a job off their nodes now."""
        return [
            window
            for window in self.all
            if now < window.end
            and window.bars_from(shape.span_ms) < now
            and window.name not in shape.enters
        ]

    def shut_to(self, shape: Shape, now: Instant) -> frozenset[NodeId]:
        """Name the nodes a job must keep off now."""
        if not self.all:
            return NOWHERE
        barring = self.barring(shape, now)
        if not barring:
            return NOWHERE
        return NOWHERE.union(*(self._nodes[window.name] for window in barring))

    def bar(self, shape: Shape, slots: Sequence[Slot], now: Instant) -> bool:
        """Whether a window keeps a job off a place."""
        if not self.all:
            return False
        nodes = {slot.node for slot in slots}
        return any(
            not nodes.isdisjoint(self._nodes[window.name])
            for window in self.barring(shape, now)
        )

    def next_end(self, shape: Shape, now: Instant) -> Instant | None:
        """Return when the next window ends that is not for a job; None if there is none."""
        ends = (each.end for each in self.all if each.name not in shape.enters)
        return min((Instant(end) for end in ends if end > now), default=None)


def set_aside(windows: Windows, shape: Shape, now: Instant) -> dict[NodeId, list[Span]]:
    """Return when which nodes are not for jobs of a queue, in order."""
    return _spans(
        (max(now, window.begin), window)
        for window in windows.all
        if window.end > now and not window.admits(shape.tenant, shape.queue, shape.user)
    )


def kept_off(windows: Windows, shape: Shape, now: Instant) -> dict[NodeId, list[Span]]:
    """Return when a job may not be put on which nodes, in order: it could still run there."""
    begins = ((max(now, each.bars_from(shape.span_ms) + 1), each) for each in windows.all)
    bars = [
        (begin, window)
        for begin, window in begins
        if begin < window.end and window.name not in shape.enters
    ]
    return _spans(sorted(bars, key=lambda bar: bar[0]))


def _spans(bars: Iterable[tuple[int, Window]]) -> dict[NodeId, list[Span]]:
    """Join the spans of each node that meet."""
    spans: dict[NodeId, list[Span]] = {}
    for begin, window in bars:
        for node in window.nodes:
            mine = spans.setdefault(node, [])
            if mine and begin <= mine[-1][1]:
                mine[-1] = mine[-1][0], max(mine[-1][1], int(window.end))
            else:
                mine.append((begin, int(window.end)))
    return spans
