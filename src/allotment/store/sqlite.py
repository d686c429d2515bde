"""The event log in one SQLite file: the embedded default.

WAL with synchronous=FULL: what `append` returned from survives a power cut. One connection
writes, from one thread at a time; readers have their own and never wait for it.
"""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa

from allotment.model.errors import StoreError
from allotment.model.events import Record
from allotment.model.ids import JobId, Seq
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Instant
from allotment.rights.writing import sync
from allotment.service.ports import ArchivedJob, JobFilter, Snapshot
from allotment.store import codec, queries
from allotment.store.backup import checked_copy, copy_database
from allotment.store.chain import End, snapshot_digest
from allotment.store.connections import connect_writer, make_readers
from allotment.store.faults import explained
from allotment.store.migrate import upgrade
from allotment.store.opening import Opening, begin, beside, make_sure
from allotment.store.queries import in_range
from allotment.store.rows import archived_job, archived_row, archived_state

FILE = "allot.db"

FETCH = 2_000
"""Events read at once."""

PRUNE_JOBS, PRUNE_EVENTS = 100, 1_000
"""How many are forgotten in one transaction: some 10 ms."""

BREATH_S = 0.001
"""Between two of them, so that others who want to write get their turn."""


class SqliteStore:
    """The embedded store. Open it with `open`; close it when done.

    May be used by several threads. Another process may read the same file, not write.
    """

    def __init__(
        self, path: Path, writer: sqlite3.Connection, readers: sa.Engine, opening: Opening
    ) -> None:
        self.path = path
        self._writer = writer
        self._writing = threading.RLock()
        self._readers = readers
        self._closing = False
        """What takes long breaks off, so that nobody waits for it."""
        self._end = opening.end
        self._read = opening.snapshot
        """The newest snapshot, which was read to be checked: a start need not read it again."""
        self._marker = opening.marker
        self.loss = opening.loss
        """What an administrator went on without; None if nothing is missing."""

    @classmethod
    def open(cls, folder: Path, *, accept_loss: bool = False) -> Self:
        """Open, or make, the log in this folder. Raises StoreError that says what to do.

        A log that lost its end is refused, and left as it is. With `accept_loss` it goes on
        after the last event that is whole, and a copy of what was there is kept beside.
        """
        path = folder / FILE
        with explained("the event log", path), contextlib.ExitStack() as undo:
            looked = make_sure(path, accept_loss)
            if looked.found is None:
                upgrade(path)
            writer = connect_writer(path)
            undo.callback(writer.close)
            readers = make_readers(path)
            undo.callback(readers.dispose)
            store = cls(path, writer, readers, begin(path, writer, looked))
            undo.pop_all()
        return store

    # ── writing ─────────────────────────────────────────────────────────────────────────

    def append(self, records: Sequence[Record], archived: Sequence[ArchivedJob] = ()) -> None:
        jobs = [archived_row(job) for job in archived]
        with self._writing:
            rows = codec.rows_of(records, self._end.digest)
            for place, record in enumerate(records, self._end.seq + 1):
                if record.seq != place:
                    raise StoreError(
                        f"event {record.seq} where {place} is next; nothing was added"
                    )
            with self._transaction() as writer:
                writer.executemany(queries.ADD_EVENT, rows)
                if jobs:
                    writer.executemany(queries.KEEP_ARCHIVED, jobs)
            if rows:
                self._end = End(records[-1].seq, rows[-1][-1], records[-1].at)
                self._marker.advance(self._end)

    def save_snapshot(self, snapshot: Snapshot) -> None:
        with self._transaction() as writer:
            seq, data = snapshot.seq, snapshot.data
            if seq > self._end.seq:
                raise StoreError(
                    f"a snapshot of event {seq}, and the log ends at {self._end.seq}; it was "
                    "not kept"
                )
            self._read = None
            chain = self._digest_at(seq)
            row = (seq, data, chain, snapshot_digest(seq, chain, data))
            writer.execute(queries.KEEP_SNAPSHOT, row)
            writer.execute(queries.DROP_OLD_SNAPSHOTS)

    def _digest_at(self, seq: Seq) -> int | None:
        """Find the checksum of an event; None if it was forgotten."""
        if seq == self._end.seq:
            return self._end.digest
        row = self._writer.execute(queries.DIGEST, (seq,)).fetchone()
        return row[0] if row else None

    def prune(self, finished_before: Instant) -> Sequence[JobId]:
        (newest,) = self._first(queries.LAST_SNAPSHOT) or (None,)
        wanted = {"before": in_range(finished_before), "after": newest or 0}
        old = sorted(JobId(row[0]) for row in self._all(queries.FORGETTABLE, wanted))
        gone: list[JobId] = []
        while len(gone) < len(old) and not self._closing:
            gone += self._forget_some(old[len(gone) : len(gone) + PRUNE_JOBS])
            time.sleep(BREATH_S)
        return gone

    def _forget_some(self, jobs: Sequence[JobId]) -> list[JobId]:
        """Forget what fits one transaction; return which jobs are gone altogether.

        Only a job with more events than that is there by halves meanwhile.
        """
        forgotten, gone = 0, list[JobId]()
        with self._transaction() as writer:
            for job in jobs:
                wanted = (job, PRUNE_EVENTS)
                events = writer.execute(queries.FORGET_EVENTS, wanted).rowcount
                if events < PRUNE_EVENTS:
                    writer.execute(queries.FORGET_JOB, (job,))
                    gone.append(job)
                forgotten += events
                if forgotten >= PRUNE_EVENTS:
                    break
            writer.execute(queries.COUNT_FORGOTTEN, (forgotten,))
        return gone

    @contextlib.contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with self._writing, explained("the event log", self.path):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    # ── reading ─────────────────────────────────────────────────────────────────────────

    def last_seq(self) -> Seq:
        return self._end.seq

    def snapshot(self) -> Snapshot | None:
        read, self._read = self._read, None
        if read is not None:
            return read
        row = self._first(queries.NEWEST_SNAPSHOT)
        return Snapshot(Seq(row[0]), row[1]) if row else None

    def records(self, after: Seq = Seq(0), limit: int | None = None) -> Iterator[Record]:
        while limit is None or limit > 0:
            size = FETCH if limit is None else min(FETCH, limit)
            rows = self._events(queries.RECORDS, {"after": in_range(after), "most": size})
            yield from codec.records_of(rows)
            if len(rows) < size:
                return
            after = Seq(rows[-1][0])
            limit = None if limit is None else limit - size

    def records_of(
        self, job: JobId, after: Seq = Seq(0), limit: int = 1000
    ) -> Sequence[Record]:
        wanted = {"job": in_range(job), "after": in_range(after), "most": limit}
        return list(codec.records_of(self._events(queries.RECORDS_OF_JOB, wanted)))

    def archived(self, job: JobId) -> ArchivedJob | None:
        row = self._first(queries.ARCHIVED, {"job": in_range(job)})
        return archived_job(row) if row else None

    def archived_by_key(self, user: str, key: str) -> ArchivedJob | None:
        row = self._first(queries.ARCHIVED_BY_KEY, {"user": user, "key": key}) if key else None
        return archived_job(row) if row else None

    def archived_page(self, which: JobFilter, limit: int) -> Sequence[ArchivedJob]:
        pages = [self._all(query) for query in queries.archived_pages(which, limit)]
        found = sorted((row for page in pages for row in page), key=lambda row: -row.id)
        return [archived_job(row) for row in found[:limit]]

    def archived_states(self, first: JobId, last: JobId) -> Mapping[JobId, JobState]:
        wanted = {"first": in_range(first), "last": in_range(last)}
        rows = self._all(queries.ARCHIVED_STATES, wanted)
        return {JobId(id_): archived_state(id_, state) for id_, state in rows}

    def _events(
        self, query: sa.Executable, values: Mapping[str, object]
    ) -> Sequence[codec.Row]:
        """Return rows as the driver makes them: a log is long, and no column is named."""
        with explained("the event log", self.path), self._readers.connect() as connection:
            cursor = connection.execute(query, values).cursor
            return cursor.fetchall() if cursor is not None else ()

    def _all(
        self, query: sa.Executable, values: Mapping[str, object] | None = None
    ) -> Sequence[Any]:
        with explained("the event log", self.path), self._readers.connect() as connection:
            return connection.execute(query, values).fetchall()

    def _first(
        self, query: sa.Executable, values: Mapping[str, object] | None = None
    ) -> Any | None:
        return next(iter(self._all(query, values)), None)

    # ── keeping ─────────────────────────────────────────────────────────────────────────

    def backup(self, target: str, *, without_secrets: bool = False) -> None:
        copy_database(self.path, Path(target), without_secrets=without_secrets)

    def close(self) -> None:
        self._closing = True
        with self._writing:
            self._marker.close()
            self._readers.dispose()
            self._writer.close()


def restore(source: Path, folder: Path) -> Seq:
    """Put a backup in place of a missing log; return its last event's number.

    The caller holds the folder's lock. Nothing is overwritten, and nothing is there before
    the backup was checked. Raises StoreError.
    """
    target = folder / FILE
    for found in (target, *beside(target)):
        if found.exists():
            raise StoreError(f"{found} exists already; move it away first, nothing was changed")
    part = folder / f"{FILE}.part"
    with explained("cannot restore to", target):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        part.unlink(missing_ok=True)
        last = checked_copy(source, part)
        part.rename(target)
        sync(folder)
    return last
