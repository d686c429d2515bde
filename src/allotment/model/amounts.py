"""The vector that all accounts are kept in: so much of each part, by name.

The parts are devices in all and by type, device memory, CPU, memory, disk and jobs. Unlike
`Resources`, which a job or a node has and which always has every component, a vector says only
what it names: a limit that does not name memory does not limit it. `Amounts` is a vector that
stands in a configuration.
"""

from collections.abc import Mapping
from functools import lru_cache
from operator import itemgetter

import msgspec

from allotment.model.quantity import DEVICE, Resources, show_bytes, show_milli

GPU, GPU_MEMORY, CPU, MEMORY, DISK, JOBS = "gpu", "gpu_memory", "cpu", "memory", "disk", "jobs"

BY_TYPE = "gpu:"
"""What the name of a part begins with that counts devices of one type."""

Vector = dict[str, int]
"""So much of each part that is named, in the units of `Resources`."""


class Amounts(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A vector that does not change, sorted by name."""

    parts: tuple[tuple[str, int], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __add__(self, other: "Amounts") -> "Amounts":
        """Add part by part; what one of the two does not name counts as 0 there."""
        total = dict(self.parts)
        add(total, dict(other.parts))
        return amounts(total)

    def __sub__(self, other: "Amounts") -> "Amounts":
        """Take away part by part; what is not named here becomes less than nothing."""
        total = dict(self.parts)
        add(total, dict(other.parts), -1)
        return amounts(total)

    def get(self, part: str) -> int | None:
        """Return the amount of a part; None where it is not named."""
        return next((amount for name, amount in self.parts if name == part), None)

    def over(self, most: "Amounts") -> str:
        """Name the first part of which this is more than `most` has named; '' if none."""
        here = dict(self.parts)
        return next((part for part, amount in most.parts if here.get(part, 0) > amount), "")


NO_AMOUNTS = Amounts()


def amounts(parts: Mapping[str, int]) -> Amounts:
    """Make amounts of named parts; the same value each time where none is."""
    if not parts:
        return NO_AMOUNTS
    return Amounts(tuple(sorted(parts.items(), key=itemgetter(0))))


def of_type(kind: str) -> str:
    """Name the part that counts devices of one type."""
    return BY_TYPE + kind


@lru_cache(maxsize=1_024)
def of_types(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Name the part of each device by its type; nodes that are alike share the value."""
    return tuple(map(of_type, kinds))


def vector_of(total: Resources) -> Vector:
    """Return resources part by part: those of which there are any."""
    return {part: amount for part, amount in whole_vector(total).items() if amount}


def whole_vector(total: Resources) -> Vector:
    """Return resources part by part, every part named."""
    return {
        GPU: total.gpu_milli,
        CPU: total.cpu_milli,
        MEMORY: total.memory,
        DISK: total.disk,
        GPU_MEMORY: total.gpu_memory,
    }


def resources_of(amount: Mapping[str, int]) -> Resources:
    """Return the parts that resources have as such."""
    return Resources(
        amount.get(GPU, 0),
        amount.get(CPU, 0),
        amount.get(MEMORY, 0),
        amount.get(DISK, 0),
        amount.get(GPU_MEMORY, 0),
    )


def short(need: Resources, room: Resources) -> tuple[str, ...]:
    """Return the parts of which there is more needed than there is."""
    there = whole_vector(room)
    return tuple(part for part, amount in vector_of(need).items() if amount > there[part])


def add(total: Vector, more: Mapping[str, int], sign: int = +1) -> None:
    """Add (+1) or subtract (-1) one vector to or from another, in place."""
    for part, amount in more.items():
        total[part] = total.get(part, 0) + sign * amount


def covers(
    guaranteed: Mapping[str, int], need: Mapping[str, int], use: Mapping[str, int]
) -> bool:
    """Whether so much more than what is in use is within what is guaranteed, part by part.

    Nothing that is not guaranteed is looked at; of what is there must be a need at all.
    """
    asks = False
    for part, most in guaranteed.items():
        wanted = need.get(part, 0)
        asks = asks or wanted > 0
        if use.get(part, 0) + wanted > most:
            return False
    return asks


def show_part(part: str, amount: int) -> str:
    """Write so much of a part as people do: `8 GPUs`, `4 A100 GPUs`, `80 GiB of memory`."""
    if part.startswith(BY_TYPE):
        return _milli(amount, f"{part.removeprefix(BY_TYPE)} GPU")
    match part:
        case "gpu":
            return _milli(amount, "GPU")
        case "cpu":
            return _milli(amount, "CPU")
        case "jobs":
            return f"{amount} job" if amount == 1 else f"{amount} jobs"
        case _:
            words = {MEMORY: "memory", DISK: "disk", GPU_MEMORY: "GPU memory"}
            return f"{show_bytes(amount)} of {words.get(part, part)}"


def _milli(amount: int, word: str) -> str:
    return f"{show_milli(amount)} {word}" + ("" if amount == DEVICE else "s")


def show_bare(part: str, amount: int) -> str:
    """Write so much of a part without its name: `8`, `80 GiB`."""
    if part.startswith(BY_TYPE) or part in (GPU, CPU):
        return show_milli(amount)
    return str(amount) if part == JOBS else show_bytes(amount)


def show_amounts(total: Amounts) -> str:
    """Write all parts that are named."""
    return ", ".join(show_part(part, amount) for part, amount in total.parts) or "nothing"
