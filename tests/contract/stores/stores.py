"""Stores to ask, records to give them, and everything a store can say about itself."""

from collections.abc import Callable, Sequence
from pathlib import Path

from allotment.model.events import (
    AnyEvent,
    JobArchived,
    JobCancelled,
    JobHeld,
    NodeDrained,
    Record,
)
from allotment.model.ids import Actor, JobId, NodeId, Seq
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Instant
from allotment.service.ports import ArchivedJob, JobFilter, Store
from allotment.store.sqlite import SqliteStore
from tests.support.memory_store import MemoryStore

ALICE = Actor("alice", 1001, ("vision", "cn=ml,ou=x"))


def in_memory(_: Path) -> Store:
    return MemoryStore()


def in_sqlite(folder: Path) -> Store:
    folder.mkdir(exist_ok=True)
    return SqliteStore.open(folder)


STORES: dict[str, Callable[[Path], Store]] = {"memory": in_memory, "sqlite": in_sqlite}


def an_event(seq: int, job: int | None = None, actor: Actor = ALICE) -> Record:
    """Make a small event, of a job or of the cluster."""
    event: AnyEvent = JobHeld(JobId(job)) if job else NodeDrained(NodeId(seq), "dust")
    return Record(Seq(seq), Instant(1000 + seq), actor, event)


def some_events(first: int, *jobs: int | None) -> list[Record]:
    """Make an event of each of these jobs in turn, numbered from `first`."""
    return [an_event(seq, job) for seq, job in enumerate(jobs, first)]


def farewell(seq: int, job: int) -> list[Record]:
    """Make the two last events of a job."""
    last = (JobCancelled(JobId(job), "alice"), JobArchived(JobId(job)))
    return [
        Record(Seq(at), Instant(1000 + at), ALICE, event) for at, event in enumerate(last, seq)
    ]


def an_archived(
    job: int,
    *,
    name: str = "train",
    tenant: str = "vision",
    user: str = "alice",
    state: JobState = JobState.SUCCEEDED,
    finished_at: int = 2000,
    key: str = "",
) -> ArchivedJob:
    return ArchivedJob(
        id=JobId(job),
        name=name,
        tenant=tenant,
        user=user,
        state=state,
        submitted_at=Instant(finished_at - 100),
        finished_at=Instant(finished_at),
        key=key,
        document=b"\x00\xff of job %d" % job,
    )


def ids(jobs: Sequence[ArchivedJob]) -> list[int]:
    return [job.id for job in jobs]


def seqs(records: Sequence[Record]) -> list[int]:
    return [record.seq for record in records]


FILTERS = (
    JobFilter(),
    JobFilter(tenant="vision"),
    JobFilter(user="bob"),
    JobFilter(name="train", states=(JobState.FAILED, JobState.CANCELLED)),
    JobFilter(tenant="nlp", user="alice", before=JobId(4)),
)


def everything(store: Store, jobs: int = 6, users: Sequence[str] = ("alice", "bob")) -> object:
    """Ask a store all there is to ask; two with the same answers are the same."""
    last = store.last_seq()
    middle = Seq(last // 2)
    numbers = [JobId(job) for job in range(jobs + 1)]
    return {
        "last": last,
        "snapshot": store.snapshot(),
        "log": list(store.records()),
        "pieces": [list(store.records(middle, limit)) for limit in (None, 0, 1, 3)],
        "beyond": list(store.records(last)),
        "of_jobs": [
            list(store.records_of(job, after, limit))
            for job in numbers
            for after, limit in ((Seq(0), 1000), (middle, 2))
        ],
        "archived": [store.archived(job) for job in numbers],
        "keys": [store.archived_by_key(user, key) for user in users for key in ("", "k", "l")],
        "pages": [list(store.archived_page(which, n)) for which in FILTERS for n in (0, 2, 9)],
    }
