"""What only the store in SQLite does: what it keeps, and how it looks things up."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from allotment.model.ids import JobId, Seq
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Instant
from allotment.service.ports import JobFilter, Snapshot
from allotment.store import queries
from allotment.store.mark import FILE as MARK
from allotment.store.sqlite import FILE, SqliteStore
from tests.contract.stores.stores import an_archived, an_event, some_events


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore.open(tmp_path)
    yield store
    store.close()


@pytest.fixture
def raw(store: SqliteStore) -> Iterator[sqlite3.Connection]:
    """Another program's look at the same file."""
    connection = sqlite3.connect(store.path)
    yield connection
    connection.close()


def test_two_snapshots_are_kept(store: SqliteStore, raw: sqlite3.Connection) -> None:
    store.append(some_events(1, *([1] * 9)))
    for seq in (1, 5, 3, 9):
        store.save_snapshot(Snapshot(Seq(seq), b"state"))
    assert raw.execute("SELECT seq FROM snapshots ORDER BY seq").fetchall() == [(5,), (9,)]


def test_every_event_has_who_acted_in_columns(
    store: SqliteStore, raw: sqlite3.Connection
) -> None:
    store.append([an_event(1, job=4)])
    query = 'SELECT "user", uid, groups, job, kind, version FROM events'
    assert raw.execute(query).fetchall() == [
        ("alice", 1001, '["vision","cn=ml,ou=x"]', 4, "JobHeld", 1)
    ]


def test_a_log_that_is_being_written_is_read_as_it_was_committed(
    store: SqliteStore, tmp_path: Path
) -> None:
    store.append(some_events(1, 1, 2))
    other = SqliteStore.open(tmp_path)
    store.append(some_events(3, 3))
    assert [record.seq for record in other.records()] == [1, 2, 3]
    other.close()


def test_a_closed_log_is_one_file_and_its_mark(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path)
    store.append(some_events(1, 1, 2), [an_archived(1)])
    list(store.records())
    store.close()
    store.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE, MARK]


def test_room_of_what_was_forgotten_is_used_again(store: SqliteStore) -> None:
    sizes: list[int] = []
    for number in range(6):
        first = store.last_seq() + 1
        jobs = range(first, first + 3000)
        archived = [an_archived(job, finished_at=number) for job in jobs]
        store.append(some_events(first, *jobs), archived)
        store.save_snapshot(Snapshot(store.last_seq(), b""))
        assert len(store.prune(Instant(number))) == (3000 if number else 0)
        sizes.append(store.path.stat().st_size)
    assert sizes[-1] < sizes[1] * 1.5, "six rounds do not take the room of six"


# ── nothing is looked up by looking at everything ───────────────────────────────────────

SIX = JobId(6)


def page(which: JobFilter, limit: int) -> sa.Select:
    return queries.archived_pages(which, limit)[-1]


LOOKUPS: dict[str, tuple[sa.Select, str]] = {
    "tail of the log": (queries.RECORDS, "SEARCH events USING INTEGER PRIMARY KEY"),
    "a job's events": (queries.RECORDS_OF_JOB, "SEARCH events USING INDEX events_by_job"),
    "the snapshot": (queries.NEWEST_SNAPSHOT, "SCAN snapshots"),
    "a job": (queries.ARCHIVED, "SEARCH archived_jobs USING INTEGER PRIMARY KEY"),
    "a key": (queries.ARCHIVED_BY_KEY, "USING INDEX archived_by_key (user=? AND key=?)"),
    "a user": (page(JobFilter(user="u"), 1), "archived_by_user (user=?)"),
    "a name": (page(JobFilter(name="n"), 1), "archived_by_name (name=?)"),
    "a page of a tenant": (
        page(JobFilter(tenant="t", before=SIX), 9),
        "archived_by_tenant (tenant=? AND id<?)",
    ),
    "what is old": (queries.FORGETTABLE, "archived_by_end (finished_at<?)"),
    "newest failures": (
        page(JobFilter(states=(JobState.FAILED, JobState.CANCELLED), before=SIX), 9),
        "archived_by_state (state=? AND id<?)",
    ),
}


@pytest.mark.parametrize("what", LOOKUPS)
def test_every_lookup_has_its_index(raw: sqlite3.Connection, what: str) -> None:
    query, expected = LOOKUPS[what]
    compiled = query.compile(
        dialect=sqlite.dialect(paramstyle="named"), compile_kwargs={"render_postcompile": True}
    )
    values = dict.fromkeys(compiled.params, 1)
    plan = raw.execute(f"EXPLAIN QUERY PLAN {compiled}", values).fetchall()
    steps = [step[3] for step in plan]
    assert any(expected in step for step in steps), steps
    assert not any("TEMP B-TREE" in step for step in steps), steps
