"""What happened, as it is told: pages of the past, and what happens from now on.

What is told of an event is written once for all who follow: one task reads what was
committed, writes it down and wakes them, a few at a time. So a thousand followers cost a
submission little more than one. Who is further behind than what is kept reads the log.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from itertools import islice

import msgspec

from allotment.engine.state import State
from allotment.model import events as e
from allotment.model.ids import JobId, Seq
from allotment.service.committer import Committer
from allotment.service.launch import redacted
from allotment.service.ports import Store
from allotment.service.privacy import event_for_others
from allotment.service.queries import SpecWriter
from allotment.service.turns import Turns
from allotment.service.views import EventView
from allotment.service.wall import moved
from allotment.service.words import in_words

PIECE = 100
"""Events read at once."""
MOST_KEPT, MOST_KEPT_BYTES = 2_000, 16 << 20
"""How much of what was told last is kept for followers."""
GROUP, BREATH_S = 8, 0.008
"""So many followers are woken at once, and so long is the pause before the next."""

ENCODER = msgspec.json.Encoder()


class FeedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event as the feed sends it."""

    seq: Seq
    job: JobId | None
    json: bytes
    """An EventView."""
    for_others: bytes = b""
    """What is told to those who may not see all of the job; the same where it is empty."""


def _size(told: FeedEvent) -> int:
    return len(told.json) + len(told.for_others)


async def seen(
    source: AsyncGenerator[list[FeedEvent]], sees_all: Callable[[JobId], bool]
) -> AsyncGenerator[list[FeedEvent]]:
    """Yield of each event what a reader may see that does not see all of every job."""

    def cut(told: FeedEvent) -> FeedEvent:
        if not told.for_others or (told.job is not None and sees_all(told.job)):
            return told
        return FeedEvent(told.seq, told.job, told.for_others)

    async with aclosing(source):
        async for told in source:
            yield [cut(each) for each in told]


class EventFeed:
    """Events: past ones by the page, new ones as they come. Close its generators."""

    def __init__(
        self,
        state: State,
        store: Store,
        committer: Committer,
        write_spec: SpecWriter,
        turns: Turns,
    ) -> None:
        self._state = state
        self._store = store
        self._committer = committer
        self._write_spec = write_spec
        self._turns = turns
        self._followers: dict[asyncio.Event, None] = {}
        self._teller: asyncio.Task[None] | None = None
        self._newest: deque[FeedEvent] = deque()
        self._bytes = 0
        self._begin = self._end = Seq(0)
        """Every event after the one and up to the other is among the newest."""

    async def past(
        self, job: JobId | None, after: int, limit: int | None = None
    ) -> AsyncGenerator[list[FeedEvent]]:
        """Return durable events in order, of one job or of all."""
        left = limit
        while left is None or left > 0:
            size = PIECE if left is None else min(PIECE, left)
            records = await asyncio.to_thread(self._read, job, Seq(after), size)
            async for told in self._turns.over(records, self._tell):
                yield told
            if len(records) < size:
                return
            after = records[-1].seq
            left = None if left is None else left - size

    async def follow(
        self, job: JobId | None, after: int, is_over: Callable[[], bool]
    ) -> AsyncGenerator[list[FeedEvent]]:
        """Return events as they become durable; end after the last one when it `is_over`."""
        changed = asyncio.Event()
        # A job may be over in memory before its last event is durable, and so told.
        last: Seq | None = None
        self._enter(changed)
        try:
            while True:
                changed.clear()
                if after < self._begin:
                    until = self._committer.durable
                    async for told in self.past(job, after):
                        yield told
                        after = told[-1].seq
                    after = max(after, until)
                    continue
                found, after = self._after(job, after), max(after, self._end)
                if found:
                    yield found
                    continue
                if is_over():
                    last = last or self._state.seq
                    if after >= last:
                        return
                if self._teller is not None and self._teller.done():
                    self._teller.result()
                await changed.wait()
        finally:
            self._leave(changed)

    # ── those who follow ────────────────────────────────────────────────────────────────

    def _enter(self, changed: asyncio.Event) -> None:
        self._followers[changed] = None
        if self._teller is None or self._teller.done():
            self._newest.clear()
            self._bytes = 0
            self._begin = self._end = self._committer.durable
            self._teller = asyncio.get_running_loop().create_task(self._tell_newest())
            self._teller.add_done_callback(self._wake_all)

    def _leave(self, changed: asyncio.Event) -> None:
        del self._followers[changed]
        if not self._followers and self._teller is not None:
            self._teller.cancel()
            self._teller = None

    def _after(self, job: JobId | None, after: int) -> list[FeedEvent]:
        """Return what was told after an event that is not before the newest."""
        skipped = max(0, len(self._newest) - (self._end - after))  # there may be gaps
        return [
            told
            for told in islice(self._newest, skipped, None)
            if told.seq > after and (job is None or told.job == job)
        ]

    async def _tell_newest(self) -> None:
        changed = asyncio.Event()
        self._committer.watch(changed)
        try:
            while True:
                changed.clear()
                if self._end < self._committer.durable:
                    await self._tell_more()
                    await self._wake()
                else:
                    await changed.wait()
        finally:
            self._committer.unwatch(changed)

    async def _tell_more(self) -> None:
        durable = self._committer.durable
        records = await asyncio.to_thread(self._read, None, self._end, PIECE)
        async for told in self._turns.over(records, self._tell):
            self._keep(told)
        if len(records) < PIECE:
            self._end = max(self._end, durable)

    def _keep(self, more: list[FeedEvent]) -> None:
        self._newest += more
        self._bytes += sum(map(_size, more))
        self._end = more[-1].seq
        while len(self._newest) > MOST_KEPT or self._bytes > MOST_KEPT_BYTES:
            gone = self._newest.popleft()
            self._bytes -= _size(gone)
            self._begin = gone.seq

    async def _wake(self) -> None:
        for place, changed in enumerate(list(self._followers), 1):
            changed.set()
            if place % GROUP == 0:
                await asyncio.sleep(BREATH_S)

    def _wake_all(self, _: object) -> None:
        for changed in self._followers:
            changed.set()

    # ── telling ─────────────────────────────────────────────────────────────────────────

    def _read(self, job: JobId | None, after: Seq, size: int) -> list[e.Record]:
        if job is not None:
            return list(self._store.records_of(job, after, size))
        return list(self._store.records(after, size))

    def _tell(self, record: e.Record) -> FeedEvent:
        whole = ENCODER.encode(self._view(record, record.event))
        left = event_for_others(record.event)
        for_others = b"" if left is record.event else ENCODER.encode(self._view(record, left))
        return FeedEvent(record.seq, record.job, whole, for_others)

    def _view(self, record: e.Record, event: e.AnyEvent) -> EventView:
        state = self._state
        job = record.job
        secrets: tuple[tuple[str, str], ...] = ()
        detail = msgspec.to_builtins(moved(event, state.wall_ms))
        if isinstance(event, (e.JobSubmitted, e.JobEdited)):
            secrets = event.spec.secrets
            detail["spec"] = self._write_spec(event.spec)
            if event.spec.array is not None:
                detail["array"] = msgspec.to_builtins(event.spec.array)
        elif job is not None and job in state.jobs:
            secrets = state.jobs[job].spec.secrets
        return EventView(
            seq=record.seq,
            at=state.wall(record.at),
            kind=type(event).__name__,
            job=job,
            user=record.actor.user,
            groups=record.actor.groups,
            text=redacted(in_words(event, record.at, state), secrets),
            detail=detail,
        )
