"""What a benchmark hands back: figures with a unit, a direction and a target."""

from typing import Literal

import msgspec

NOISE = 0.20
"""A change for the worse by less than this share is taken for chance."""


class Figure(msgspec.Struct, frozen=True):
    """One measured number. `target` is what is promised, None where nothing is."""

    name: str
    value: float
    unit: str
    better: Literal["lower", "higher"]
    target: float | None = None

    @property
    def on_target(self) -> bool:
        if self.target is None:
            return True
        if self.better == "lower":
            return self.value <= self.target
        return self.value >= self.target

    def change_from(self, before: "Figure") -> float | None:
        """Return the relative change, positive for better; None when before was 0."""
        if before.value == 0:
            return None
        change = (self.value - before.value) / abs(before.value)
        return -change if self.better == "lower" else change

    def is_worse_than(self, before: "Figure") -> bool:
        """Whether it got worse by more than noise explains."""
        change = self.change_from(before)
        return change is not None and change < -NOISE


class Machine(msgspec.Struct, frozen=True):
    """Where figures were measured; they compare only with figures of the same kind."""

    cpu: str
    cores: int
    memory_gib: int
    system: str
    python: str

    def __str__(self) -> str:
        return (
            f"{self.cores} cores of {self.cpu}, {self.memory_gib} GiB, {self.system}, "
            f"Python {self.python}"
        )


class Run(msgspec.Struct, frozen=True):
    """The figures of one run, by benchmark."""

    date: str
    command: str
    machine: Machine
    figures: dict[str, tuple[Figure, ...]]
