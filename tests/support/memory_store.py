"""The event log in memory: for trying things out, and the obvious twin of the others."""

import contextlib
import sqlite3
import threading
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from allotment.model.errors import StoreError
from allotment.model.events import Record
from allotment.model.ids import JobId, Seq
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Instant
from allotment.service.ports import ArchivedJob, JobFilter, Snapshot
from allotment.store import codec, queries
from allotment.store.backup import _new_file  # pyright: ignore[reportPrivateUsage]
from allotment.store.chain import START, snapshot_digest
from allotment.store.migrate import upgrade
from allotment.store.rows import archived_row
from allotment.store.withhold import withhold_secrets


class MemoryStore:
    """Keeps everything in lists; nothing survives the process but a backup.

    May be used by several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: list[Record] = []
        self._by_job: dict[JobId, list[Record]] = {}
        self._snapshots: list[Snapshot] = []
        self._archived: dict[JobId, ArchivedJob] = {}
        self._last = Seq(0)

    def append(self, records: Sequence[Record], archived: Sequence[ArchivedJob] = ()) -> None:
        with self._lock:
            for place, record in enumerate(records, self._last + 1):
                if record.seq != place:
                    raise StoreError(
                        f"event {record.seq} where {place} is next; nothing was added"
                    )
            self._records += records
            for record in records:
                if record.job is not None:
                    self._by_job.setdefault(record.job, []).append(record)
            self._archived |= {job.id: job for job in archived}
            self._last = Seq(self._last + len(records))

    def last_seq(self) -> Seq:
        return self._last

    def snapshot(self) -> Snapshot | None:
        with self._lock:
            return self._snapshots[-1] if self._snapshots else None

    def save_snapshot(self, snapshot: Snapshot) -> None:
        with self._lock:
            if snapshot.seq > self._last:
                raise StoreError(
                    f"a snapshot of event {snapshot.seq}, and the log ends at {self._last}; it "
                    "was not kept"
                )
            kept = [old for old in self._snapshots if old.seq != snapshot.seq]
            self._snapshots = sorted([*kept, snapshot], key=lambda s: s.seq)[-2:]

    def records(self, after: Seq = Seq(0), limit: int | None = None) -> Iterator[Record]:
        with self._lock:
            return iter(_after(self._records, after, limit))

    def records_of(
        self, job: JobId, after: Seq = Seq(0), limit: int = 1000
    ) -> Sequence[Record]:
        with self._lock:
            return _after(self._by_job.get(job, []), after, limit)

    def archived(self, job: JobId) -> ArchivedJob | None:
        return self._archived.get(job)

    def archived_by_key(self, user: str, key: str) -> ArchivedJob | None:
        found = [job for job in self._all_archived() if (job.user, job.key) == (user, key)]
        return max(found, key=lambda job: job.id, default=None) if key else None

    def archived_page(self, which: JobFilter, limit: int) -> Sequence[ArchivedJob]:
        found = [job for job in self._all_archived() if which.matches(job)]
        return sorted(found, key=lambda job: -job.id)[:limit]

    def archived_states(self, first: JobId, last: JobId) -> Mapping[JobId, JobState]:
        found = self._all_archived()
        return {job.id: job.state for job in found if first <= job.id <= last}

    def _all_archived(self) -> list[ArchivedJob]:
        with self._lock:
            return list(self._archived.values())

    def prune(self, finished_before: Instant) -> Sequence[JobId]:
        with self._lock:
            kept_from = self._snapshots[-1].seq if self._snapshots else 0
            gone = [
                job.id
                for job in self._archived.values()
                if job.finished_at < finished_before
                and not _after(self._by_job.get(job.id, []), kept_from, 1)
            ]
            for job in gone:
                del self._archived[job]
                self._by_job.pop(job, None)
            out = set(gone)
            self._records = [record for record in self._records if record.job not in out]
            return sorted(gone)

    def backup(self, target: str, *, without_secrets: bool = False) -> None:
        """Write a database, as the other stores do: `restore` makes a lasting log of it."""
        with self._lock:
            records, archived = self._records[:], list(self._archived.values())
            snapshots = self._snapshots[:]
        _write_database(
            Path(target), records, archived, snapshots, without_secrets=without_secrets
        )

    def close(self) -> None:
        """Do nothing: there are no files to close."""


def _after(records: list[Record], after: int, limit: int | None) -> list[Record]:
    start = bisect_right(records, after, key=lambda record: record.seq)
    return records[start:] if limit is None else records[start : start + limit]


def _write_database(
    target: Path,
    records: Sequence[Record],
    archived: Sequence[ArchivedJob],
    snapshots: Sequence[Snapshot],
    *,
    without_secrets: bool = False,
) -> None:
    """Write these rows to a new database, durable on return. Raises StoreError."""
    with _new_file(target):
        upgrade(target)
        with contextlib.closing(sqlite3.connect(target)) as connection, connection:
            rows = codec.rows_of(records, START.digest)
            connection.executemany(queries.ADD_EVENT, rows)
            connection.executemany(queries.KEEP_ARCHIVED, map(archived_row, archived))
            connection.executemany(
                queries.KEEP_SNAPSHOT, [_snapshot_row(kept, rows) for kept in snapshots]
            )
            last = max([0, *(row[0] for row in rows), *(kept.seq for kept in snapshots)])
            connection.execute(queries.COUNT_FORGOTTEN, (last - len(rows),))
        if without_secrets:
            withhold_secrets(target)


def _snapshot_row(
    kept: Snapshot, rows: Sequence[codec.Row]
) -> tuple[Seq, bytes, int | None, int]:
    chain = START.digest
    for row in rows:
        if row[0] > kept.seq:
            break
        chain = row[-1]
    return (kept.seq, kept.data, chain, snapshot_digest(kept.seq, chain, kept.data))
