"""A gang on several engines begins by one request to each of them, side by side."""

import asyncio
from collections.abc import Sequence

from allotment.backends.router import Router
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey
from allotment.model.quantity import NOTHING
from allotment.service.ports import Binding, GangLaunch, TaskLaunch
from tests.support.fake_backend import FakeBackend
from tests.support.patience import PATIENCE_S


def task(index: int, engine: str) -> TaskLaunch:
    key = TaskKey(JobId(1), AttemptNo(1), TaskIndex(index))
    return TaskLaunch(
        key, f"main.{index}", Binding("n", (), engine=engine), ("a",), (), NOTHING
    )


class Meets(FakeBackend):
    """Opens a barrier once another engine was asked to open its own."""

    def __init__(self, meeting: asyncio.Barrier) -> None:
        super().__init__()
        self._meeting = meeting
        self.opened: list[list[TaskKey]] = []

    async def open_barrier(self, keys: Sequence[TaskKey]) -> None:
        self.opened.append(list(keys))
        await self._meeting.wait()


def test_each_engine_is_asked_once_and_none_waits_for_another() -> None:
    async def story() -> None:
        meeting = asyncio.Barrier(2)
        engines = {name: Meets(meeting) for name in ("a", "b")}
        router = Router(engines, lambda: ())
        tasks = [task(index, "ab"[index % 2]) for index in range(6)]
        assert await router.launch(GangLaunch(tuple(tasks), "/w", at_barrier=True)) == {}
        async with asyncio.timeout(PATIENCE_S):
            await router.open_barrier([each.key for each in tasks])
        for name, engine in engines.items():
            mine = [each.key for each in tasks if each.binding.engine == name]
            assert engine.opened == [mine]

    asyncio.run(story())
