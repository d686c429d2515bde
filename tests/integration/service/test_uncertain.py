"""While the books cannot be written, every answer is true: not done, or not known yet."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from allotment.model import commands as c
from allotment.model.errors import Code, Rejected, StoreError
from allotment.model.events import Record
from allotment.model.ids import Actor
from allotment.model.lifecycle import JobState
from allotment.service.ports import ArchivedJob
from allotment.service.service import Service
from allotment.service.views import Submitted
from allotment.store.sqlite import SqliteStore
from tests.integration.service.test_service import ME, a_script, running, until


class FullDisk(SqliteStore):
    """A store whose disk can be full."""

    is_full = False

    def append(self, records: Sequence[Record], archived: Sequence[ArchivedJob] = ()) -> None:
        if self.is_full:
            raise StoreError("the event log: the disk is full; free space on that disk")
        super().append(records, archived)


def a_wish(key: str = "") -> c.SubmitJob:
    return c.SubmitJob(a_script("fake forever"), key=key)


def test_refused_means_that_it_will_not_run_and_uncertain_can_be_asked(tmp_path: Path) -> None:
    async def story() -> None:
        store = FullDisk.open(tmp_path)
        async with running(tmp_path, store=store) as service:
            store.is_full = True
            wishes = (service.submit(a_wish(f"k{number}"), ME) for number in range(63))
            told = await asyncio.gather(*wishes, return_exceptions=True)
            doubtful = codes(told)
            with pytest.raises(Rejected) as refused:
                await service.submit(a_wish("late"), ME)
            assert refused.value.code is Code.UNAVAILABLE
            assert refused.value.message.startswith("Nothing was done: the event log cannot")
            with pytest.raises(Rejected) as held:
                await service.act(c.CancelJob(service.state.next_job), ME)
            assert held.value.code in (Code.UNAVAILABLE, Code.NO_SUCH_JOB)

            store.is_full = False
            await until(lambda: not service.trouble)
            for number, code in enumerate(doubtful):
                if code is Code.UNCERTAIN:
                    assert (await service.submission(f"k{number}", ME)).repeated
                else:
                    await not_taken(service, f"k{number}")
            await not_taken(service, "late")
            assert len(service.state.jobs) == doubtful.count(Code.UNCERTAIN)

    asyncio.run(story())


def codes(told: Sequence[Submitted | BaseException]) -> list[Code]:
    """Return what each was refused with, having found that each was."""
    found = [error.code for error in told if isinstance(error, Rejected)]
    assert len(found) == len(told)
    assert set(found) <= {Code.UNCERTAIN, Code.UNAVAILABLE}
    assert Code.UNCERTAIN in found
    return found


async def not_taken(service: Service, key: str) -> None:
    with pytest.raises(Rejected) as refused:
        await service.submission(key, ME)
    assert refused.value.code is Code.NOT_FOUND


def test_an_uncertain_answer_names_a_key_though_none_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allotment.service.committer.PATIENCE_S", 0.1)

    async def story() -> None:
        store = FullDisk.open(tmp_path)
        async with running(tmp_path, store=store) as service:
            store.is_full = True
            with pytest.raises(Rejected) as refused:
                await service.submit(a_wish(), ME)
            assert refused.value.code is Code.UNCERTAIN
            assert refused.value.message.startswith(
                "It is not known yet whether the job is tak"
            )
            key = refused.value.hint.split("--key ")[1].split(" ")[0]
            with pytest.raises(Rejected) as asked:
                await service.submission(key, ME)
            assert asked.value.code is Code.UNCERTAIN
            with pytest.raises(Rejected) as repeated:
                await service.submit(a_wish(key), ME)
            assert repeated.value.code is Code.UNCERTAIN

            store.is_full = False
            await until(lambda: not service.trouble)
            once = await service.submit(a_wish(key), ME)
            assert once.repeated
            assert once.id == (await service.submission(key, ME)).id
            assert len(service.state.jobs) == 1
            with pytest.raises(Rejected) as other:
                await service.submission(key, Actor("bob", 61002))
            assert other.value.code is Code.NOT_FOUND

    asyncio.run(story())


def test_what_was_durable_before_is_certain_all_the_time(tmp_path: Path) -> None:
    async def story() -> None:
        store = FullDisk.open(tmp_path)
        async with running(tmp_path, store=store) as service:
            made = await service.submit(a_wish("before"), ME)
            await until(lambda: service.state.jobs[made.id].state is JobState.RUNNING)
            await service.pipeline.committer.wait(service.state.seq)
            store.is_full = True
            with pytest.raises(Rejected):
                await service.submit(a_wish("after"), ME)
            assert (await service.submit(a_wish("before"), ME)).id == made.id
            assert (await service.submission("before", ME)).repeated
            store.is_full = False

    asyncio.run(story())
