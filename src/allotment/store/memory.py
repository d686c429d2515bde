"""The event log in memory: for trying things out, and the slow obvious twin of the others."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from allotment.model.errors import StoreError
from allotment.model.events import Record
from allotment.model.ids import JobId, Seq
from allotment.model.quantity import Instant
from allotment.service.ports import ArchivedJob, JobFilter, Snapshot


class MemoryStore:
    """Keeps everything in lists; nothing survives the process."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._snapshots: list[Snapshot] = []
        self._archived: dict[JobId, ArchivedJob] = {}
        self._last = Seq(0)

    def append(self, records: Sequence[Record], archived: Sequence[ArchivedJob] = ()) -> None:
        for place, record in enumerate(records, self._last + 1):
            if record.seq != place:
                raise StoreError(f"event {record.seq} where {place} is next; nothing was added")
        self._records += records
        self._archived |= {job.id: job for job in archived}
        self._last = Seq(self._last + len(records))

    def last_seq(self) -> Seq:
        return self._last

    def snapshot(self) -> Snapshot | None:
        return self._snapshots[-1] if self._snapshots else None

    def save_snapshot(self, snapshot: Snapshot) -> None:
        kept = [old for old in self._snapshots if old.seq != snapshot.seq]
        self._snapshots = sorted([*kept, snapshot], key=lambda s: s.seq)[-2:]

    def records(self, after: Seq = Seq(0), limit: int | None = None) -> Iterator[Record]:
        found = [record for record in self._records if record.seq > after]
        return iter(found[:limit])

    def records_of(
        self, job: JobId, after: Seq = Seq(0), limit: int = 1000
    ) -> Sequence[Record]:
        mine = [r for r in self._records if r.job == job and r.seq > after]
        return mine[:limit]

    def archived(self, job: JobId) -> ArchivedJob | None:
        return self._archived.get(job)

    def archived_by_key(self, user: str, key: str) -> ArchivedJob | None:
        found = [j for j in self._archived.values() if key and (j.user, j.key) == (user, key)]
        return max(found, key=lambda job: job.id, default=None)

    def archived_page(self, which: JobFilter, limit: int) -> Sequence[ArchivedJob]:
        found = [job for job in self._archived.values() if _matches(job, which)]
        return sorted(found, key=lambda job: -job.id)[:limit]

    def prune(self, finished_before: Instant) -> Sequence[JobId]:
        gone = sorted(j.id for j in self._archived.values() if j.finished_at < finished_before)
        for job in gone:
            del self._archived[job]
        out = set(gone)
        self._records = [record for record in self._records if record.job not in out]
        return gone

    def backup(self, target: str) -> None:
        data = msgspec.msgpack.encode((self._records, list(self._archived.values())))
        try:
            with Path(target).open("xb") as file:
                file.write(data)
        except OSError as error:
            raise StoreError(f"cannot write the backup {target}: {error.strerror}") from error

    def close(self) -> None:
        """Nothing to let go of."""


def _matches(job: ArchivedJob, which: JobFilter) -> bool:
    return (
        (not which.tenant or job.tenant == which.tenant)
        and (not which.user or job.user == which.user)
        and (not which.name or job.name == which.name)
        and (not which.states or job.state in which.states)
        and (which.before is None or job.id < which.before)
    )
