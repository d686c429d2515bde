"""A job that is told to stop stops, whatever its engine makes of its orders."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from allotment.model import commands as c
from allotment.model.errors import BackendError, EngineAway
from allotment.model.ids import Actor, JobId, TaskKey
from allotment.model.lifecycle import JobState as S
from allotment.model.quantity import Millis
from allotment.model.reasons import StopCause
from allotment.service import dispatcher
from allotment.service.ports import GangLaunch, Refused
from allotment.service.service import Service
from tests.integration.service.test_service import a_script, running, until
from tests.support.fake_backend import FakeBackend

ME = Actor("me", None, ())


class Away(FakeBackend):
    """Does not answer a launch, having started the tasks that it says."""

    def __init__(self, starts: int) -> None:
        super().__init__()
        self.starts, self.asked = starts, 0

    async def launch(self, gang: GangLaunch) -> Refused:
        self.asked += 1
        await super().launch(gang.only(gang.tasks[: self.starts]))
        raise EngineAway("no answer")


class Deaf(FakeBackend):
    """Takes no order to stop, the first few times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times, self.asked = times, 0

    async def stop(
        self, key: TaskKey, signal: str, grace_ms: Millis, cause: StopCause | None = None
    ) -> None:
        self.asked += 1
        if self.asked <= self.times:
            raise BackendError("not now")
        await super().stop(key, signal, grace_ms, cause)


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr(dispatcher, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(dispatcher, "STOP_AGAIN_S", 0.01)


async def cancelled(service: Service, is_time: Callable[[JobId], bool], tasks: int = 1) -> None:
    """Cancel a job when it is time to, and wait for its end."""
    spec = a_script("fake forever", 1)
    if tasks > 1:
        role = msgspec.structs.replace(spec.roles[0], count=tasks)
        spec = msgspec.structs.replace(spec, roles=(role,))
    job = (await service.submit(c.SubmitJob(spec), ME)).id
    await until(lambda: is_time(job))
    await service.act(c.CancelJob(job), ME)
    await until(lambda: service.state.jobs[job].state is S.CANCELLED)


@pytest.mark.parametrize("starts", [0, 1, 2], ids=["none", "one", "all"])
def test_a_job_whose_launch_is_not_answered_can_be_cancelled(
    tmp_path: Path, starts: int
) -> None:
    async def story() -> None:
        backend = Away(starts)
        async with running(tmp_path, backend) as service:
            await cancelled(service, lambda _: backend.asked > 2, tasks=2)
            asked = backend.asked
            assert len(backend.tasks) == starts
            await cancelled(service, lambda _: backend.asked > asked)

    asyncio.run(story())


def test_an_order_to_stop_is_given_until_it_is_taken(tmp_path: Path) -> None:
    async def story() -> None:
        backend = Deaf(3 * dispatcher.TRIES + 1)
        async with running(tmp_path, backend) as service:
            with capture_logs() as logs:
                await cancelled(service, lambda job: service.state.jobs[job].state is S.RUNNING)
            assert backend.asked == backend.times + 1
            told = [log for log in logs if "told again" in log["event"]]
            assert [log["why"] for log in told] == ["not now"]

    asyncio.run(story())
