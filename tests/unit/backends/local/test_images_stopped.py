"""A task that is told to stop while its image comes ends, however soon it is told."""

import asyncio
from pathlib import Path

import pytest

from allotment.backends.local.backend import LocalBackend
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey
from allotment.model.quantity import NOTHING, Millis
from allotment.model.reasons import StopCause
from allotment.model.reports import Seen, TaskReport
from allotment.service.ports import Binding, GangLaunch, ImageWish, Report, TaskLaunch

KEY = TaskKey(JobId(1), AttemptNo(2), TaskIndex(0))
TASK = TaskLaunch(KEY, "main.0", Binding("vm"), ("true",), (), NOTHING)
GANG = GangLaunch((TASK,), "/", image="h/x", image_wish=ImageWish("h/x", "ann", "/"))


class Slow:
    async def ready(self, wish: ImageWish) -> None:
        await asyncio.Event().wait()


@pytest.mark.parametrize("turns", range(3))
def test_a_stop_right_after_the_launch_is_told_as_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    reports: list[Report] = []
    backend = LocalBackend(tmp_path)
    monkeypatch.setattr(backend, "_sink", reports.append)
    monkeypatch.setattr(backend, "images", Slow)

    async def story() -> None:
        assert await backend.launch(GANG) == {}
        for _ in range(turns):
            await asyncio.sleep(0)
        await backend.stop(KEY, "SIGTERM", Millis(0), StopCause.CANCELLED)
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(story())
    coming, told = reports
    assert isinstance(coming, TaskReport)
    assert coming.held_up == "its image is being fetched"
    assert isinstance(told, TaskReport)
    assert (told.key, told.seen, told.stopped_for) == (KEY, Seen.ENDED, StopCause.CANCELLED)
