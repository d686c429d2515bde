"""The event log alone: durable appends, reading, opening a long history, forgetting."""

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from allotment.model import events as e
from allotment.model.diagnosis import Exit, Usage
from allotment.model.ids import SYSTEM, Actor, AttemptNo, JobId, NodeId, Seq, TaskIndex
from allotment.model.ledger import Entitlement, Slot
from allotment.model.lifecycle import JobState
from allotment.model.quantity import GIB, Instant, Millis, Resources
from allotment.model.spec import JobSpec, TaskRole
from allotment.service.ports import ArchivedJob, JobFilter, Snapshot
from allotment.store.sqlite import FILE, SqliteStore
from bench.figures import Figure

SINGLES = 3_000
BATCHES = 1_000
EVENTS = 1_000_000
SNAPSHOT_BYTES = 2 << 20
OLD_JOBS = 20_000

ALICE = Actor("alice", 1001, ("vision", "staff"))
FIRST = AttemptNo(1)
SPEC = JobSpec(
    "train",
    "vision",
    (TaskRole("main", 1, "python train.py", Resources(1000, 4000, 16 * GIB)),),
    env=(("EPOCHS", "10"),),
)
PER_JOB = 8


def main() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="allot-bench-") as folder:
        return [*_appends(Path(folder) / "short"), *_history(Path(folder) / "long")]


def events_of(job: JobId) -> tuple[e.AnyEvent, ...]:
    """Make what a job of one task leaves in the log."""
    key = (job, FIRST, TaskIndex(0))
    return (
        e.JobSubmitted(job, SPEC),
        e.AttemptPlaced(job, FIRST, (Slot(NodeId(0), (1,), 1000),), Entitlement.GUARANTEED),
        e.TaskStarted(*key, pid=4711),
        e.AttemptStarted(job, FIRST),
        e.TaskEnded(*key, exit=Exit(code=0, usage=Usage(Millis(900), Millis(800)))),
        e.AttemptEnded(job, FIRST, e.Outcome.SUCCEEDED),
        e.JobSucceeded(job),
        e.JobArchived(job),
    )


def records(first: int, count: int) -> list[e.Record]:
    """Make the log's next records, of one job after the other."""
    made: list[e.Record] = []
    for job in range(first // PER_JOB, (first + count) // PER_JOB + 1):
        made += [
            e.Record(Seq(seq), Instant(seq), SYSTEM if place else ALICE, event)
            for place, event in enumerate(events_of(JobId(job + 1)))
            if first <= (seq := job * PER_JOB + place + 1) < first + count
        ]
    return made


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _appends(folder: Path) -> list[Figure]:
    folder.mkdir()
    empty = timed(lambda: SqliteStore.open(folder).close())
    store = SqliteStore.open(folder)
    singles = [[record] for record in records(1, SINGLES)]
    single_s = timed(lambda: [store.append(batch) for batch in singles])
    batches = [records(SINGLES + 1 + n * 100, 100) for n in range(BATCHES)]
    cpu = time.process_time()
    batch_s = timed(lambda: [store.append(batch) for batch in batches])
    cpu = time.process_time() - cpu
    store.close()
    count = BATCHES * 100
    return [
        Figure("durable appends of one event", SINGLES / single_s, "/s", "higher", 1_500),
        Figure("events in durable batches of 100", count / batch_s, "/s", "higher", 20_000),
        Figure("CPU per event in such a batch", cpu / count * 1e6, "µs", "lower"),
        Figure("making a new log", empty * 1e3, "ms", "lower"),
    ]


def _history(folder: Path) -> list[Figure]:
    folder.mkdir()
    _write_history(folder)
    size = (folder / FILE).stat().st_size / EVENTS
    open_s, store = min((_open(folder) for _ in range(3)), key=lambda pair: pair[0])
    read_s = timed(lambda: [None for _ in store.records()])
    backup_s = timed(lambda: store.backup(str(folder / "copy.db")))
    page_s = timed(lambda: store.archived_page(JobFilter(user="alice"), 50))
    longest, prune_s, pruned = _prune(store)
    store.close()
    return [
        Figure("opening 1,000,000 events and a snapshot", open_s * 1e3, "ms", "lower", 200),
        Figure("bytes per event on disk", size, "B", "lower"),
        Figure("reading the log", EVENTS / read_s, "/s", "higher", 200_000),
        Figure("backup of 1,000,000 events", backup_s, "s", "lower"),
        Figure("a page of 50 of 125,000 archived jobs", page_s * 1e3, "ms", "lower"),
        Figure("jobs forgotten, with their events", pruned / prune_s, "/s", "higher"),
        Figure("longest append meanwhile", longest * 1e3, "ms", "lower", 100),
    ]


def _write_history(folder: Path) -> None:
    store = SqliteStore.open(folder)
    for first in range(1, EVENTS, 2_000):
        batch = records(first, 2_000)
        archived = [
            ArchivedJob(
                record.event.job,
                "train",
                "vision",
                "alice",
                JobState.SUCCEEDED,
                record.at,
                record.at,
                document=bytes(400),
            )
            for record in batch
            if isinstance(record.event, e.JobArchived)
        ]
        store.append(batch, archived)
    store.save_snapshot(Snapshot(Seq(EVENTS), bytes(SNAPSHOT_BYTES)))
    store.close()


def _open(folder: Path) -> tuple[float, SqliteStore]:
    """Do with the store what a start does."""
    began = time.perf_counter()
    store = SqliteStore.open(folder)
    snapshot = store.snapshot()
    assert snapshot is not None
    assert not list(store.records(snapshot.seq))
    return time.perf_counter() - began, store


def _prune(store: SqliteStore) -> tuple[float, float, int]:
    """Forget jobs while appending; give the longest append, the time, and how many jobs."""
    told: list[tuple[float, int]] = []

    def prune() -> None:
        began = time.perf_counter()
        gone = store.prune(Instant(OLD_JOBS * PER_JOB))
        told.append((time.perf_counter() - began, len(gone)))

    thread = threading.Thread(target=prune)
    thread.start()
    longest = 0.0
    while thread.is_alive():
        batch = records(store.last_seq() + 1, 1)
        longest = max(longest, timed(lambda batch=batch: store.append(batch)))
    thread.join()
    return longest, *told[0]
