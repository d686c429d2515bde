"""Reading the whole event log for an answer, beside the work of the service.

It is read and folded in a thread, in small pieces with a breath between them, so that the
event loop gets the interpreter when it wants it. How many read at a time is for the caller
to see to.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol, TypeVar

from allotment.metrics.fold import Folds
from allotment.metrics.reasons import EndOf, ReasonHistory, Stretch
from allotment.model import events as e
from allotment.model.errors import Code, Rejected
from allotment.model.ids import JobId, Seq
from allotment.model.quantity import Instant
from allotment.service.estimate_accuracy import accuracy_of
from allotment.service.estimate_view import Accuracy
from allotment.service.objectives import objectives_of
from allotment.service.objectives_view import ObjectivesReport
from allotment.service.ports import Store
from allotment.service.statistics import statistics_of
from allotment.service.statistics_view import Statistics
from allotment.service.usage import usage_of
from allotment.service.usage_view import By, UsageReport

PIECE = 200
"""Events read and folded before the next breath: some 2 ms."""

BREATH_S = 0.001


class Abandoned(Exception):
    """Nobody waits for the answer any longer."""


class Answer(Protocol):
    """An answer, and since when the log that it was made of is complete."""

    @property
    def known_since(self) -> int: ...

    @property
    def forgotten(self) -> int: ...


T = TypeVar("T", bound=Answer)
Tell = Callable[[Iterable[e.Record], Instant, Instant], T]


class Historian:
    """Answers questions about the whole log."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def statistics(self, since: int, until: int, next_job: int) -> Statistics:
        """Sum up a stretch of the log; where a part was forgotten, sum up the rest.

        Raises Rejected when nothing of the stretch is known, or when it holds too much.
        """
        return await self._ask(partial(statistics_of, next_job=next_job), since, until)

    async def usage(
        self, since: int, until: int, next_job: int, by: tuple[By, ...]
    ) -> UsageReport:
        """Sum up what was held in a stretch. Raises Rejected as `statistics` does."""
        return await self._ask(partial(usage_of, next_job=next_job, by=by), since, until)

    async def objectives(self, since: int, until: int, next_job: int) -> ObjectivesReport:
        """Measure the service objectives in a stretch. Raises Rejected as `statistics` does."""
        return await self._ask(partial(objectives_of, next_job=next_job), since, until)

    async def stretches(self, job: JobId, end_of: EndOf, now: Instant) -> list[Stretch]:
        """Return the life of one job: what it waited for, from when, and how long."""
        given_up = threading.Event()
        try:
            return await asyncio.to_thread(self._stretches, job, end_of, now, given_up)
        finally:
            given_up.set()

    def _stretches(
        self, job: JobId, end_of: EndOf, now: Instant, given_up: threading.Event
    ) -> list[Stretch]:
        fold = ReasonHistory(end_of)
        folds, after = Folds(fold), Seq(0)
        while piece := self._store.records_of(job, after, PIECE):
            if given_up.is_set():
                raise Abandoned
            folds.feed(piece)
            after = piece[-1].seq
            if len(piece) < PIECE:
                break
            time.sleep(BREATH_S)
        return fold.stretches(now)

    async def accuracy(self, since: int) -> Accuracy:
        """Measure how good the start estimates were that were given from `since` on."""
        given_up = threading.Event()
        try:
            return await asyncio.to_thread(accuracy_of, self._records(given_up), Instant(since))
        finally:
            given_up.set()

    async def _ask(self, tell: Tell[T], since: int, until: int) -> T:
        if since >= until:
            raise Rejected(
                Code.BAD_REQUEST, "The period is empty: `since` must be before `until`."
            )
        given_up = threading.Event()
        try:
            return await asyncio.to_thread(
                self._tell, tell, Instant(since), Instant(until), given_up
            )
        finally:
            given_up.set()

    def _tell(
        self, tell: Tell[T], since: Instant, until: Instant, given_up: threading.Event
    ) -> T:
        found = tell(self._records(given_up), since, until)
        known = Instant(found.known_since)
        if not found.forgotten or known <= since:
            return found
        if known >= until:
            raise Rejected(
                Code.NOT_FOUND,
                "Nothing is known of that time: its jobs were forgotten.",
                "How long history is kept is limits.keep_history of the configuration.",
            )
        return tell(self._records(given_up), known, until)

    def _records(self, given_up: threading.Event) -> Iterator[e.Record]:
        after = Seq(0)
        while piece := list(self._store.records(after, PIECE)):
            if given_up.is_set():
                raise Abandoned
            yield from piece
            after = piece[-1].seq
            time.sleep(BREATH_S)
