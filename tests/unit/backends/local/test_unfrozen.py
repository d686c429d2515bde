"""What is suspended, and does not come to stand still."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from allotment.backends.local import suspending
from allotment.backends.local.device_memory import Held
from allotment.backends.local.suspending import Suspending, suspension_in
from allotment.backends.local.ways import Here
from allotment.backends.status import RunnerStatus
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey
from allotment.model.suspension import Grade, Suspension

KEY = TaskKey(JobId(1), AttemptNo(1), TaskIndex(0))


class Task:
    """A task that gives its memory back to whoever asks; it may never be frozen."""

    grade = Grade.DRIVER_CHECKPOINT

    def __init__(self, folder: Path, *, obeys: bool) -> None:
        self._here = Here(KEY, 1, 1, (0,), folder)
        self._obeys, self._is_freed, self._is_frozen = obeys, False, False

    def here(self, key: TaskKey) -> Here:
        return self._here

    def status(self, key: TaskKey) -> RunnerStatus:
        return RunnerStatus("running", pid=1, frozen=self._is_frozen)

    def order(self, key: TaskKey, line: str) -> None:
        pass

    def halt(self, key: TaskKey) -> None:
        self._is_frozen = self._obeys

    async def free(self, gang: Sequence[Here], no: int) -> frozenset[TaskKey]:
        self._is_freed = True
        return frozenset(task.key for task in gang)

    async def undo(self, task: Here) -> None:
        self._is_freed = False

    def of(self, tasks: Sequence[Here]) -> Mapping[TaskKey, tuple[Held, ...]]:
        held = Held(1, 1) if self._is_freed else Held(900, 900)
        return {task.key: (held,) for task in tasks}


@pytest.mark.parametrize(("obeys", "kept"), [(True, (1,)), (False, ())])
def test_nothing_is_lent_of_what_may_still_take_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obeys: bool, kept: tuple[int, ...]
) -> None:
    monkeypatch.setattr(suspending, "ANSWER_S", 0.01)
    task = Task(tmp_path, obeys=obeys)
    suspension = Suspending(task, task, (task,), asyncio.Event())
    asyncio.run(suspension.run([KEY], 1, 1))
    assert suspension_in(tmp_path) == Suspension(1, Grade.DRIVER_CHECKPOINT, kept)
