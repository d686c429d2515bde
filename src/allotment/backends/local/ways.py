"""Ways in which a task gives the memory of its devices back before it is frozen.

They are tried in their order. What none of them frees is frozen with all it has.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from allotment.model.ids import TaskKey
from allotment.model.suspension import Grade


class Here(msgspec.Struct, frozen=True):
    """A task that runs on this machine."""

    key: TaskKey
    pid: int
    """Its main process, as this machine counts."""
    supervisor: int
    """What its processes are below, also those that lost their parents."""
    devices: tuple[int, ...]
    """Devices by index, as far as its supervisor told of them."""
    folder: Path
    """Where its files are; what a way writes there is found again after a restart."""


class Way(Protocol):
    """One way. Calls may be repeated, and go by what is, not by what was asked.

    A service may be killed in the middle of each: then the same is asked again.
    """

    grade: Grade

    async def free(self, gang: Sequence[Here], no: int) -> frozenset[TaskKey]:
        """Let tasks of one gang give their memory back, in suspension `no`; say which did.

        None of them is frozen yet. Of all others everything is as before. It is not believed,
        but measured, what they keep.
        """
        ...

    async def undo(self, task: Here) -> None:
        """Let a task have its memory again. It was thawed; it may have given back nothing.

        One that has to end is not asked: others may have the memory by now.
        """
        ...
