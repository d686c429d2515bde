"""The grade of suspension that the driver carries out: for which tasks, and what is told of it.

A task is suspended so only where the node's test was passed and its job allows it, if it is one
process on one whole device. All other tasks are frozen, and keep what they have.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from allotment.backends.local.device_watch import Locate, nvml
from allotment.backends.local.driver.calling import DriverTrouble
from allotment.backends.local.driver.handing import Handing, Taken, note_in
from allotment.backends.local.driver.self_test import SelfTest, try_node
from allotment.backends.local.memory_by_process import memory_of
from allotment.backends.local.sharing import why_not_whole
from allotment.backends.local.ways import Here
from allotment.backends.together import whole
from allotment.model.ids import TaskKey
from allotment.model.suspension import Grade

ALLOWED = "by-driver"
"""Beside a task's status: its job allows it; the index of its device."""

LOST = "lost-by-driver"
"""Beside it: how its device memory could not be moved, for which it was ended."""
ROOM_S, ROOM_LOOK_S = 60.0, 0.25
"""For how long a task that goes on waits for others to have left its device."""

log = structlog.get_logger("allot.local")


class ByDriver:
    """Takes device memory of tasks here: a way to free it before they are frozen.

    `device_files` are those of each device, its own first. `control` gives a task an order.
    """

    grade = Grade.DRIVER_CHECKPOINT

    def __init__(
        self,
        folder: Path,
        device_files: Mapping[int, tuple[str, ...]],
        locate: Locate,
        control: Callable[[TaskKey, str], None],
    ) -> None:
        self._folder = folder
        self._files = device_files
        self._locate = locate
        self._control = control
        self._handing = Handing()
        self._testing: asyncio.Task[SelfTest] | None = None

    def start(self) -> None:
        """Begin the node's test, beside what else begins."""
        first = next(iter(self._locate()), "")
        if first:
            why_not = why_not_whole(first) if os.geteuid() == 0 else "it needs root's rights"
            test = try_node(self._folder, first, why_not)
            self._testing = asyncio.get_running_loop().create_task(test)

    async def close(self) -> None:
        """Let go of what is under way; what was taken stays taken."""
        if self._testing is not None:
            self._testing.cancel()
            await asyncio.gather(self._testing, return_exceptions=True)
        await self._handing.close()

    async def free(self, gang: Sequence[Here], no: int) -> frozenset[TaskKey]:
        """Take the memory of a single task that allows it; see `Way`."""
        if len(gang) != 1 or not is_allowed(gang[0].folder):
            return frozenset()
        (task,) = gang
        try:
            taken = await self._take(task)
        except DriverTrouble as trouble:
            if trouble.is_lost:
                self._lose(task, str(trouble))
            else:
                why = str(trouble)
                log.warning("a suspended task keeps its memory", task=str(task.key), why=why)
            return frozenset()
        told = {"task": str(task.key), "suspension": no, "bytes": taken.size, **taken.ms}
        log.info("device memory was taken away", **told)
        return frozenset((task.key,))

    def has_taken(self, task: Here) -> bool:
        """Whether a task's memory is away, or was to be."""
        return note_in(task.folder) is not None

    async def undo(self, task: Here) -> None:
        """Return to a task what was taken, once that fits; see `Way`.

        It may be cancelled while it waits for room, and not in the middle of the copy.
        """
        if not self.has_taken(task):
            return
        for _ in range(round(ROOM_S / ROOM_LOOK_S)):
            if await has_room(task.folder):
                break
            await asyncio.sleep(ROOM_LOOK_S)
        try:
            took = await whole(self._handing.give_back(task.folder))
            log.info("device memory was given back", task=str(task.key), **took)
        except DriverTrouble as trouble:
            self._lose(task, str(trouble))

    async def let_save(self, task: Here) -> None:
        """Return its memory to a task that has to end, if it fits: it may want to save it."""
        if note_in(task.folder) is not None and await has_room(task.folder):
            self._control(task.key, "thaw")
            with suppress(DriverTrouble):
                await self._handing.give_back(task.folder)

    def _lose(self, task: Here, words: str) -> None:
        """End a task that the driver left unusable; it is tried again from its checkpoint."""
        log.error("a task was lost by the driver", task=str(task.key), why=words)
        with suppress(OSError):
            (task.folder / LOST).write_text(f"its device memory could not be moved: {words}")
        self._control(task.key, "kill")

    async def _take(self, task: Here) -> Taken:
        """Take the device memory of a task. Raises DriverTrouble."""
        test = await asyncio.shield(self._testing) if self._testing is not None else None
        if test is None or not test.passed:
            raise DriverTrouble("the node's test was not passed: see allot doctor")
        (device,) = device_of(task.folder)
        uuid = next((uuid for uuid, at in self._locate().items() if at[1] == device), "")
        if not uuid:
            raise DriverTrouble(f"device {device} is not a real one")
        if why_not := await asyncio.to_thread(why_not_whole, uuid):
            raise DriverTrouble(why_not)
        files = self._files[device][:1]
        return await self._handing.take(task.folder, task.supervisor, uuid, files)


async def has_room(folder: Path) -> bool:
    """Whether what was taken of a task would fit its device now."""
    noted = note_in(folder)
    if noted is None:
        return True
    try:
        memory = await asyncio.to_thread(memory_of, noted.uuid)
    except nvml.NVMLError:
        return False
    return memory.total - memory.used > noted.size


def allow(folder: Path, devices: Sequence[int]) -> None:
    """Note of a task that it may be suspended so. If that fails, it is frozen instead."""
    if len(devices) == 1:
        with suppress(OSError):
            (folder / ALLOWED).write_text(str(devices[0]), encoding="ascii")


def is_allowed(folder: Path) -> bool:
    """Whether a task may be suspended so."""
    return bool(device_of(folder))


def device_of(folder: Path) -> tuple[int, ...]:
    """Return the device of a task that may be suspended so; nothing of any other."""
    try:
        return (int((folder / ALLOWED).read_text(encoding="ascii")),)
    except (OSError, ValueError):
        return ()


def how_lost(folder: Path) -> str:
    """Return how the driver left a task unusable; '' if it did not."""
    try:
        return (folder / LOST).read_text()
    except OSError:
        return ""
