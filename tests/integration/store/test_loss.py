"""A log that lost a part is refused, and says so: it is never taken for a shorter one."""

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from allotment.model.errors import StoreError
from allotment.model.ids import JobId, Seq
from allotment.model.quantity import Instant
from allotment.service.ports import JobFilter, Snapshot
from allotment.store import mark
from allotment.store.examine import everything_wrong, reading
from allotment.store.migrate import MIGRATIONS
from allotment.store.sqlite import FILE, SqliteStore, restore
from tests.contract.stores.stores import an_archived, everything, some_events

WAL = f"{FILE}-wal"
JOBS = 300


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 300 jobs as kill -9 leaves it: most is in the file, the rest in the -wal."""
    home = tmp_path_factory.mktemp("home")
    store = SqliteStore.open(home)
    for job in range(1, JOBS + 1):
        store.append(some_events(store.last_seq() + 1, job, job), [an_archived(job)])
        if job == 150:
            store.save_snapshot(Snapshot(store.last_seq(), bytes(20_000)))
        if job == 230:
            checkpoint(home / FILE)
    wait_for_mark(home, store.last_seq())
    kept = tmp_path_factory.mktemp("crashed")
    for name in (FILE, WAL, mark.FILE):
        shutil.copy(home / name, kept / name)
    store.close()
    return kept


@pytest.fixture
def crashed(once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(once, tmp_path / "crashed"))


def checkpoint(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def wait_for_mark(folder: Path, seq: int) -> None:
    """Wait until the mark has followed: it does within a twentieth of a second."""
    from tests.support.cluster import until

    def is_there() -> bool:
        found = mark.read_mark(folder / mark.FILE)
        return found is not None and found.end.seq == seq

    until(is_there, "the mark to follow", 5)


def answers(folder: Path) -> object:
    """Open a log and ask it everything; refused, give the refusal."""
    try:
        store = SqliteStore.open(folder)
    except StoreError as error:
        return str(error)
    try:
        archive = store.archived_page(JobFilter(), 1000)
        return list(store.records()), archive, store.records_of(JobId(9))
    except StoreError as error:
        return str(error)
    finally:
        store.close()


def copy_of(folder: Path, name: str) -> Path:
    return Path(shutil.copytree(folder, folder.parent / name))


def refusal(folder: Path) -> str:
    """Find that a log is refused, and left as it was."""
    before = contents(folder)
    with pytest.raises(StoreError) as told:
        SqliteStore.open(folder)
    assert contents(folder) == before
    return str(told.value)


def contents(folder: Path) -> dict[str, bytes]:
    """Return what a folder's files hold; what SQLite makes to read them holds nothing."""
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    return {name: data for name, data in found.items() if data and not name.endswith("-shm")}


# ── the end ─────────────────────────────────────────────────────────────────────────────


def test_what_a_crash_leaves_is_whole(crashed: Path) -> None:
    store = SqliteStore.open(crashed)
    assert store.last_seq() == 2 * JOBS
    assert store.loss is None
    assert len(store.archived_page(JobFilter(), 1000)) == JOBS
    store.close()


