"""The event log in one SQLite file: the embedded default.

WAL with synchronous=FULL: what `append` returned from survives a power cut. One connection
writes, from one thread at a time; readers have their own and never wait for it.
"""

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.pool import QueuePool

from allotment.model.errors import StoreError
from allotment.model.events import JobEvent, Record
from allotment.model.ids import JobId, Seq
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Instant
from allotment.service.ports import ArchivedJob, JobFilter, Snapshot
from allotment.store import codec
from allotment.store.migrate import upgrade
from allotment.store.schema import ARCHIVED_JOBS, EVENTS, SNAPSHOTS

FILE = "allot.db"
FETCH = 2_000
PRUNE_BATCH = 200

INSERT_EVENT = (
    'INSERT INTO events (seq, at, "user", uid, groups, job, kind, version, body) '
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
INSERT_ARCHIVED = (
    'INSERT INTO archived_jobs (id, name, tenant, "user", state, submitted_at, finished_at, '
    '"key", document) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)'
)
RECORD_COLUMNS = (
    EVENTS.c.seq,
    EVENTS.c.at,
    EVENTS.c.user,
    EVENTS.c.uid,
    EVENTS.c.groups,
    EVENTS.c.version,
    EVENTS.c.body,
)

T = TypeVar("T")


class SqliteStore:
    """The embedded store. Open it with `open`; close it when done."""

    def __init__(self, path: Path, writer: sqlite3.Connection, readers: sa.Engine) -> None:
        self.path = path
        self._writer = writer
        self._writing = threading.Lock()
        self._readers = readers
        self._last = self._read_last()

    @classmethod
    def open(cls, folder: Path) -> "SqliteStore":
        """Open, or make, the log in this folder. Raises StoreError that says what to do."""
        path = folder / FILE
        with _explained(path):
            upgrade(path)
            writer = _connect(path)
            url = sa.URL.create("sqlite", database=str(path))
            readers = sa.create_engine(url, poolclass=QueuePool, pool_size=4)
            event.listen(readers, "connect", _prepare_reader)
            return cls(path, writer, readers)

    # ── writing ─────────────────────────────────────────────────────────────────────────

    def append(self, records: Sequence[Record], archived: Sequence[ArchivedJob] = ()) -> None:
        rows = [_row(record) for record in records]
        for place, row in enumerate(rows, self._last + 1):
            if row[0] != place:
                raise StoreError(f"event {row[0]} where {place} is next; nothing was added")
        jobs = [_archived_row(job) for job in archived]
        with self._transaction() as writer:
            writer.executemany(INSERT_EVENT, rows)
            if jobs:
                writer.executemany(INSERT_ARCHIVED, jobs)
        self._last = Seq(self._last + len(rows))

    def save_snapshot(self, snapshot: Snapshot) -> None:
        with self._transaction() as writer:
            writer.execute(
                "INSERT OR REPLACE INTO snapshots (seq, data) VALUES (?, ?)",
                (snapshot.seq, snapshot.data),
            )
            writer.execute(
                "DELETE FROM snapshots WHERE seq NOT IN "
                "(SELECT seq FROM snapshots ORDER BY seq DESC LIMIT 2)"
            )

    def prune(self, finished_before: Instant) -> Sequence[JobId]:
        jobs = ARCHIVED_JOBS
        which = sa.select(jobs.c.id).where(jobs.c.finished_at < finished_before)
        gone = [JobId(row[0]) for row in self._all(which.order_by(jobs.c.id))]
        for start in range(0, len(gone), PRUNE_BATCH):
            batch = [(job,) for job in gone[start : start + PRUNE_BATCH]]
            with self._transaction() as writer:
                writer.executemany("DELETE FROM events WHERE job = ?", batch)
                writer.executemany("DELETE FROM archived_jobs WHERE id = ?", batch)
        return gone

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._writing, _explained(self.path):
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
        return self._last

    def _read_last(self) -> Seq:
        row = self._one(sa.select(sa.func.max(EVENTS.c.seq)))
        return Seq(row[0] or 0) if row else Seq(0)

    def snapshot(self) -> Snapshot | None:
        newest = sa.select(SNAPSHOTS.c.seq, SNAPSHOTS.c.data).order_by(SNAPSHOTS.c.seq.desc())
        row = self._one(newest.limit(1))
        return Snapshot(Seq(row[0]), row[1]) if row else None

    def records(self, after: Seq = Seq(0), limit: int | None = None) -> Iterator[Record]:
        while limit is None or limit > 0:
            size = FETCH if limit is None else min(FETCH, limit)
            which = sa.select(*RECORD_COLUMNS).where(EVENTS.c.seq > after)
            rows = self._all(which.order_by(EVENTS.c.seq).limit(size))
            for row in rows:
                yield codec.record_of(row)
            if len(rows) < size:
                return
            after = Seq(rows[-1][0])
            limit = None if limit is None else limit - size

    def records_of(
        self, job: JobId, after: Seq = Seq(0), limit: int = 1000
    ) -> Sequence[Record]:
        which = sa.select(*RECORD_COLUMNS).where(EVENTS.c.job == job, EVENTS.c.seq > after)
        rows = self._all(which.order_by(EVENTS.c.seq).limit(limit))
        return [codec.record_of(row) for row in rows]

    def archived(self, job: JobId) -> ArchivedJob | None:
        row = self._one(sa.select(ARCHIVED_JOBS).where(ARCHIVED_JOBS.c.id == job))
        return _archived_job(row) if row else None

    def archived_by_key(self, user: str, key: str) -> ArchivedJob | None:
        if not key:
            return None
        jobs = ARCHIVED_JOBS
        which = sa.select(jobs).where(jobs.c.user == user, jobs.c.key == key)
        row = self._one(which.order_by(jobs.c.id.desc()).limit(1))
        return _archived_job(row) if row else None

    def archived_page(self, which: JobFilter, limit: int) -> Sequence[ArchivedJob]:
        jobs = ARCHIVED_JOBS
        query = sa.select(jobs)
        for column, word in (
            (jobs.c.tenant, which.tenant),
            (jobs.c.user, which.user),
            (jobs.c.name, which.name),
        ):
            if word:
                query = query.where(column == word)
        if which.states:
            query = query.where(jobs.c.state.in_([state.value for state in which.states]))
        if which.before is not None:
            query = query.where(jobs.c.id < which.before)
        return [
            _archived_job(r) for r in self._all(query.order_by(jobs.c.id.desc()).limit(limit))
        ]

    def _all(self, query: sa.Select[Any]) -> Sequence[Any]:
        return self._ask(query, lambda result: result.fetchall())

    def _one(self, query: sa.Select[Any]) -> Any | None:
        return self._ask(query, lambda result: result.fetchone())

    def _ask(self, query: sa.Select[Any], take: Callable[[sa.CursorResult[Any]], T]) -> T:
        with _explained(self.path), self._readers.connect() as connection:
            return take(connection.execute(query))

    # ── keeping ─────────────────────────────────────────────────────────────────────────

    def backup(self, target: str) -> None:
        path = Path(target)
        if path.exists():
            raise StoreError(f"{path} exists already; name a file that does not")
        with _explained(path):
            source = _connect(self.path)
            try:
                source.execute("VACUUM INTO ?", (str(path),))
            finally:
                source.close()

    def close(self) -> None:
        self._readers.dispose()
        self._writer.close()


def restore(source: Path, folder: Path) -> Seq:
    """Put a backup in place of a missing log; give its last event's number.

    Refuses to overwrite, and checks the backup first. Raises StoreError.
    """
    target = folder / FILE
    if target.exists():
        raise StoreError(f"{target} exists already; move it away first, nothing was changed")
    if not source.is_file():
        raise StoreError(f"there is no backup {source}")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = target.with_suffix(".part")
    part.unlink(missing_ok=True)
    try:
        with _explained(source):
            copy = sqlite3.connect(f"file:{source}?mode=ro", uri=True)
            try:
                (verdict,) = copy.execute("PRAGMA integrity_check").fetchone()
                if verdict != "ok":
                    raise StoreError(f"{source} is damaged: {verdict}")
                copy.execute("VACUUM INTO ?", (str(part),))
            finally:
                copy.close()
            upgrade(part)
        part.rename(target)
    finally:
        part.unlink(missing_ok=True)
    store = SqliteStore.open(folder)
    try:
        last = store.last_seq()
        list(store.records(after=Seq(max(0, last - 1))))
    finally:
        store.close()
    return last


# ── connections ─────────────────────────────────────────────────────────────────────────


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=10
    )
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA journal_size_limit=67108864")
    path.chmod(0o600)
    return connection


