"""What memory of its devices each task holds now, by the driver's own count."""

import os
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from allotment.backends.local.device_watch import Known, Locate, nvml
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
        below = _families([task.supervisor for task in tasks])
        return {
            task.key: tuple(
                _held(looks[index], {*below[task.supervisor], *_inside(task, looks[index])})
                for index in task.devices
            )
            for task in tasks
            if task.devices
        }


Look = tuple[Mapping[int, int], int]
"""Bytes of one device by process, and in all."""


def _held(look: Look, members: Collection[int]) -> Held:
    by_pid, used = look
    own = sum(by_pid.get(pid, 0) for pid in members)
    return Held(-(-own // MIB), -(-used // MIB))


def _inside(task: Here, look: Look) -> set[int]:
    """Return the processes in a task's namespace with memory: `allot exec` is not below it."""
    by_pid, _ = look
    inside = _namespace(task.pid)
    is_own = inside in ("", _namespace("self"))
    return set() if is_own else {pid for pid in by_pid if _namespace(pid) == inside}


def _namespace(pid: int | str) -> str:
    """Return the PID namespace of a process; '' of none that lives."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115 - as procfs
    except OSError:
        return ""


def _looks(known: Known) -> dict[int, Look]:
    """Look at each device that answers."""
    found: dict[int, Look] = {}
    if not known:
        return found
    with suppress(nvml.NVMLError):
        nvml.nvmlInit()  # Counted by the library: it may be open elsewhere.
        try:
            for uuid, (_, index) in known.items():
                with suppress(nvml.NVMLError):
                    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
                    there = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
                    own = {int(one.pid): int(one.usedGpuMemory or 0) for one in there}
                    found[index] = own, int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
        finally:
            nvml.nvmlShutdown()
    return found


def _families(roots: Sequence[int]) -> dict[int, list[int]]:
    """Return each process with all below it. O(all processes)."""
    below: defaultdict[int, list[int]] = defaultdict(list)
    for pid in procfs.pids():
        if (found := procfs.stat(pid)) is not None:
            below[found.ppid].append(pid)
    families: dict[int, list[int]] = {}
    for root in roots:
        members = [root]
        for pid in members:  # It grows as we go: children of children follow.
            members += below.get(pid, ())
        families[root] = members
    return families
