"""How a task is suspended, and what of its devices' memory it then keeps."""

from enum import StrEnum

import msgspec

MIB = 1 << 20


class Grade(StrEnum):
    """The way in which a task was suspended. Each frees CPU and device time.

    A gang that ends at a checkpoint instead is not suspended: it is requeued.
    """

    FROZEN = "frozen"
    """It stands still; all that it has of its devices' memory stays."""
    OFFLOADED = "offloaded"
    """It moved what it has there to the host by itself, at a step boundary."""
    DRIVER_CHECKPOINT = "driver_checkpoint"
    """The driver moved what it has there to the host."""


class Suspension(msgspec.Struct, frozen=True):
    """How a task is suspended, as its backend found it."""

    no: int
    """Which suspension of its attempt this is, counted from 1."""
    grade: Grade
    kept: tuple[int, ...] = ()
    """MiB that it was measured to keep of each of its devices, in the order of its slot; empty
    where that was not measured: then it counts as keeping all it asked for."""

    def keeps(self, asked: int) -> int:
        """Return the bytes that it counts as keeping of each device, of those asked for."""
        return min(asked, max(self.kept) * MIB) if self.frees else asked

    @property
    def frees(self) -> bool:
        """Whether its memory was moved off its devices, and it was measured what is left."""
        return self.grade is not Grade.FROZEN and bool(self.kept)