@pytest.mark.parametrize("hundredths", [0, 1, 20, 50, 80, 99])
def test_a_log_whose_wal_is_cut_is_refused(crashed: Path, hundredths: int) -> None:
    with (crashed / WAL).open("r+b") as file:
        file.truncate((crashed / WAL).stat().st_size * hundredths // 100)
    told = refusal(crashed)
    assert "its end is lost" in told
    assert "events were written after those that are there" in told
    assert "allot restore" in told
    assert "allot up --accept-loss" in told


def test_a_log_whose_wal_is_gone_is_refused(crashed: Path) -> None:
    (crashed / WAL).unlink()
    assert "its end is lost" in refusal(crashed)


def test_an_emptied_file_is_refused_and_its_wal_kept(crashed: Path) -> None:
    (crashed / FILE).write_bytes(b"")
    assert "it is empty or gone: 600 events were written, the last on" in refusal(crashed)
    assert (crashed / WAL).stat().st_size


def test_a_file_that_is_gone_is_refused(crashed: Path) -> None:
    (crashed / FILE).unlink()
    assert "holds the newest events of a log that is not there" in refusal(crashed)
    (crashed / WAL).unlink()
    assert "it is empty or gone: 600 events were written" in refusal(crashed)


def test_an_older_copy_put_in_place_is_refused(crashed: Path, tmp_path: Path) -> None:
    store = SqliteStore.open(crashed)
    store.backup(str(tmp_path / "old.db"))
    store.append(some_events(601, 1, 2, 3))
    store.close()
    shutil.copy(tmp_path / "old.db", crashed / FILE)
    assert "3 events were written after those that are there" in refusal(crashed)


def test_a_copy_that_went_on_otherwise_is_refused(crashed: Path) -> None:
    other = copy_of(crashed, "other")
    for folder, job in ((crashed, 7), (other, 8)):
        store = SqliteStore.open(folder)
        store.append(some_events(601, job))
        store.close()
    shutil.copy(other / FILE, crashed / FILE)
    assert "it is not the log that was written here: event 601 is another" in refusal(crashed)


@pytest.mark.parametrize("make", [Path.unlink, lambda path: path.write_bytes(bytes(1024))])
def test_a_log_without_a_mark_is_refused(crashed: Path, make: Callable[[Path], None]) -> None:
    make(crashed / mark.FILE)
    told = refusal(crashed)
    assert "its mark, which says how far it was written, is missing or cannot be read" in told
    assert "events up to 600" in told


def test_one_place_of_the_mark_is_enough(crashed: Path) -> None:
    data = bytearray((crashed / mark.FILE).read_bytes())
    newest = mark.read_mark(crashed / mark.FILE)
    assert newest is not None
    place = mark.PLACE * (newest.number % 2)
    data[place : place + 40] = bytes(40)
    (crashed / mark.FILE).write_bytes(data)
    assert isinstance(answers(crashed), tuple)


def test_a_mark_that_lags_is_no_loss(crashed: Path) -> None:
    store = SqliteStore.open(crashed)
    lagging = (crashed / mark.FILE).read_bytes()
    store.append(some_events(601, 1, 2, 3))
    store.close()
    (crashed / mark.FILE).write_bytes(lagging)
    store = SqliteStore.open(crashed)
    assert store.last_seq() == 603
    store.close()


def test_a_restored_backup_begins_a_mark_of_its_own(crashed: Path, tmp_path: Path) -> None:
    store = SqliteStore.open(crashed)
    store.backup(str(tmp_path / "old.db"))
    store.append(some_events(601, 1, 2, 3))
    store.close()
    (crashed / FILE).unlink()
    assert restore(tmp_path / "old.db", crashed) == 600
    store = SqliteStore.open(crashed)
    store.append(some_events(601, 5))
    store.close()
    (crashed / FILE).write_bytes(b"")
    assert "601 events were written" in refusal(crashed)


def test_forgetting_is_no_loss(crashed: Path) -> None:
    store = SqliteStore.open(crashed)
    store.save_snapshot(Snapshot(store.last_seq(), b"state"))
    assert len(store.prune(Instant(3000))) == JOBS
    store.close()
    store = SqliteStore.open(crashed)
    assert store.last_seq() == 600
    store.append(some_events(601, 5))
    store.close()
    assert wrong_with(crashed) == []
    assert isinstance(answers(crashed), tuple)


def test_a_damaged_snapshot_is_no_loss_while_the_events_are_there(crashed: Path) -> None:
    before = everything_of(crashed)
    change(crashed, "UPDATE snapshots SET data = zeroblob(9) WHERE seq = 300")
    store = SqliteStore.open(crashed)
    assert store.snapshot() is None
    after = everything(store)
    store.close()
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert {**before, "snapshot": None} == after


def test_a_damaged_snapshot_whose_events_were_forgotten_is_refused(crashed: Path) -> None:
    store = SqliteStore.open(crashed)
    store.save_snapshot(Snapshot(Seq(450), b"state"))
    store.prune(Instant(3000))
    store.close()
    change(crashed, "UPDATE snapshots SET data = zeroblob(9)")
    told = refusal(crashed)
    assert "the snapshot after event 450 is damaged, and events 1 to 450 are missing" in told
    assert "accept-loss" not in told


# ── anywhere ────────────────────────────────────────────────────────────────────────────


def everything_of(folder: Path) -> object:
    store = SqliteStore.open(folder)
    found = everything(store)
    store.close()
    return found


def test_whatever_is_flipped_nothing_is_missing_in_silence(crashed: Path) -> None:
    whole = answers(copy_of(crashed, "whole"))
    assert isinstance(whole, tuple)
    rng = random.Random(8)
    told: dict[str, int] = {FILE: 0, WAL: 0}
    for number in range(60):
        folder = copy_of(crashed, f"flipped{number}")
        name = (FILE, WAL)[number % 2]
        data = bytearray((folder / name).read_bytes())
        for _ in range(rng.choice([1, 1, 40])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        (folder / name).write_bytes(data)
        found = answers(folder)
        shutil.rmtree(folder)
        if isinstance(found, str):
            told[name] += 1
            assert "a bug" not in found
        else:
            assert found == whole, f"flips in {name} ({number}) change what is there, unsaid"
    assert told[FILE] > 10
    assert told[WAL] > 25


ROWS = [
    ("UPDATE events SET at = at + 1 WHERE seq = 17", "event 17 "),
    ("UPDATE events SET user = 'bob' WHERE seq = 17", "event 17 "),
    ("UPDATE events SET job = 10 WHERE seq = 17", "event 17 "),
    ("UPDATE events SET kind = 'JobFailed' WHERE seq = 17", "event 17 "),
    ("UPDATE events SET body = zeroblob(9) WHERE seq = 17", "event 17 "),
    ("UPDATE events SET digest = 5 WHERE seq = 17", "event 17 "),
    ("UPDATE events SET before = 5 WHERE seq = 17", "event 17 "),
    ("DELETE FROM events WHERE seq = 17", "that were not removed on purpose: 1"),
    ("UPDATE archived_jobs SET user = 'bob' WHERE id = 9", "the archived job 9 is not what"),
    ("UPDATE archived_jobs SET document = x'00' WHERE id = 9", "the archived job 9 is not"),
    ("UPDATE snapshots SET data = zeroblob(9)", "the snapshot after event 300 is not what"),
]


@pytest.mark.parametrize(("sql", "expected"), ROWS)
def test_the_doctor_names_every_row_that_is_damaged(
    crashed: Path, sql: str, expected: str
) -> None:
    assert wrong_with(crashed) == []
    change(crashed, sql)
    told = wrong_with(crashed)
    assert any(expected in each for each in told), told


TAIL = [
    ("UPDATE events SET at = at + 1 WHERE seq = 417", "event 417 (JobHeld of job 209, 1970"),
    ("UPDATE events SET body = x'83a5' || body WHERE seq = 417", "event 417 (JobHeld of job"),
    ("UPDATE events SET user = CAST(x'ff41' AS TEXT) WHERE seq = 417", "event 417 (JobHeld"),
    ("UPDATE events SET at = 'x' WHERE seq = 417", "event 417 (JobHeld of job 209, at x)"),
    ("UPDATE events SET body = x'83a5' WHERE seq = 417", "event 417 (JobHeld of job 209, 1970"),
    ("DELETE FROM events WHERE seq = 417", "event 417 is missing"),
    ("DELETE FROM events WHERE seq BETWEEN 417 AND 420", "events 417 to 420 are missing"),
    ("UPDATE events SET before = 5 WHERE seq = 417", "event 417 (JobHeld of job 209, 1970"),
]


@pytest.mark.parametrize(("sql", "expected"), TAIL)
def test_a_damaged_event_that_a_start_needs_is_refused(
    crashed: Path, sql: str, expected: str
) -> None:
    change(crashed, sql)
    told = refusal(crashed)
    assert expected in told
    assert "What came before is complete: events up to 416, of 1970" in told


def change(folder: Path, sql: str) -> None:
    connection = sqlite3.connect(folder / FILE)
    connection.execute(sql)
    connection.commit()
    connection.close()


def wrong_with(folder: Path) -> list[str]:
    with reading(folder / FILE) as connection:
        return list(everything_wrong(connection))


# ── going on with less ──────────────────────────────────────────────────────────────────


def test_who_says_so_goes_on_with_what_is_there(crashed: Path) -> None:
    with (crashed / WAL).open("r+b") as file:
        file.truncate((crashed / WAL).stat().st_size // 2)
    torn = (crashed / WAL).read_bytes()
    refusal(crashed)
    store = SqliteStore.open(crashed, accept_loss=True)
    assert store.loss is not None
    assert store.loss.events == 600 - store.last_seq()
    assert (Path(store.loss.kept) / WAL).read_bytes() == torn
    first = store.last_seq() + 1
    store.append(some_events(first, 7))
    store.close()
    assert wrong_with(crashed) == []
    store = SqliteStore.open(crashed)
    assert (store.last_seq(), store.loss) == (first, None)
    store.close()


def test_who_says_so_goes_on_before_a_damaged_event(crashed: Path) -> None:
    change(crashed, "UPDATE events SET body = x'83a5' WHERE seq = 417")
    store = SqliteStore.open(crashed, accept_loss=True)
    assert store.loss is not None
    assert (store.last_seq(), store.loss.events) == (416, 184)
    assert [job.id for job in store.archived_page(JobFilter(), 1)] == [208]
    assert store.records_of(JobId(209)) == []
    store.close()
    assert wrong_with(crashed) == []


def test_who_says_so_begins_anew_after_an_emptied_file(crashed: Path) -> None:
    (crashed / FILE).write_bytes(b"")
    store = SqliteStore.open(crashed, accept_loss=True)
    assert store.loss is not None
    assert (store.last_seq(), store.loss.events) == (0, 600)
    assert (Path(store.loss.kept) / WAL).stat().st_size
    store.close()


def test_nothing_is_accepted_where_nothing_is_lost(crashed: Path) -> None:
    store = SqliteStore.open(crashed, accept_loss=True)
    assert (store.last_seq(), store.loss) == (600, None)
    store.close()


# ── from before ─────────────────────────────────────────────────────────────────────────


def test_a_log_from_before_checksums_is_chained_once(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    make_one_of_before(old)
    store = SqliteStore.open(old)
    assert store.last_seq() == 9
    assert len(list(store.records())) == 7
    store.append(some_events(10, 1))
    store.close()
    assert wrong_with(old) == []
    (old / FILE).write_bytes(b"")
    assert "10 events were written" in refusal(old)


def make_one_of_before(folder: Path) -> None:
    """Write a log as the first schema had it: two events were forgotten."""
    only = folder.parent / "only-the-first"
    shutil.copytree(MIGRATIONS, only)
    (only / "versions" / "m0002_checksums.py").unlink()
    from allotment.store.codec import rows_of
    from allotment.store.migrate import upgrade
    from allotment.store.rows import archived_row

    upgrade(folder / FILE, only)
    connection = sqlite3.connect(folder / FILE)
    rows = [
        row[:9] for row in rows_of(some_events(1, *range(1, 10)), 0) if row[0] not in (2, 9)
    ]
    connection.executemany("INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?)", rows)
    connection.execute("INSERT INTO snapshots VALUES (9, x'aa')")
    kept = archived_row(an_archived(1))[:9]
    connection.execute("INSERT INTO archived_jobs VALUES (?,?,?,?,?,?,?,?,?)", kept)
    connection.commit()
    connection.close()
