"""What every store promises, asked of each of them."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from allotment.model.errors import StoreError
from allotment.model.events import NodeDrained, Record
from allotment.model.ids import SYSTEM, Actor, JobId, NodeId, Seq
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Instant
from allotment.service.ports import JobFilter, Snapshot, Store
from allotment.store.sqlite import SqliteStore, restore
from tests.contract.stores.stores import (
    ALICE,
    STORES,
    an_archived,
    an_event,
    everything,
    farewell,
    ids,
    seqs,
    some_events,
)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = STORES[request.param](tmp_path / "store")
    yield store
    store.close()


# ── appending ───────────────────────────────────────────────────────────────────────────


def test_a_new_log_is_empty(store: Store) -> None:
    assert store.last_seq() == 0
    assert list(store.records()) == []
    assert store.snapshot() is None
    assert store.archived(JobId(1)) is None
    assert list(store.archived_page(JobFilter(), 10)) == []


def test_what_was_appended_is_read_as_it_was(store: Store) -> None:
    actors = (ALICE, SYSTEM, Actor("zoë", 2**32 - 2, ("a,b", "", '"[')), Actor("", None, ("",)))
    records = [an_event(seq, seq % 2, actor) for seq, actor in enumerate(actors, 1)]
    store.append(records)
    assert list(store.records()) == records
    assert store.last_seq() == len(actors)


@pytest.mark.parametrize("first", [1, 3, 5, 100])
def test_a_repeated_or_missing_number_is_refused_and_nothing_added(
    store: Store, first: int
) -> None:
    store.append(some_events(1, 1, 1, 1))
    with pytest.raises(StoreError, match=f"event {first} where 4 is next; nothing was added"):
        store.append(some_events(first, 2, 2), [an_archived(2)])
    assert seqs(list(store.records())) == [1, 2, 3]
    assert store.archived(JobId(2)) is None
    store.append(some_events(4, 1))
    assert store.last_seq() == 4


def test_a_gap_inside_a_batch_is_refused_and_nothing_added(store: Store) -> None:
    with pytest.raises(StoreError, match="event 3 where 2 is next"):
        store.append([an_event(1), an_event(3)])
    assert store.last_seq() == 0
    assert list(store.records()) == []


def test_an_empty_batch_changes_nothing(store: Store) -> None:
    store.append([])
    assert store.last_seq() == 0


# ── reading the log ─────────────────────────────────────────────────────────────────────


def test_the_log_is_read_in_order_from_after_a_number(store: Store) -> None:
    for first in range(1, 6001, 1500):
        store.append([an_event(seq) for seq in range(first, first + 1500)])
    assert seqs(list(store.records())) == list(range(1, 6001))
    assert seqs(list(store.records(Seq(5990)))) == list(range(5991, 6001))
    assert seqs(list(store.records(Seq(10), limit=4500))) == list(range(11, 4511))
    assert list(store.records(Seq(6000))) == []
    assert list(store.records(Seq(2**70))) == []


def test_the_log_may_grow_while_it_is_read(store: Store) -> None:
    store.append([an_event(seq) for seq in range(1, 3001)])
    reading = store.records()
    assert next(reading).seq == 1
    store.append([an_event(3001)])
    assert seqs(list(reading))[:2999] == list(range(2, 3001))


def test_the_events_of_a_job_are_its_own_in_order(store: Store) -> None:
    store.append(some_events(1, 7, None, 8, 7, 8, 7))
    assert seqs(store.records_of(JobId(7))) == [1, 4, 6]
    assert seqs(store.records_of(JobId(7), after=Seq(1))) == [4, 6]
    assert seqs(store.records_of(JobId(7), after=Seq(1), limit=1)) == [4]
    assert list(store.records_of(JobId(9))) == []
    assert list(store.records_of(JobId(2**70))) == []


# ── snapshots ───────────────────────────────────────────────────────────────────────────


def test_the_newest_snapshot_is_given(store: Store) -> None:
    store.append(some_events(1, 1, 1, 1, 1))
    for seq in (2, 4, 3):
        store.save_snapshot(Snapshot(Seq(seq), b"state %d" % seq))
    assert store.snapshot() == Snapshot(Seq(4), b"state 4")
    store.save_snapshot(Snapshot(Seq(4), b"better"))
    assert store.snapshot() == Snapshot(Seq(4), b"better")


def test_a_snapshot_of_the_future_is_refused(store: Store) -> None:
    store.append(some_events(1, 1))
    with pytest.raises(StoreError, match="a snapshot of event 2, and the log ends at 1"):
        store.save_snapshot(Snapshot(Seq(2), b""))
    assert store.snapshot() is None


# ── the archive ─────────────────────────────────────────────────────────────────────────


def test_an_archived_job_is_found_by_its_number(store: Store) -> None:
    job = an_archived(3, key="k")
    store.append(farewell(1, 3), [job])
    assert store.archived(JobId(3)) == job
    for unknown in (0, -1, 4, 2**63, 2**70):
        assert store.archived(JobId(unknown)) is None


def test_a_job_archived_again_is_kept_as_it_is_now(store: Store) -> None:
    store.append(farewell(1, 3), [an_archived(3, key="k")])
    again = an_archived(3, name="other", user="bob", state=JobState.FAILED, finished_at=9)
    store.append([], [again])
    assert store.archived(JobId(3)) == again
    assert store.archived_by_key("alice", "k") is None


def test_a_key_finds_its_users_job_only(store: Store) -> None:
    jobs = [
        an_archived(1, key="k"),
        an_archived(2, key="k", user="bob"),
        an_archived(3),
        an_archived(4, key="K"),
        an_archived(5, user=""),
    ]
    store.append([], jobs)
    assert store.archived_by_key("alice", "k") == jobs[0]
    assert store.archived_by_key("bob", "k") == jobs[1]
    assert store.archived_by_key("carol", "k") is None
    assert store.archived_by_key("alice", "") is None
    assert store.archived_by_key("", "") is None


def test_of_several_jobs_with_one_key_the_newest_is_found(store: Store) -> None:
    store.append([], [an_archived(job, key="k") for job in (4, 9, 2)])
    found = store.archived_by_key("alice", "k")
    assert found is not None
    assert found.id == 9


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        (JobFilter(), [6, 5, 4, 3, 2, 1]),
        (JobFilter(tenant="nlp"), [5, 2]),
        (JobFilter(user="bob"), [6, 5]),
        (JobFilter(name="eval"), [3]),
        (JobFilter(name="eva"), []),
        (JobFilter(beginning="eva"), [3]),
        (JobFilter(beginning="Eva"), []),
        (JobFilter(beginning="ev_"), []),
        (JobFilter(beginning="\U0010ffff"), []),
        (JobFilter(name="TRAIN"), []),
        (JobFilter(name="tr%"), []),
        (JobFilter(states=(JobState.FAILED,)), [4]),
        (JobFilter(states=(JobState.FAILED, JobState.CANCELLED)), [4, 1]),
        (JobFilter(states=(JobState.FAILED, JobState.FAILED)), [4]),
        (JobFilter(user="bob", states=tuple(JobState)), [6, 5]),
        (JobFilter(before=JobId(4)), [3, 2, 1]),
        (JobFilter(before=JobId(2**70)), [6, 5, 4, 3, 2, 1]),
        (JobFilter(tenant="nlp", user="bob"), [5]),
        (JobFilter(tenant="nlp", user="bob", before=JobId(5)), []),
        (JobFilter("vision", "alice", "train", (JobState.SUCCEEDED,)), []),
    ],
)
def test_a_page_has_what_matches_every_word_newest_first(
    store: Store, which: JobFilter, expected: list[int]
) -> None:
    store.append(
        [],
        [
            an_archived(3, name="eval"),
            an_archived(1, state=JobState.CANCELLED),
            an_archived(2, tenant="nlp"),
            an_archived(4, state=JobState.FAILED),
            an_archived(6, user="bob"),
            an_archived(5, tenant="nlp", user="bob"),
        ],
    )
    assert ids(store.archived_page(which, 100)) == expected
    assert ids(store.archived_page(which, 1)) == expected[:1]


def test_pages_follow_one_another_without_gap_or_overlap(store: Store) -> None:
    store.append([], [an_archived(job) for job in range(1, 24)])
    seen: list[int] = []
    before: JobId | None = None
    while page := store.archived_page(JobFilter(before=before), 5):
        seen += ids(page)
        before = page[-1].id
    assert seen == list(range(23, 0, -1))


# ── forgetting ──────────────────────────────────────────────────────────────────────────


def test_pruning_forgets_old_jobs_with_their_events_and_nothing_else(store: Store) -> None:
    store.append(some_events(1, 1, 2, None, 3, 1, 2))
    jobs = [an_archived(1, finished_at=50), an_archived(2, finished_at=99, key="k")]
    store.append(farewell(7, 2), [*jobs, an_archived(3, finished_at=100)])
    store.save_snapshot(Snapshot(Seq(8), b"all"))
    assert list(store.prune(Instant(100))) == [1, 2]
    assert seqs(list(store.records())) == [3, 4]
    assert ids(store.archived_page(JobFilter(), 10)) == [3]
    assert list(store.records_of(JobId(1))) == []
    assert store.archived(JobId(2)) is None
    assert store.archived_by_key("alice", "k") is None
    assert list(store.prune(Instant(100))) == []


def test_jobs_that_are_not_archived_are_never_pruned(store: Store) -> None:
    store.append(some_events(1, 1, 1))
    store.save_snapshot(Snapshot(Seq(2), b""))
    assert list(store.prune(Instant(2**70))) == []
    assert store.last_seq() == 2


def test_events_that_the_next_start_replays_are_not_pruned(store: Store) -> None:
    store.append([*some_events(1, 1, 2), *farewell(3, 1)], [an_archived(1), an_archived(2)])
    assert list(store.prune(Instant(9999))) == [], "without a snapshot all is replayed"
    store.save_snapshot(Snapshot(Seq(3), b""))
    assert list(store.prune(Instant(9999))) == [2], "the last event of job 1 comes after it"
    assert seqs(list(store.records(Seq(3)))) == [4]
    store.append([an_event(5)])
    store.save_snapshot(Snapshot(Seq(4), b""))
    assert list(store.prune(Instant(9999))) == [1]
    assert seqs(list(store.records())) == [5]


def test_numbers_go_on_when_the_newest_events_are_pruned(store: Store) -> None:
    store.append(farewell(1, 1), [an_archived(1)])
    store.save_snapshot(Snapshot(Seq(2), b""))
    assert list(store.prune(Instant(9999))) == [1]
    assert list(store.records()) == []
    assert store.last_seq() == 2
    store.append([an_event(3)])
    assert seqs(list(store.records(Seq(2)))) == [3]


def test_appending_goes_on_while_old_jobs_are_forgotten(store: Store) -> None:
    store.append([], [an_archived(job) for job in range(1, 2001)])
    pruning = threading.Thread(target=store.prune, args=(Instant(9999),))
    pruning.start()
    for seq in range(1, 51):
        store.append([an_event(seq)])
        list(store.records_of(JobId(1)))
        list(store.archived_page(JobFilter(), 10))
    pruning.join()
    assert store.last_seq() == 50
    assert list(store.archived_page(JobFilter(), 10)) == []


def test_a_job_of_many_events_is_forgotten_piece_by_piece(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allotment.store.sqlite.PRUNE_EVENTS", 3)
    store.append(some_events(1, *[1] * 7, *[2] * 2, *[3] * 3, 4))
    store.append(farewell(14, 5), [an_archived(job) for job in (1, 2, 3, 5)])
    store.save_snapshot(Snapshot(store.last_seq(), b""))
    assert list(store.prune(Instant(9999))) == [1, 2, 3, 5]
    assert seqs(list(store.records())) == [13]


# ── copies ──────────────────────────────────────────────────────────────────────────────


def test_a_restored_backup_says_what_the_store_said(store: Store, tmp_path: Path) -> None:
    store.append(some_events(1, 1, None, 2, 1))
    store.append(farewell(5, 1), [an_archived(1, key="k", finished_at=5), an_archived(3)])
    store.save_snapshot(Snapshot(Seq(4), b"older"))
    store.save_snapshot(Snapshot(Seq(6), b"newer"))
    store.prune(Instant(10))
    before = everything(store)
    store.backup(str(tmp_path / "copy.db"))
    assert everything(store) == before
    store.append([an_event(7)])

    assert restore(tmp_path / "copy.db", tmp_path / "elsewhere") == 6
    copy = SqliteStore.open(tmp_path / "elsewhere")
    assert everything(copy) == before
    copy.append([an_event(7)])
    assert everything(copy) == everything(store)
    copy.close()


def test_a_backup_of_an_empty_log_can_be_restored(store: Store, tmp_path: Path) -> None:
    store.backup(str(tmp_path / "copy.db"))
    assert restore(tmp_path / "copy.db", tmp_path / "elsewhere") == 0


def test_a_backup_is_its_owners_alone(store: Store, tmp_path: Path) -> None:
    store.backup(str(tmp_path / "copy.db"))
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600


def test_a_backup_overwrites_nothing(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_text("precious")
    with pytest.raises(StoreError, match="exists already; name a file that does not"):
        store.backup(str(target))
    assert target.read_text() == "precious"


def test_a_backup_into_a_missing_folder_is_explained(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot write .*copy\.db: No such file or directory"):
        store.backup(str(tmp_path / "nowhere" / "copy.db"))


# ── strange values ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "actor", [Actor("\ud800"), Actor("a", 2**70), Actor("a", 1, ("\udcff",))]
)
def test_what_has_no_bytes_is_refused_and_nothing_added(actor: Actor, tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path)
    with pytest.raises(StoreError):
        store.append([an_event(1), an_event(2, actor=actor)])
    broken = Record(Seq(1), Instant(1), ALICE, NodeDrained(NodeId(0), "\ud800"))
    with pytest.raises(StoreError, match=r"event 1 \(NodeDrained\) cannot be written"):
        store.append([broken])
    assert store.last_seq() == 0
    store.append([an_event(1)])
    assert seqs(list(store.records())) == [1]
    store.close()