def _prepare_reader(connection: sqlite3.Connection, record: object) -> None:  # noqa: ARG001
    connection.execute("PRAGMA query_only=ON")
    connection.execute("PRAGMA busy_timeout=10000")


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn the database's words into ours: what, where, what to do next."""
    try:
        yield
    except (sqlite3.Error, sa.exc.SQLAlchemyError, OSError) as error:
        raise StoreError(_explain(path, str(getattr(error, "orig", None) or error))) from error


HINTS = {
    "disk is full": "free space on that disk; the service goes on by itself",
    "readonly": "make the folder writable for the service's user",
    "read-only": "make the folder writable for the service's user",
    "unable to open": "check that the folder exists and is writable",
    "not a database": "the file is no event log: move it away, then `allot restore BACKUP`",
    "malformed": "the file is damaged: move it away, then `allot restore BACKUP`",
    "disk i/o error": "check the disk and its space (dmesg, df)",
    "locked": "another program has the file open; end it",
}


def _explain(path: Path, words: str) -> str:
    hint = next((hint for part, hint in HINTS.items() if part in words.lower()), "")
    return f"the event log {path}: {words}" + (f"; {hint}" if hint else "")


# ── rows ────────────────────────────────────────────────────────────────────────────────


def _row(record: Record) -> tuple[object, ...]:
    event_, actor = record.event, record.actor
    return (
        record.seq,
        record.at,
        actor.user,
        actor.uid,
        codec.join_groups(actor.groups),
        event_.job if isinstance(event_, JobEvent) else None,
        type(event_).__name__,
        codec.VERSION,
        codec.encode(event_),
    )


def _archived_row(job: ArchivedJob) -> tuple[object, ...]:
    return (
        job.id,
        job.name,
        job.tenant,
        job.user,
        job.state.value,
        job.submitted_at,
        job.finished_at,
        job.key,
        job.document,
    )


def _archived_job(row: Any) -> ArchivedJob:
    return ArchivedJob(
        id=JobId(row.id),
        name=row.name,
        tenant=row.tenant,
        user=row.user,
        state=JobState(row.state),
        submitted_at=Instant(row.submitted_at),
        finished_at=Instant(row.finished_at),
        key=row.key,
        document=row.document,
    )
