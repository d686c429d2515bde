"""Collects, from the events of a run, what a picture of it needs.

Memory is bounded by the cluster and the jobs that run at a time: the map of the nodes makes
its columns twice as long whenever there are too many, and stretches are kept of all jobs on a
small cluster only, else of the largest.
"""

from collections.abc import Callable, Sequence
from heapq import nlargest

import msgspec

from allotment.metrics.fold import Handlers
from allotment.model import events as e
from allotment.model.cluster import Node
from allotment.model.ids import JobId
from allotment.model.ledger import Slot
from allotment.model.quantity import DEVICE, Instant
from allotment.sim.chart import (
    COLUMNS,
    DEVICES,
    JOBS,
    LARGEST,
    ROWS,
    SPANS,
    STRETCHES,
    Chart,
    Row,
    Span,
)
from allotment.sim.trace import TraceJob

SPARE = 4
"""So many times more jobs are watched than drawn: some may be refused."""


class NodeMap:
    """Adds up by node how many devices were in use in each stretch of time.

    O(1) a device and change, amortised. A device that several share is in use once.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.together = max(1, -(-len(nodes) // ROWS))
        self.nodes = nodes
        self.from_ms = -1
        self.column_ms = 1
        rows = -(-len(nodes) // self.together)
        self._row_of = {int(node.id): n // self.together for n, node in enumerate(nodes)}
        self._held = [0] * rows
        self._since = [0] * rows
        self._holders: dict[tuple[int, int], int] = {}
        self._busy = [[0] * COLUMNS for _ in range(rows)]

    def take(self, at: int, slots: Sequence[Slot]) -> None:
        """Note that slots are held from now on."""
        if self.from_ms < 0:
            self.from_ms = at
            self._since = [at] * len(self._held)
        self._change(at, slots, 1, 0)

    def give(self, at: int, slots: Sequence[Slot]) -> None:
        """Note that slots which were held no longer are."""
        self._change(at, slots, -1, 1)

    def _change(self, at: int, slots: Sequence[Slot], sign: int, turning: int) -> None:
        """Count holders: a device begins or ceases to be in use when there were so many."""
        holders = self._holders
        for slot in slots:
            row = self._row_of[slot.node]
            for index in slot.devices:
                device = (slot.node, index)
                before = holders.get(device, 0)
                holders[device] = before + sign
                if before == turning:
                    self._settle(row, at)
                    self._held[row] += sign * DEVICE

    def _settle(self, row: int, at: int) -> None:
        """Add up what a row held until now."""
        since, held = self._since[row], self._held[row]
        self._since[row] = at
        if not held or since == at:
            return
        while at > self.from_ms + COLUMNS * self.column_ms:
            self._halve()
        busy, width, begin = self._busy[row], self.column_ms, self.from_ms
        first, last = (since - begin) // width, (at - begin - 1) // width
        if first == last:
            busy[first] += held * (at - since)
            return
        busy[first] += held * (begin + (first + 1) * width - since)
        for column in range(first + 1, last):
            busy[column] += held * width
        busy[last] += held * (at - begin - last * width)

    def _halve(self) -> None:
        """Make columns twice as long."""
        self.column_ms *= 2
        for busy in self._busy:
            busy[:] = [a + b for a, b in zip(busy[::2], busy[1::2], strict=True)]
            busy += [0] * (COLUMNS - len(busy))

    def rows(self, at: int) -> tuple[Row, ...]:
        """Return the rows up to now."""
        for row in range(len(self._held)):
            self._settle(row, at)
        return tuple(
            Row(*self._of(row), busy=tuple(busy)) for row, busy in enumerate(self._busy)
        )

    def _of(self, row: int) -> tuple[str, str, int]:
        first = row * self.together
        nodes = self.nodes[first : first + self.together]
        kinds = dict.fromkeys(device.type for node in nodes for device in node.devices)
        amount = DEVICE * sum(len(node.devices) for node in nodes)
        return nodes[0].name, "+".join(kinds) or "no device", amount


class _Held(msgspec.Struct, gc=False):
    """What a job holds, or last held."""

    slots: tuple[Slot, ...]
    since: int
    """-1 while it holds nothing."""


class Charting:
    """A fold of the events of a run into a `Chart`.

    `place_of` gives the place in the trace of a job that has been submitted.
    """

    def __init__(
        self,
        jobs: Sequence[TraceJob],
        nodes: Sequence[Node],
        place_of: Callable[[JobId], int],
    ) -> None:
        self._map = NodeMap(nodes)
        self._place_of = place_of
        self._names = [
            (node.name, f"{device.index} {device.type}".strip())
            for node in nodes
            for device in node.devices
        ]
        self._whole = len(self._names) <= DEVICES and len(jobs) <= JOBS
        self._number = {
            (int(node), int(device)): n
            for n, (node, device) in enumerate(
                (node.id, device.index) for node in nodes for device in node.devices
            )
        }
        self._large = _largest(jobs)
        self._held: dict[int, _Held] = {}
        self._places: dict[int, int] = {}
        self._spans: dict[int, list[Span]] = {}
        self._count = 0
        self._pause_ms = 0
        self._at = 0

    def handlers(self) -> Handlers:
        """Return the methods by the kind of event they take."""
        return {
            e.JobSubmitted: self._submitted,
            e.AttemptPlaced: self._placed,
            e.AttemptSuspended: self._suspended,
            e.AttemptResumed: self._resumed,
            e.AttemptEnded: self._ended,
        }

    def _submitted(self, at: Instant, event: e.JobSubmitted) -> None:
        place = self._place_of(event.job)
        if self._whole or place in self._large:
            self._places[event.job] = place
            self._spans[place] = []

    def _placed(self, at: Instant, event: e.AttemptPlaced) -> None:
        self._held[event.job] = _Held(event.slots, at)
        self._map.take(at, event.slots)
        self._at = at

    def _suspended(self, at: Instant, event: e.AttemptSuspended) -> None:
        self._close(at, event.job, sent_away=True)

    def _resumed(self, at: Instant, event: e.AttemptResumed) -> None:
        held = self._held.get(event.job)
        if held is not None and held.since < 0:
            held.since = at
            self._map.take(at, held.slots)

    def _ended(self, at: Instant, event: e.AttemptEnded) -> None:
        self._close(at, event.job, sent_away=event.outcome is e.Outcome.EVICTED)
        self._held.pop(event.job, None)

    def _close(self, at: int, job: JobId, *, sent_away: bool) -> None:
        self._at = at
        held = self._held.get(job)
        if held is None or held.since < 0:
            return
        self._map.give(at, held.slots)
        place = self._places.get(job, -1)
        spans = self._spans.get(place)
        if spans is not None and held.since < at:
            parts = self._parts(held.slots) if self._whole else ()
            spans.append(Span(place, held.since, at, sent_away, parts))
            self._bound(spans)
        held.since = -1

    def _parts(self, slots: Sequence[Slot]) -> tuple[tuple[int, int], ...]:
        return tuple(
            (self._number[slot.node, device], slot.gpu_milli // len(slot.devices))
            for slot in slots
            for device in slot.devices
        )

    def _bound(self, spans: list[Span]) -> None:
        """Keep no more than what is worth drawing."""
        self._count += 1
        if not self._whole:
            if len(spans) > STRETCHES:
                self._join(spans)
        elif self._count > SPANS:
            self._whole = False
            for place, some in list(self._spans.items()):
                if place not in self._large:
                    del self._spans[place]
                while len(some) > STRETCHES:
                    self._join(some)

    def _join(self, spans: list[Span]) -> None:
        """Leave out the shortest pause of a job."""
        n = min(range(1, len(spans)), key=lambda n: spans[n].from_ms - spans[n - 1].to_ms)
        before, after = spans[n - 1], spans[n]
        self._pause_ms = max(self._pause_ms, after.from_ms - before.to_ms)
        spans[n - 1 : n + 1] = [
            Span(before.job, before.from_ms, after.to_ms, after.sent_away, after.devices)
        ]

    def result(self, shift: int) -> Chart:
        """Return what there is, with instants so much earlier."""
        for job, held in self._held.items():
            if held.since >= 0:
                self._close(self._at, JobId(job), sent_away=False)
        kept = list(self._spans)
        if not self._whole:
            most = nlargest(LARGEST, kept, key=lambda place: (self._large[place], -place))
            kept = sorted(most)
        return Chart(
            from_ms=max(0, self._map.from_ms) - shift,
            column_ms=self._map.column_ms,
            rows=self._map.rows(self._at),
            nodes_a_row=self._map.together,
            jobs=tuple(kept),
            spans=tuple(
                self._moved(span, shift) for place in kept for span in self._spans[place]
            ),
            devices=tuple(self._names) if self._whole else (),
            pause_ms=self._pause_ms,
        )

    def _moved(self, span: Span, shift: int) -> Span:
        devices = span.devices if self._whole else ()
        return Span(span.job, span.from_ms - shift, span.to_ms - shift, span.sent_away, devices)


def _largest(jobs: Sequence[TraceJob]) -> dict[int, int]:
    """Return the places of the jobs that ask for the most device-time, and how much."""
    asked = [(job.gpu_milli * job.run_ms, -place) for place, job in enumerate(jobs)]
    return {-place: amount for amount, place in nlargest(LARGEST * SPARE, asked)}
