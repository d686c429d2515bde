"""What takes long goes on beside the commits: nobody's submission waits for it."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from allotment.model import commands as c
from allotment.model.ids import JobId
from allotment.model.quantity import Instant
from allotment.service.ports import JobFilter
from allotment.store.sqlite import SqliteStore
from tests.contract.stores.stores import an_archived
from tests.integration.service.test_service import CONFIG, ME, a_script, made_service
from tests.support.memory_store import MemoryStore
from tests.support.patience import PATIENCE_S


class SlowStore(MemoryStore):
    """Copies, and forgets, when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.copying, self.forgetting = threading.Event(), threading.Event()
        self.may = threading.Event()

    def backup(self, target: str, *, without_secrets: bool = False) -> None:  # noqa: ARG002 - the port's
        self.copying.set()
        assert self.may.wait(PATIENCE_S)

    def prune(self, finished_before: Instant) -> Sequence[JobId]:  # noqa: ARG002 - the port's
        self.forgetting.set()
        assert self.may.wait(PATIENCE_S)
        return []


def test_jobs_are_taken_while_a_copy_is_made_and_old_jobs_are_forgotten(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        store = SlowStore()
        service = made_service(tmp_path, store=store)
        try:
            await asyncio.wait_for(service.start(CONFIG), PATIENCE_S)
            copying = asyncio.ensure_future(service.backup("there"))
            for begun in (store.copying, store.forgetting):
                assert await asyncio.to_thread(begun.wait, PATIENCE_S)
            await asyncio.wait_for(
                service.submit(c.SubmitJob(a_script("fake")), ME), PATIENCE_S
            )
            assert not copying.done()
            store.may.set()
            await copying
        finally:
            store.may.set()
            await service.stop()

    asyncio.run(story())


def test_a_store_that_closes_does_not_wait_until_all_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allotment.store.sqlite.PRUNE_JOBS", 1)
    store = SqliteStore.open(tmp_path)
    store.append([], [an_archived(job) for job in range(1, 101)])
    monkeypatch.setattr("allotment.store.sqlite.time.sleep", lambda _: store.close())
    assert list(store.prune(Instant(9999))) == [1]
    with closing(SqliteStore.open(tmp_path)) as again:
        assert len(list(again.archived_page(JobFilter(), 1000))) == 99
