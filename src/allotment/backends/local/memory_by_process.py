"""Which processes have memory of a device, as NVML says, and whether that of one is gone."""

from collections.abc import Mapping
from typing import Any

import msgspec

from allotment.backends.local.device_watch import nvml
from allotment.model.quantity import MIB

SLACK = 64 * MIB
"""What the driver itself may take or give back meanwhile."""

MOST_LOOKS = 8


class Memory(msgspec.Struct, frozen=True):
    """What is used of a device, and by which processes; bytes."""

    used: int
    total: int
    of: Mapping[int, int]
    """Of each process that NVML shows; 0 where it does not say how much."""

    @property
    def base(self) -> int:
        """Return what no process is shown to have: the driver's own."""
        return self.used - sum(self.of.values())


def is_gone(pid: int, had: int, base: int, now: Memory) -> bool:
    """Whether a process has nothing left of a device, and others may have what it `had`.

    That it is no longer shown is not enough: what nobody is shown to have must be what it was
    before, too, up to a tenth of what is to be gone.
    """
    return pid not in now.of and now.base <= base + had // 10 + SLACK


def memory_of(uuid: str) -> Memory:
    """Ask NVML for a device, until the sum and its parts are of one moment.

    Raises `nvml.NVMLError`. Blocks: use a thread.
    """
    nvml.nvmlInit()  # Counted by the library: it may be open elsewhere.
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        of, memory = _by_process(handle), Memory(0, 0, {})
        for _ in range(MOST_LOOKS):
            found = nvml.nvmlDeviceGetMemoryInfo(handle)
            memory = Memory(int(found.used), int(found.total), of)
            if (of := _by_process(handle)) == memory.of:
                break
        return memory
    finally:
        nvml.nvmlShutdown()


def _by_process(handle: Any) -> Mapping[int, int]:
    shown = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return {int(each.pid): int(each.usedGpuMemory or 0) for each in shown}
