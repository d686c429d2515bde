"""What is going to happen: a heap of (time, phase, sequence).

Within one instant, phases come in their order; within one phase, whatever was entered
first comes first. So a run is the same every time.
"""

from collections.abc import Iterator
from enum import IntEnum
from heapq import heappop, heappush

from allotment.model.ids import AttemptNo, JobId, NodeId
from allotment.model.quantity import Instant

NO_ATTEMPT = AttemptNo(0)


class Phase(IntEnum):
    """The order of what happens at one instant: what frees devices comes first."""

    REPAIR = 0
    FAULT = 1
    END = 2
    FAILURE = 3
    """A job fails by itself."""
    GONE = 4
    """A gang that was told to stop is gone."""
    SHED = 5
    """Surplus tasks that were told to stop are gone."""
    START = 6
    TOLD = 7
    """A job has told of its steps for a while: its pace is known."""


REPAIR, FAULT, END, FAILURE, GONE, SHED, START, TOLD = Phase
"""By names of their own: to look one up in its enum costs as much as to enter it here."""


Entry = tuple[Instant, Phase, int, JobId | NodeId, AttemptNo]
"""One thing that is going to happen: when, in which phase, as which entry of all, and to which
attempt of a job, or to which node. For a node, the last counts its failures."""


class Agenda:
    """The heap. An entry may be outlived by its reason: the taker looks."""

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._sequence = 0

    def add(
        self, at: int, phase: Phase, subject: JobId | NodeId, attempt: AttemptNo = NO_ATTEMPT
    ) -> None:
        """Enter something to happen at an instant."""
        self._sequence += 1
        heappush(self._heap, (Instant(at), phase, self._sequence, subject, attempt))

    def next(self) -> Instant | None:
        """Return when the next thing happens."""
        return self._heap[0][0] if self._heap else None

    def within(self, until: int) -> list[Instant]:
        """Return when things happen up to an instant, in no order. O(their number)."""
        found: list[Instant] = []
        places = [0]
        while places:
            place = places.pop()
            if place < len(self._heap) and self._heap[place][0] <= until:
                found.append(self._heap[place][0])
                places += (2 * place + 1, 2 * place + 2)
        return found

    def take(self, until: int) -> Iterator[Entry]:
        """Take out one by one what happens up to an instant, also what is entered meanwhile."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            yield heappop(heap)
