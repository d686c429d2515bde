"""Work that others made on an engine, as a service takes it: whose many holds up whom."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from time import monotonic

import msgspec
import pytest

from allotment.model import commands as c
from allotment.model.diagnosis import Diagnosis, Exit, Owner, RetryClass
from allotment.model.ids import Actor, TaskKey
from allotment.model.lifecycle import JobState as S
from allotment.model.quantity import Millis
from allotment.model.reasons import StopCause
from allotment.model.reports import Seen, TaskReport
from allotment.model.spec import GiveWay, Offered
from allotment.model.tenancy import Tenant
from allotment.service import offer_pace, offering
from allotment.service.clock import SteadyClock
from allotment.service.ports import GangLaunch, Offer, Refused
from allotment.service.service import Service
from allotment.store.sqlite import SqliteStore
from allotment.wiring.engines import Engines
from allotment.wiring.kept_config import Kept
from allotment.wiring.service import config_files
from tests.integration.service.test_service import until
from tests.support.builders import ALICE, POLICIES, a_config, a_job, a_tenant
from tests.support.fake_backend import FakeBackend

WHY = Diagnosis("pod_ended", "Its node refused it.", Owner.PLATFORM, RetryClass.NEVER, "")


class Offering(FakeBackend):
    """Has work of others, which its nodes refuse, or run for ever, or do not begin."""

    def __init__(self) -> None:
        super().__init__()
        self.offers: asyncio.Queue[Offer] = asyncio.Queue()
        self.refuses = True
        self.begins = True
        self.said: list[str] = []
        self.numbers = count(1)

    def offer(self, team: str, tenant: str = "lab", gpus: int = 0) -> None:
        number = next(self.numbers)
        pod = Offered(f"{team}/p{number}", f"uid-{number}")
        spec = msgspec.structs.replace(
            a_job().gpus(gpus).of(tenant).spec(), name=pod.name, offered=(pod,),
            on_eviction=GiveWay.CANCEL,
        )  # fmt: skip
        self.offers.put_nowait(Offer(str(number), Actor(f"kubernetes/{team}"), spec))

    async def launch(self, gang: GangLaunch) -> Refused:
        for task in gang.tasks:
            if self.refuses:
                lost = Exit(lost=True, platform_error="OutOfpods")
                self._hear(TaskReport(task.key, Seen.ENDED, exit=lost, diagnosis=WHY))
            elif self.begins:
                self._hear(TaskReport(task.key, Seen.RUNNING, 1))
        return {}

    async def stop(
        self, key: TaskKey, signal: str, grace_ms: Millis, cause: StopCause | None = None
    ) -> None:
        self._hear(TaskReport(key, Seen.ENDED, exit=Exit(signal=15), stopped_for=cause))

    def resume(self, tasks: Mapping[str, Mapping[TaskKey, Offered]]) -> None:
        """Nothing runs on."""

    async def next_offers(self) -> Sequence[Offer]:
        return [await self.offers.get()]

    def is_offered(self, offer: str) -> bool | None:
        return True

    def end_offer(self, offer: str) -> None:
        """It is not offered again."""

    def say(self, engine: str, offered: Sequence[Offered], reason: str, message: str) -> None:
        self.said += [f"{pod.name} {reason}" for pod in offered]

    def why_not_offered(self, name: str) -> str:
        return ""


@asynccontextmanager
async def running(folder: Path, backend: Offering, *tenants: Tenant) -> AsyncIterator[Service]:
    service = Service(
        store=SqliteStore.open(folder),
        backend=backend,
        clock=SteadyClock(),
        policies=POLICIES,
        state_dir=str(folder),
        write_spec=lambda spec: {"name": spec.name},
        version="test",
        config_files=config_files(Kept(folder), Engines(folder)),
    )
    await service.start(a_config(*(tenants or (a_tenant("lab", 4),))))
    try:
        yield service
    finally:
        await service.stop()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offering, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(offering, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(offering, "LONGEST_PAUSE_S", 0.01)


def states(service: Service) -> list[S]:
    return [job.state for job in service.state.jobs.values()]


def test_many_refused_offers_of_one_owner_put_out_none_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offering, "MOST_REFUSED", 3)

    async def story() -> None:
        backend = Offering()
        async with running(tmp_path, backend):
            for _ in range(10):
                backend.offer("crowd", "nobodys")
            backend.offer("team", "nobodys")
            await until(lambda: backend.said.count("team/p11 NoSuchTenant") > 2)

    asyncio.run(story())


def test_what_nodes_refuse_each_time_is_tried_after_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offer_pace, "FREE", 3)

    async def story() -> None:
        backend = Offering()
        async with running(tmp_path, backend) as service:
            for number in range(1, 5):
                backend.offer("crowd")
                await until(lambda n=number: states(service).count(S.FAILED) == n)
                await until(lambda n=number: not service._offering._jobs)
            for _ in range(3):
                backend.offer("crowd")
            backend.refuses = False
            backend.offer("team")
            await until(lambda: "crowd/p7 Unavailable" in backend.said)
            await until(lambda: states(service).count(S.RUNNING) == 1)
            assert len(states(service)) == 5
            monkeypatch.setattr(offering, "monotonic", lambda: monotonic() + 1e6)
            await until(lambda: states(service).count(S.RUNNING) == 4)

    asyncio.run(story())


def test_what_lost_its_place_before_it_had_it_is_a_job_again(tmp_path: Path) -> None:
    """Its pods are on no node, so they wait on: nobody would make them anew."""

    async def story() -> None:
        backend = Offering()
        backend.refuses = backend.begins = False
        async with running(tmp_path, backend, a_tenant("lab"), a_tenant("owner", 8)) as service:
            pipeline = service.pipeline
            backend.offer("team", gpus=8)
            await until(lambda: states(service) == [S.STARTING])
            owners = c.SubmitJob(a_job().gpus(8).of("owner").spec())
            await pipeline.together(lambda: pipeline.apply(owners, ALICE))
            await until(lambda: len(service.state.jobs) == 3)
            first, _, again = service.state.jobs.values()
            assert first.state is S.CANCELLED
            assert (again.key, again.spec) == (first.key, first.spec)
            assert again.state is S.QUEUED
            cancels = c.CancelJob(again.id)
            await pipeline.together(lambda: pipeline.apply(cancels, again.owner))
            await until(lambda: again.id not in service._offering._jobs)
            assert len(service.state.jobs) == 3, "what its user cancels is over"

    asyncio.run(story())
