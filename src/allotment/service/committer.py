"""Group commit: one thread writes, many wait.

Records are applied in memory at once and become durable in batches: whatever gathers while
one transaction is under way goes into the next. Nobody is answered, and no effect is
carried out, before the records it rests on are on disk. While the log cannot be written
(disk full, read-only) nothing is lost: the same batch is tried again until it is.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TypeVar

import structlog

from allotment.model.effects import AnyEffect
from allotment.model.errors import Code, Rejected, StoreError
from allotment.model.events import JobSubmitted, Record
from allotment.model.ids import JobId, Seq
from allotment.service.ports import ArchivedJob, Store
from allotment.service.telemetry import Telemetry

log = structlog.get_logger("allot.store")

T = TypeVar("T")

RETRY_S = 1.0
PATIENCE_S = 5.0


class Committer:
    """Makes records durable, in order, and releases what waited for them."""

    def __init__(
        self, store: Store, telemetry: Telemetry, release: Callable[[list[AnyEffect]], None]
    ) -> None:
        self._store = store
        self._telemetry = telemetry
        self._release = release
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._records: list[Record] = []
        self._in_hand: list[Record] = []
        """What is being written."""
        self._archived: list[ArchivedJob] = []
        self.leaving: dict[JobId, ArchivedJob] = {}
        """Jobs that left memory and are not yet on disk."""
        self._effects: list[AnyEffect] = []
        self._waiters: list[tuple[Seq, asyncio.Future[None]]] = []
        self._watchers: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None
        self.durable = self.taken = store.last_seq()
        """The newest record that is on disk, and the newest that was handed over at all."""
        self.trouble = ""
        """What keeps the log from being written; empty when all is well."""

    def add(
        self,
        records: Sequence[Record],
        effects: Sequence[AnyEffect],
        archived: Sequence[ArchivedJob] = (),
    ) -> None:
        """Take records that were applied, with the effects that depend on them."""
        self._records += records
        self._effects += effects
        self._archived += archived
        self.leaving |= {job.id: job for job in archived}
        if records:
            self.taken = records[-1].seq
        if self._records and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._write())
            self._task.add_done_callback(self._check)

    async def wait(self, seq: Seq) -> None:
        """Wait until this record is durable.

        Raises Rejected when the log is in trouble: what was recorded may yet come true.
        """
        if seq <= self.durable:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((seq, waiter))
        if not self.trouble:
            await waiter
            return
        try:
            await asyncio.wait_for(waiter, PATIENCE_S)
        except TimeoutError:
            raise _uncertain(self.trouble) from None

    def refuse_in_trouble(self) -> None:
        """Raise Rejected while the log cannot be written: nothing will be done."""
        if self.trouble:
            raise _unavailable(self.trouble)

    def pending(self, jobs: Collection[JobId]) -> Seq:
        """Return the last of these jobs' submissions that is not durable yet; 0 for none."""
        wanted, waiting = set(jobs), (*self._in_hand, *self._records)
        found = (
            r.seq for r in waiting if isinstance(r.event, JobSubmitted) and r.job in wanted
        )
        return max(found, default=Seq(0))

    def watch(self, event: asyncio.Event) -> None:
        """Set this event after every commit, until `unwatch`."""
        self._watchers.add(event)

    def unwatch(self, event: asyncio.Event) -> None:
        self._watchers.discard(event)

    async def idle(self) -> None:
        """Wait until nothing is left to write, or what is left cannot be written."""
        while self._task is not None and not self._task.done() and not self.trouble:
            await asyncio.wait((self._task,), timeout=RETRY_S)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do other work with the store, between two batches."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Drop what cannot be written: no client was told that it happened."""
        if self._task is not None:
            self._task.cancel()
        self._thread.shutdown()

    async def _write(self) -> None:
        while self._records:
            records, self._records = self._records, []
            self._in_hand = records
            effects, self._effects = self._effects, []
            archived, self._archived = self._archived, []
            await self._append(records, archived)
            self.durable, self._in_hand = records[-1].seq, []
            for job in archived:
                del self.leaving[job.id]
            self._release(effects)
            self._wake()

    async def _append(self, records: list[Record], archived: list[ArchivedJob]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = perf_counter()
            try:
                await loop.run_in_executor(self._thread, self._store.append, records, archived)
            except StoreError as error:
                self.trouble = str(error)
                self._fail_waiters()
                await asyncio.sleep(RETRY_S)
            else:
                self.trouble = ""
                self._telemetry.commits.add((perf_counter() - began) * 1e3)
                return

    def _check(self, task: asyncio.Task[None]) -> None:
        """Report aloud that writing ended by a bug of ours; nobody is to wait for ever."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.critical("the event log is no longer written", exc_info=error)
            self.trouble = f"a bug in Allotment: {error!r}; restart the service"
            self._fail_waiters()

    def _wake(self) -> None:
        left: list[tuple[Seq, asyncio.Future[None]]] = []
        for seq, waiter in self._waiters:
            if seq > self.durable:
                left.append((seq, waiter))
            elif not waiter.done():
                waiter.set_result(None)
        self._waiters = left
        for event in self._watchers:
            event.set()

    def _fail_waiters(self) -> None:
        for _, waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(_uncertain(self.trouble))
        self._waiters = []


def _unavailable(trouble: str) -> Rejected:
    return Rejected(
        Code.UNAVAILABLE,
        f"Nothing was done: the event log cannot be written: {trouble}",
        "No accepted job is lost, and running jobs continue. Try again when this is solved.",
    )


def _uncertain(trouble: str) -> Rejected:
    return Rejected(
        Code.UNCERTAIN,
        f"It is not known yet whether this is done: the event log cannot be written: {trouble}",
        "It is done as soon as the log can be written, unless the service ends before. Look "
        "again later.",
    )


def uncertain_submission(error: Rejected, key: str) -> Rejected:
    """Return how the submitter of a job finds out whether it was accepted."""
    return Rejected(
        Code.UNCERTAIN,
        error.message.replace("this is done", "the job is taken"),
        f"Ask later: allot show --key {key} (GET /v1/submissions?key={key}). Sent again with "
        "this Idempotency-Key it makes no second job.",
    )
