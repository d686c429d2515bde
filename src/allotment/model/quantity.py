"""Quantities: integers with units. Floats appear in reports only.

Devices and CPU are counted in thousandths, memory and disk in bytes, time in milliseconds:
as a length (`Millis`), as an `Instant` or as a `WallTime`.
"""

from typing import Annotated, NewType

import msgspec

Instant = NewType("Instant", int)
"""A moment of the engine's own time, which began as milliseconds since the Unix epoch. It goes
on evenly, also when the machine's clock is set, so that lengths of time are true."""

Moment = Annotated[int, "instant"]
"""An instant in a view: it is moved to the wall clock's time when it is shown."""

WallTime = NewType("WallTime", int)
"""A moment as the machine's clock shows it, in milliseconds since the Unix epoch: what people
write as a date, and what they are shown."""

Millis = NewType("Millis", int)

NO_TIME = Millis(0)
NOT_YET = Instant(0)
"""Stands for a moment that has not come."""

DEVICE = 1000
"""One whole device, in thousandths."""

CPU = 1000
"""One whole CPU, in thousandths."""

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def earlier(one: Instant | None, other: Instant | None) -> Instant | None:
    """Return the first of two moments, neither of which need ever come."""
    return one if other is None or (one is not None and one <= other) else other


class Resources(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An amount of everything a task can hold: asked for, owned, or free.

    `gpu_memory` is bytes over all devices together when it describes a total, and bytes
    on *each* device when it stands in a task's request.
    """

    gpu_milli: int = 0
    cpu_milli: int = 0
    memory: int = 0
    disk: int = 0
    gpu_memory: int = 0

    def __add__(self, other: "Resources") -> "Resources":
        return Resources(
            self.gpu_milli + other.gpu_milli,
            self.cpu_milli + other.cpu_milli,
            self.memory + other.memory,
            self.disk + other.disk,
            self.gpu_memory + other.gpu_memory,
        )

    def __sub__(self, other: "Resources") -> "Resources":
        return Resources(
            self.gpu_milli - other.gpu_milli,
            self.cpu_milli - other.cpu_milli,
            self.memory - other.memory,
            self.disk - other.disk,
            self.gpu_memory - other.gpu_memory,
        )

    def __mul__(self, count: int) -> "Resources":
        return Resources(
            self.gpu_milli * count,
            self.cpu_milli * count,
            self.memory * count,
            self.disk * count,
            self.gpu_memory * count,
        )

    def fits_in(self, room: "Resources") -> bool:
        """Whether every component is at most the room's."""
        return (
            self.gpu_milli <= room.gpu_milli
            and self.cpu_milli <= room.cpu_milli
            and self.memory <= room.memory
            and self.disk <= room.disk
            and self.gpu_memory <= room.gpu_memory
        )


NOTHING = Resources()


def show_bytes(amount: int) -> str:
    """Write bytes as people do: 512 MiB, 1.5 GiB."""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if amount >= unit:
            whole = amount / unit
            return f"{whole:.0f} {name}" if amount % unit == 0 else f"{whole:.1f} {name}"
    return f"{amount} B"


def show_millis(length: int) -> str:
    """Write a length of time as people do: 850 ms, 12.3 s, 4 min 5 s, 3 h 20 min, 2 d 4 h."""
    if length < SECOND:
        return f"{length} ms"
    if length < MINUTE:
        return f"{length / SECOND:.1f} s"
    if length < HOUR:
        return f"{length // MINUTE} min {length % MINUTE // SECOND} s"
    if length < DAY:
        return f"{length // HOUR} h {length % HOUR // MINUTE} min"
    return f"{length // DAY} d {length % DAY // HOUR} h"


def show_milli(amount: int) -> str:
    """Write thousandths without a trailing zero: 2, 0.5, 1.25."""
    return str(amount // 1000) if amount % 1000 == 0 else f"{amount / 1000:g}"


def show_resources(amount: Resources) -> str:
    """Write a resource vector as people do, leaving out what is zero."""
    parts: list[str] = []
    if amount.gpu_milli:
        parts.append(f"{show_milli(amount.gpu_milli)} GPU")
    if amount.gpu_memory:
        parts.append(f"{show_bytes(amount.gpu_memory)} GPU memory")
    if amount.cpu_milli:
        parts.append(f"{show_milli(amount.cpu_milli)} CPU")
    if amount.memory:
        parts.append(f"{show_bytes(amount.memory)} memory")
    if amount.disk:
        parts.append(f"{show_bytes(amount.disk)} disk")
    return ", ".join(parts) or "nothing"


def is_part_of_device(need: Resources) -> bool:
    """Whether a task asks for a part of one device, and may share it."""
    return 0 < need.gpu_milli < DEVICE
