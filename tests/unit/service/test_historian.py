"""Reading the whole log for an answer, beside everything else."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from allotment.model import events as e
from allotment.model.errors import Code, Rejected
from allotment.model.ids import JobId, Seq
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Instant
from allotment.service.history import PIECE, Historian
from allotment.service.ports import ArchivedJob, Snapshot
from allotment.service.statistics import statistics_of
from allotment.service.statistics_view import Statistics
from tests.support.builders import a_config, a_tenant
from tests.support.memory_store import MemoryStore
from tests.unit.metrics.history import History

JOBS = 300


def a_log() -> History:
    """One job after the other, ten milliseconds each."""
    log = History().at(1).configure(a_config(a_tenant("t", 8)))
    for job in range(1, JOBS + 1):
        log.at(10 * job).submit(job).start(job).at(10 * job + 10).succeed(job)
    return log


def a_store(log: History) -> MemoryStore:
    store = MemoryStore()
    archived = [
        ArchivedJob(
            JobId(job), "job", "t", "me", JobState.SUCCEEDED, Instant(0), Instant(10 * job + 10)
        )
        for job in range(1, JOBS + 1)
    ]
    store.append(log.records, archived)
    return store


def ask(store: MemoryStore, since: int = 0, until: int = 10_000) -> Statistics:
    return asyncio.run(Historian(store).statistics(since, until, JOBS + 1))


def test_it_reads_all_there_is_piece_by_piece() -> None:
    log = a_log()
    assert len(log.records) > 3 * PIECE
    assert ask(a_store(log)) == statistics_of(log.records, Instant(0), Instant(10_000))


def test_where_history_was_forgotten_it_begins_later() -> None:
    log = a_log()
    store = a_store(log)
    store.save_snapshot(Snapshot(log.records[-1].seq, b""))
    assert len(store.prune(Instant(2000))) == 198
    found = ask(store)
    assert (found.known_since, found.since, found.forgotten) == (2000, 2000, 198)
    assert found.numbers.jobs == JOBS - 198
    assert ask(store, since=2500).since == 2500
    with pytest.raises(Rejected) as refused:
        ask(store, until=1500)
    assert refused.value.code is Code.NOT_FOUND
    store.prune(Instant(1 << 40))
    with pytest.raises(Rejected, match="forgotten"):
        ask(store)


def test_a_stretch_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(Rejected) as refused:
        ask(MemoryStore(), 5, 5)
    assert refused.value.code is Code.BAD_REQUEST


class SlowStore(MemoryStore):
    """Says when it is read, and reads on when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.read: Callable[[], None] = lambda: None
        self.may = threading.Semaphore(0)
        self.pieces = 0

    def records(self, after: Seq = Seq(0), limit: int | None = None) -> Iterator[e.Record]:
        self.pieces += 1
        self.read()
        self.may.acquire()
        return super().records(after, limit)


def test_nothing_is_read_for_somebody_who_went_away() -> None:
    store = SlowStore()
    store.append(a_log().records)

    async def story() -> None:
        historian, loop, reads = Historian(store), asyncio.get_running_loop(), asyncio.Event()
        store.read = lambda: loop.call_soon_threadsafe(reads.set) and None
        first = asyncio.ensure_future(historian.statistics(0, 10_000, 0))
        await reads.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        for _ in range(20):
            store.may.release()

    asyncio.run(story())  # ends only when its threads have
    assert store.pieces == 1
