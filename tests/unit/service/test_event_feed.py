"""Every follower is told every event once, in order; the work for it is done once for all."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from allotment.engine.state import State
from allotment.model.errors import StoreError
from allotment.model.events import Record
from allotment.model.ids import JobId, Seq
from allotment.service.committer import Committer
from allotment.service.event_feed import EventFeed
from allotment.service.telemetry import Telemetry
from allotment.service.turns import Turns
from tests.contract.stores.stores import an_event, some_events
from tests.support.builders import POLICIES
from tests.support.memory_store import MemoryStore
from tests.support.patience import PATIENCE_S


class CountingStore(MemoryStore):
    """Counts how often the log is read; reading fails when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.broken = False

    def records(self, after: Seq = Seq(0), limit: int | None = None) -> Iterator[Record]:
        self.reads += 1
        if self.broken:
            raise StoreError("the disk is gone")
        return super().records(after, limit)


class Stage:
    """A log that is written, and a feed of it."""

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self.store = CountingStore()
        self.store.append(records)
        self.committer = Committer(self.store, Telemetry(), lambda _: None)
        self.feed = EventFeed(
            State(POLICIES), self.store, self.committer, lambda _: {}, Turns()
        )

    async def commit(self, records: Sequence[Record]) -> None:
        self.committer.add(records, ())
        await self.committer.wait(records[-1].seq)

    async def told(self, count: int, job: int | None = None, after: int = 0) -> list[int]:
        """Follow until so many events were told; give their numbers."""
        found: list[int] = []
        feed = self.feed.follow(JobId(job) if job else None, after, lambda: False)
        async with asyncio.timeout(PATIENCE_S):
            async for part in feed:
                found += [each.seq for each in part]
                if len(found) >= count:
                    break
        await feed.aclose()
        return found


def test_those_who_follow_share_the_work() -> None:
    async def story(followers: int) -> int:
        stage = Stage(some_events(1, 1, 2))
        working = [asyncio.ensure_future(stage.told(5, after=2)) for _ in range(followers)]
        for seq in range(3, 8):
            await asyncio.sleep(0)
            await stage.commit([an_event(seq)])
        assert await asyncio.gather(*working) == [[3, 4, 5, 6, 7]] * followers
        stage.committer.close()
        return stage.store.reads

    assert asyncio.run(story(100)) <= asyncio.run(story(1)) + 5


@pytest.mark.parametrize("kept", [1, 3, 1000])
@pytest.mark.parametrize("after", [0, 7, 250, 255])
def test_who_is_behind_what_is_kept_misses_nothing(
    monkeypatch: pytest.MonkeyPatch, kept: int, after: int
) -> None:
    monkeypatch.setattr("allotment.service.event_feed.MOST_KEPT", kept)

    async def story() -> None:
        stage = Stage(some_events(1, *[1, 2] * 125))
        following = [
            asyncio.ensure_future(stage.told(300 - after, after=after)),
            asyncio.ensure_future(stage.told(150 - after // 2, 2, after)),
        ]
        for seq in range(251, 301, 10):
            await asyncio.sleep(0)
            await stage.commit(some_events(seq, *[1, 2] * 5))
        everything, of_two = await asyncio.gather(*following)
        assert everything == list(range(after + 1, 301))
        assert of_two == [seq for seq in everything if seq % 2 == 0]
        stage.committer.close()

    asyncio.run(story())


def test_large_events_are_not_kept_and_told_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("allotment.service.event_feed.MOST_KEPT_BYTES", 1)

    async def story() -> None:
        stage = Stage()
        following = asyncio.ensure_future(stage.told(3))
        for seq in (1, 2, 3):
            await asyncio.sleep(0)
            await stage.commit([an_event(seq)])
        assert await following == [1, 2, 3]
        stage.committer.close()

    asyncio.run(story())


def test_a_log_that_cannot_be_read_ends_what_follows_it_and_the_next_begins_anew() -> None:
    async def story() -> None:
        stage = Stage()
        following = asyncio.ensure_future(stage.told(1))
        await asyncio.sleep(0)
        stage.store.broken = True
        await stage.commit([an_event(1)])
        with pytest.raises(StoreError, match="the disk is gone"):
            await following
        stage.store.broken = False
        assert await stage.told(1) == [1]
        stage.committer.close()

    asyncio.run(story())


def test_a_page_goes_on_piece_by_piece_to_its_limit() -> None:
    async def story(limit: int) -> list[int]:
        stage = Stage(some_events(1, *[1] * 350))
        return [each.seq async for part in stage.feed.past(None, 10, limit) for each in part]

    assert asyncio.run(story(250)) == list(range(11, 261))
    assert asyncio.run(story(1000)) == list(range(11, 351))
