"""The device memory of one task, handed over and taken back; and found again after a crash.

Before anything is done to a process, it is written down which one: once its memory is away,
NVML does not show it any more.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from allotment.backends.local.device_watch import nvml
from allotment.backends.local.driver.calling import DriverTrouble, Helpers, Known
from allotment.backends.local.driver.holders import holders
from allotment.backends.local.driver.host_room import room_of
from allotment.backends.local.driver.steps import Wanted
from allotment.backends.local.memory_by_process import Memory, is_gone, memory_of
from allotment.backends.local.runner import procfs
from allotment.model.quantity import show_bytes
from allotment.rights.writing import write_whole

NOTE = "driver-checkpoint.json"
"""Beside a task's status: the process whose device memory is away, or was to be."""
GONE_S, LOOK_S = 10.0, 0.02
"""For how long NVML may go on to show memory that the driver says is away."""


class Process(Known, frozen=True):
    """A process that had memory of a device: how it is known again, and what it had."""

    uuid: str
    size: int
    base: int
    """What nobody was shown to have of the device."""


class Taken(msgspec.Struct, frozen=True):
    """What was taken away: bytes, and the milliseconds of each step."""

    size: int
    ms: Mapping[str, float]


class Handing:
    """Takes device memory of tasks away and gives it back. Asked again, it does no harm."""

    def __init__(self) -> None:
        self.helpers = Helpers()

    async def take(self, folder: Path, root: int, uuid: str, files: Sequence[str]) -> Taken:
        """Take the memory of the one process of a task that uses its one device.

        All its processes are at or below `root`; `files` are those of that device alone.
        Raises DriverTrouble, with the process as it was unless it is lost.
        """
        noted = await asyncio.to_thread(_to_take, folder, root, uuid, files)
        moved = await self.helpers.move(noted, Wanted.AWAY, noted.size, folder)
        began = time.monotonic()
        await _when_gone(noted)
        took = {**moved.ms, "seen_gone": round(1000 * (time.monotonic() - began), 1)}
        return Taken(noted.size, took)

    async def give_back(self, folder: Path) -> Mapping[str, float]:
        """Return what was taken, if anything was. Raises DriverTrouble: the task is lost."""
        noted = note_in(folder)
        if noted is None:
            return {}
        if procfs.start_time(noted.pid) != noted.start_time:
            raise DriverTrouble("the process whose memory was away is gone", is_lost=True)
        moved = await self.helpers.move(noted, Wanted.BACK, noted.size, folder)
        with contextlib.suppress(OSError):
            (folder / NOTE).unlink()
        return moved.ms

    async def close(self) -> None:
        """Let the helpers go."""
        await self.helpers.close()


def note_in(folder: Path) -> Process | None:
    """Return the process of a task whose memory is away, or was to be; None without one."""
    try:
        return msgspec.json.decode((folder / NOTE).read_bytes(), type=Process)
    except (OSError, msgspec.DecodeError):
        return None


def _to_take(folder: Path, root: int, uuid: str, files: Sequence[str]) -> Process:
    """Find whose memory to take, and note it. Raises DriverTrouble where that is not just one.

    Nobody has the device open whose memory is away: then it is the process that was noted.
    Not once that is gone: another user's may have its number.
    """
    pids, noted = holders(root, files), note_in(folder)
    if noted is not None and procfs.start_time(noted.pid) != noted.start_time:
        (folder / NOTE).unlink(missing_ok=True)
        noted = None
    if noted is not None and not pids:
        return noted
    if len(pids) != 1:
        raise DriverTrouble(
            f"{len(pids)} of its processes have the device open; it must be one"
        )
    found = _measured(pids[0], uuid)
    if holders(root, files) != pids:  # When it was measured, its number was perhaps another's.
        raise DriverTrouble("its processes come and go")
    room = room_of(found.pid)
    if room < found.size:
        raise DriverTrouble(
            f"it uses {show_bytes(found.size)} of the device, and may take {show_bytes(room)} "
            "more of the host's memory: ask for more `memory`"
        )
    write_whole(folder / NOTE, msgspec.json.encode(found))
    return found


def _measured(pid: int, uuid: str) -> Process:
    try:
        memory = memory_of(uuid)
    except nvml.NVMLError as error:
        raise DriverTrouble(f"NVML does not say what it uses: {error}") from None
    size = memory.of.get(pid, 0)
    if not size:
        raise DriverTrouble("NVML does not show what its process uses of the device")
    return Process(pid, procfs.start_time(pid), uuid, size, memory.base)


async def _when_gone(process: Process) -> Memory:
    """Wait until NVML shows the memory gone. Raises DriverTrouble if it does not."""
    end = time.monotonic() + GONE_S
    while True:
        now = await asyncio.to_thread(memory_of, process.uuid)
        if is_gone(process.pid, process.size, process.base, now):
            return now
        if time.monotonic() > end:
            raise DriverTrouble("the driver says it is away, and NVML still shows it")
        await asyncio.sleep(LOOK_S)
