"""The cluster over time: devices in use, jobs that run and wait, exact sums and a thin curve."""

import msgspec

from allotment.metrics.fold import FINISHED, Handlers, devices_of
from allotment.model import events as e
from allotment.model.cluster import NodeState
from allotment.model.quantity import DEVICE, Instant

SAMPLES = 2_000
"""The most samples of a curve."""

PPM = 1_000_000
"""Crowding is counted in millionths, to stay with integers."""


class Sample(msgspec.Struct, frozen=True, gc=False):
    """The cluster at one instant (from then on until the next sample)."""

    at_ms: int
    busy_milli: int
    """Devices in use, in thousandths."""
    running: int
    waiting: int
    """Jobs."""
    waiting_milli: int
    """Devices that waiting jobs ask for, in thousandths."""


class Totals(msgspec.Struct, frozen=True, gc=False):
    """Exact sums over time, from the first submission to the newest event.

    Times devices are thousandths of a device × milliseconds, the others jobs × milliseconds.
    """

    from_ms: int = 0
    to_ms: int = 0
    busy: int = 0
    busy_until_last_end: int = 0
    """The part of `busy` before the last job that ended did so."""
    idle: int = 0
    """On nodes that take work."""
    stranded: int = 0
    """The part of `idle` that waiting jobs asked for and did not get."""
    running: int = 0
    waiting: int = 0
    waiting_devices: int = 0
    peak_waiting: int = 0
    """The most jobs that waited at a time, for longer than an instant."""
    peak_waiting_milli: int = 0
    """The most devices that waiting jobs asked for at a time."""


class Usage:
    """Folds the log into `totals` and `samples`. O(1) an event, memory by unfinished jobs.

    A job in line waits; one that is held does not. A gang is in use from its placing to its
    end, while suspended it is not. The number of devices is the configuration's, or
    `capacity_milli` for a log that does not begin with one; nodes that are lost or drained
    do not count as idle.
    """

    def __init__(self, capacity_milli: int = 0) -> None:
        self.busy_milli = self.running = self.waiting = self.waiting_milli = 0
        self.capacity_milli = capacity_milli
        """Of the whole cluster, in thousandths of a device."""
        self.open_milli = capacity_milli
        """Of the nodes that take work."""
        self.crowd = 0
        """How much more was asked for than there is, in millionths of the cluster × ms."""
        self._at = Instant(0)
        self._begun = False
        self._need: dict[int, int] = {}
        self._line: set[int] = set()
        self._active: set[int] = set()
        self._nodes: dict[int, int] = {}
        self._closed: dict[int, NodeState] = {}
        self._busy = self._running = self._waiting = self._waiting_devices = 0
        self._open = self._stranded = self._busy_until_last_end = 0
        self._from = Instant(0)
        self._peak = self._peak_milli = 0
        self._curve = Curve()

    @property
    def free_milli(self) -> int:
        """Devices that nobody holds, on nodes that take work, in thousandths."""
        return max(0, self.open_milli - self.busy_milli)

    def totals(self) -> Totals:
        """Give the sums up to the newest event."""
        return Totals(
            from_ms=self._from,
            to_ms=self._at,
            busy=self._busy,
            busy_until_last_end=self._busy_until_last_end,
            idle=self._idle,
            stranded=self._stranded,
            running=self._running,
            waiting=self._waiting,
            waiting_devices=self._waiting_devices,
            peak_waiting=self._peak,
            peak_waiting_milli=self._peak_milli,
        )
