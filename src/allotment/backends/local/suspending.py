"""How a gang is suspended here: its ranks stop after one step, give memory back, and freeze.

No rank stops in the middle of a collective where all tell of their steps: they agree on one
through their supervisors, without a collective of their own. What cannot is frozen as it is.
All is asked of the supervisors, which know what is: so after a restart the same is asked again,
and nothing is done twice.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from time import monotonic, time_ns
from typing import Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from allotment.backends.local.agreeing import Said, agree, all_free
from allotment.backends.local.device_memory import DeviceMemory, Held, kept_of
from allotment.backends.local.ways import Here, Way
from allotment.backends.status import RunnerStatus
from allotment.backends.together import whole
from allotment.model.ids import TaskKey
from allotment.model.suspension import Grade, Suspension

ANSWER_S = 5.0
"""So long may a supervisor take to answer, on a busy machine."""
FREE_S = 60.0
"""What a job may take to give its memory back: 60 GB at 1 GB/s."""
AGAIN_S = 0.05
"""Files are the truth: they are read again, also where a nudge got lost."""
SUSPENDED, SUSPENDING = "suspended", "suspending"
"""Beside a task's status: how it is suspended; what it held before."""

_numbers = count(time_ns() // 1_000)


class Begun(msgspec.Struct, frozen=True):
    """How far a task's suspension has come, for a service that comes back in the middle."""

    no: int
    before: tuple[Held, ...] = ()
    """What it held of its devices when it began."""
    grade: Grade = Grade.FROZEN
    """How it is to be frozen, or was."""


class Runners(Protocol):
    """The supervisors of this machine."""

    def here(self, key: TaskKey) -> Here | None:
        """Return a task that runs."""
        ...

    def status(self, key: TaskKey) -> RunnerStatus | None:
        """Return what its supervisor wrote last."""
        ...

    def order(self, key: TaskKey, line: str) -> None:
        """Write to its supervisor."""
        ...

    def halt(self, key: TaskKey) -> None:
        """Freeze it, unless it is about to end."""
        ...


class Suspending:
    """One suspension of the tasks of a gang that are here."""

    def __init__(
        self,
        runners: Runners,
        memory: DeviceMemory | None,
        ways: Sequence[Way],
        news: asyncio.Event,
    ) -> None:
        """`ways` are tried where a job does not give its memory back; `news` is set when a
        supervisor wrote something."""
        self._runners, self._memory, self._ways, self._news = runners, memory, ways, news

    def begin(self, keys: Sequence[TaskKey]) -> int:
        """Ask all what they can do; what can do nothing is frozen by it. Return the number."""
        number = next(_numbers)
        verb = "ask" if self._ways else "suspend"
        for key in keys:
            self._runners.order(key, f"{verb} {number}")
        return number

    async def ask(self, keys: Sequence[TaskKey]) -> Said:
        """Return what all say of their ranks; what can do nothing is frozen by it."""
        return await self._answers(keys, self.begin(keys), ANSWER_S)

    async def stand(self, keys: Sequence[TaskKey], after: int, wait_s: float) -> Said:
        """Let all ranks stop after a step; return what is said in time."""
        number = next(_numbers)
        return await self._ask(keys, f"stand {number} {after}", number, wait_s)

    async def run(
        self, keys: Sequence[TaskKey], no: int, asked: int, frees: bool | None = None
    ) -> None:
        """Suspend them once they were asked; what came of it is in their folders then.

        `frees` says that ranks elsewhere belong to them: then it was agreed with those before
        whether all stand, and give memory back.
        """
        said = await self._answers(keys, asked, ANSWER_S)
        # Only now it is known which devices they have.
        tasks = [task for key in keys if (task := self._runners.here(key)) is not None]
        keys = [task.key for task in tasks]
        if all(self._is_done(task, no) for task in tasks):
            return
        begun = {task.key: _begun(task, no) for task in tasks}
        await self._note_before(tasks, begun)
        if frees is None:
            frees = await agree(keys, said, partial(self.stand, keys))
        if frees:
            _reach(begun, await self._free(keys), Grade.OFFLOADED)
        for way in self._ways:
            left = [task for task in tasks if self._is_left(task, begun[task.key])]
            if left:
                _reach(begun, await whole(way.free(left, no)), way.grade)
        for task in tasks:
            _write(task.folder / SUSPENDING, begun[task.key])
            self._runners.halt(task.key)
        await self._until(keys, lambda status: status.frozen, ANSWER_S)
        after = await self._measure(tasks)
        for task in tasks:
            was = begun[task.key]
            kept = kept_of(was.before, after.get(task.key, ()))
            if not self._is_frozen(task):
                kept = ()  # It may still take some again.
            _write(task.folder / SUSPENDED, Suspension(no, was.grade, kept))

    # ── its parts ───────────────────────────────────────────────────────────────────────

    def _is_done(self, task: Here, no: int) -> bool:
        how = suspension_in(task.folder)
        return how is not None and how.no == no and self._is_frozen(task)

    def _is_frozen(self, task: Here) -> bool:
        status = self._runners.status(task.key)
        return status is not None and status.frozen

    def _is_left(self, task: Here, begun: Begun) -> bool:
        """Whether a task still has its memory, and is not frozen with it."""
        status = self._runners.status(task.key)
        return begun.grade is Grade.FROZEN and status is not None and not status.frozen

    async def _note_before(self, tasks: Sequence[Here], begun: dict[TaskKey, Begun]) -> None:
        """Note what each holds, unless that was done when its suspension began."""
        fresh = [task for task in tasks if not begun[task.key].before]
        for key, before in (await self._measure(fresh)).items():
            begun[key] = replace(begun[key], before=before)
        for task in fresh:
            _write(task.folder / SUSPENDING, begun[task.key])

    async def _measure(self, tasks: Sequence[Here]) -> Mapping[TaskKey, tuple[Held, ...]]:
        memory, real = self._memory, [task for task in tasks if task.devices]
        return await asyncio.to_thread(memory.of, real) if memory and real else {}

    async def _free(self, keys: Sequence[TaskKey]) -> frozenset[TaskKey]:
        """Let those that stand give memory back, if all can; return which did."""
        said = self._said(keys)
        if not all_free(said):
            return frozenset()
        number = next(_numbers)
        said = await self._ask(keys, f"free {number}", number, FREE_S)
        return frozenset(key for key, each in said.items() if each.state == "freed")

    # ── talking with supervisors ────────────────────────────────────────────────────────

    async def _ask(
        self, keys: Sequence[TaskKey], line: str, number: int, wait_s: float
    ) -> Said:
        """Return what all answer in time to an order."""
        for key in keys:
            self._runners.order(key, line)
        return await self._answers(keys, number, wait_s)

    async def _answers(self, keys: Sequence[TaskKey], number: int, wait_s: float) -> Said:
        """Return what all say to an order in time."""

        def is_answered(status: RunnerStatus) -> bool:
            return status.frozen or (status.pause is not None and status.pause.heard == number)

        await self._until(keys, is_answered, wait_s)
        said = self._said(keys)
        return {key: each for key, each in said.items() if each.heard == number}

    def _said(self, keys: Sequence[TaskKey]) -> Said:
        found = {key: self._runners.status(key) for key in keys}
        return {
            key: status.pause
            for key, status in found.items()
            if status is not None and status.pause is not None and not status.frozen
        }

    async def _until(
        self, keys: Sequence[TaskKey], is_so: Callable[[RunnerStatus], bool], wait_s: float
    ) -> None:
        """Wait until something is so of all that run, or for so long."""
        end = monotonic() + wait_s
        while monotonic() < end:
            self._news.clear()
            statuses = [self._runners.status(key) for key in keys]
            if all(s is None or s.phase != "running" or is_so(s) for s in statuses):
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    await self._news.wait()


def _reach(begun: dict[TaskKey, Begun], keys: frozenset[TaskKey], grade: Grade) -> None:
    """Note the grade in which tasks are frozen next."""
    begun.update({key: replace(begun[key], grade=grade) for key in keys})


def _begun(task: Here, no: int) -> Begun:
    """Return how far a suspension has come."""
    found = _read(task.folder / SUSPENDING, Begun)
    return found if found is not None and found.no == no else Begun(no)


# ── what is written of it ───────────────────────────────────────────────────────────────


def suspension_in(folder: Path) -> Suspension | None:
    """Read how a task was suspended last; None where that is not known."""
    return _read(folder / SUSPENDED, Suspension)


def give_up(folder: Path, no: int) -> None:
    """Note that a task is only frozen."""
    _write(folder / SUSPENDED, Suspension(no, Grade.FROZEN))


Kind = TypeVar("Kind", bound=msgspec.Struct)


def _read(path: Path, kind: type[Kind]) -> Kind | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None


def _write(path: Path, value: msgspec.Struct) -> None:
    """Replace a file. On a full disk it is only known less well after a restart."""
    part = path.with_suffix(".new")
    with suppress(OSError):
        part.write_bytes(msgspec.json.encode(value))
        part.rename(path)
