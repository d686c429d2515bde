"""What memory of its devices each task holds now, by the driver's own count."""

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from allotment.backends.local.device_watch import Known, Locate, nvml
from allotment.backends.local.memory_by_process import Memory, memory_of
from allotment.backends.local.runner import procfs
from allotment.backends.local.ways import Here
from allotment.model.ids import TaskKey
from allotment.model.suspension import MIB


class Held(msgspec.Struct, frozen=True):
    """What is held of one device, in MiB, rounded up."""

    own: int
    """By the processes of one task; 0 where the driver does not tell of them (containers)."""
    whole: int
    """By all."""


def kept_of(before: Sequence[Held], after: Sequence[Held]) -> tuple[int, ...]:
    """Return what a task keeps of each device, or more; empty where that is not known.

    Nothing is known if nothing was seen of it before.
    """
    if not before or len(before) != len(after) or not all(each.whole for each in before):
        return ()
    known = all(each.own for each in before)
    return tuple(each.own if known else each.whole for each in after)


class DeviceMemory(Protocol):
    """What counts the memory of devices."""

    def of(self, tasks: Sequence[Here]) -> Mapping[TaskKey, tuple[Held, ...]]:
        """Return what is held of each device; without tasks of which it cannot be said.

        Blocks: use a thread.
        """
        ...


class ByNvml:
    """Asks NVML which processes hold how much of each device."""

    def __init__(self, locate: Locate) -> None:
        self._locate = locate

    def of(self, tasks: Sequence[Here]) -> Mapping[TaskKey, tuple[Held, ...]]:
        looks = _looks(self._locate()) if tasks else {}
        if not all(index in looks for task in tasks for index in task.devices):
            return {}
        _, below = procfs.everything()
        found: dict[TaskKey, tuple[Held, ...]] = {}
        for task in (each for each in tasks if each.devices):
            family = procfs.family(task.supervisor, below)
            there = [looks[index] for index in task.devices]
            found[task.key] = tuple(
                _held(each, {*family, *_inside(task, each)}) for each in there
            )
        return found


def _held(there: Memory, members: Collection[int]) -> Held:
    own = sum(there.of.get(pid, 0) for pid in members)
    return Held(-(-own // MIB), -(-there.used // MIB))


def _inside(task: Here, there: Memory) -> set[int]:
    """Return the processes in a task's namespace with memory: `allot exec` is not below it."""
    inside = _namespace(task.pid)
    is_own = inside in ("", _namespace("self"))
    return set() if is_own else {pid for pid in there.of if _namespace(pid) == inside}


def _namespace(pid: int | str) -> str:
    """Return the PID namespace of a process; '' of none that lives."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115 - as procfs
    except OSError:
        return ""


def _looks(known: Known) -> dict[int, Memory]:
    """Look at each device that answers."""
    found: dict[int, Memory] = {}
    for uuid, (_, index) in known.items():
        with suppress(nvml.NVMLError):
            found[index] = memory_of(uuid)
    return found
