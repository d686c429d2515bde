"""What a rescheduler asks: when, which order is counted anew, what shares, what moves."""

from collections.abc import Sequence
from typing import Protocol

from allotment.core.gang import Gang, Standing
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import Instant


class Turns(Protocol):
    """When running gangs are preempted for waiting ones of their tenant that rank higher."""

    def next(self, now: Instant) -> Instant:
        """Return the first such moment from now on; `now` itself when it is one."""
        ...


class Recounting(Protocol):
    """An ordering that begins to count anew at some turns."""

    def recount(self, jobs: Sequence[Standing], now: Instant) -> bool:
        """Count anew if it is time, for all jobs that wait or have a place.

        Returns whether it did: then every rank is asked anew.
        """
        ...


class Devices(Protocol):
    """What may be asked of devices, by their nodes and indexes."""

    def type_of(self, node: NodeId, index: int) -> str: ...

    def free_milli(self, node: NodeId, index: int) -> int:
        """Return what is free of one, in thousandths."""
        ...


class Moving(Protocol):
    """Whether a running gang is better off on other devices, asked at turns."""

    def content(self, gang: Gang, devices: Devices) -> bool:
        """Whether no place at all could be better, so that none need be looked for."""
        ...

    def better(self, gang: Gang, slots: Sequence[Slot], devices: Devices) -> bool:
        """`slots` are free, and where it would be put if it came now."""
        ...


class Packing(Protocol):
    """Which two jobs share devices. Every other job has its devices to itself."""

    def deal(self, jobs: Sequence[Standing], now: Instant) -> None:
        """Make up pairs, at a turn, of all jobs that wait or have a place, by their ids."""
        ...

    def partner(self, job: JobId) -> JobId | None:
        """Return the job that one shares with. Both ask for the same parts of devices."""
        ...
