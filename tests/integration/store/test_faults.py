"""What goes wrong with files and disks is said, with what to do next, and loses nothing."""

import random
import shutil
import sqlite3
from pathlib import Path
from typing import NoReturn

import pytest

from allotment.model.errors import StoreError
from allotment.model.ids import JobId, Seq
from allotment.model.quantity import Instant
from allotment.service.ports import JobFilter, Snapshot
from allotment.store import connections
from allotment.store.sqlite import FILE, SqliteStore, restore
from tests.contract.stores.stores import an_archived, an_event, everything, seqs, some_events
from tests.integration.store.conftest import SmallDisk


def a_log(folder: Path, events: int = 300) -> Path:
    """Make a log with a bit of everything, closed; give its file."""
    store = SqliteStore.open(folder)
    store.append(some_events(1, *(seq % 7 for seq in range(events))))
    store.append([], [an_archived(job, key=f"k{job}") for job in range(1, 200)])
    store.save_snapshot(Snapshot(Seq(events // 2), bytes(10_000)))
    store.close()
    return folder / FILE


def use(folder: Path) -> None:
    """Open a log, ask it everything, write to it."""
    store = SqliteStore.open(folder)
    try:
        everything(store)
        store.append([an_event(store.last_seq() + 1, 3)], [an_archived(1)])
        store.save_snapshot(Snapshot(store.last_seq(), b"new"))
        store.prune(Instant(9999))
        store.records_of(JobId(1))
    finally:
        store.close()


# ── damaged files ───────────────────────────────────────────────────────────────────────


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(random.Random(1).randbytes(20_000))
    before = path.read_bytes()
    with pytest.raises(StoreError) as told:
        SqliteStore.open(tmp_path)
    assert str(told.value) == (
        f"the event log {path}: file is not a database; the file is not an event log: move it "
        "away, with its -wal and -shm if there, then `allot restore BACKUP`"
    )
    assert path.read_bytes() == before


def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / FILE)
    other.execute("CREATE TABLE bookmarks (url TEXT)")
    other.close()
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(StoreError, match="is a database, but no event log of Allotment"):
        SqliteStore.open(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


def test_a_folder_in_the_files_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(StoreError, match="is not a file; move it away"):
        SqliteStore.open(tmp_path)


def test_a_missing_folder_is_explained(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="check that the folder exists and is writable"):
        SqliteStore.open(tmp_path / "nowhere")


@pytest.mark.parametrize("tenths", [1, 5, 9])
def test_a_truncated_file_is_explained(tmp_path: Path, tenths: int) -> None:
    path = a_log(tmp_path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size * tenths // 10)
    with pytest.raises(StoreError, match=r"malformed; the file is damaged: .*allot restore"):
        use(tmp_path)


def test_whatever_is_damaged_it_is_explained_or_harmless(tmp_path: Path) -> None:
    whole = a_log(tmp_path).read_bytes()
    rng = random.Random(20)
    explained = 0
    for number in range(60):
        folder = tmp_path / str(number)
        folder.mkdir()
        damaged = bytearray(whole)
        for _ in range(rng.choice([1, 20, 300])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        (folder / FILE).write_bytes(damaged)
        explained += what_is_said(folder) != ""
        shutil.rmtree(folder)
    assert explained > 20


def what_is_said(folder: Path) -> str:
    """Use a log that may be damaged; nothing but a StoreError may come of it."""
    try:
        use(folder)
    except StoreError as error:
        return str(error)
    return ""


def test_a_damaged_event_is_named(tmp_path: Path) -> None:
    path = a_log(tmp_path)
    raw = sqlite3.connect(path)
    raw.execute("UPDATE events SET body = x'83a5' WHERE seq = 17")
    raw.commit()
    raw.close()
    store = SqliteStore.open(tmp_path)
    with pytest.raises(StoreError, match="event 17 of the log is damaged: its checksum"):
        list(store.records())
    assert next(store.records(Seq(17))).seq == 18
    store.close()


def test_the_newest_events_are_not_dropped_when_the_file_is_moved_away(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path)
    store.append(some_events(1, 1, 2, 3))
    for name in (FILE, f"{FILE}-wal"):  # as after a kill -9
        shutil.copy(tmp_path / name, tmp_path / f"{name}.copy")
    store.close()
    (tmp_path / f"{FILE}-wal.copy").rename(tmp_path / f"{FILE}-wal")
    (tmp_path / FILE).unlink()
    with pytest.raises(StoreError, match="holds the newest events of a log that is not there"):
        SqliteStore.open(tmp_path)
    (tmp_path / f"{FILE}.copy").rename(tmp_path / FILE)
    store = SqliteStore.open(tmp_path)
    assert store.last_seq() == 3
    store.close()


# ── who else uses it ────────────────────────────────────────────────────────────────────


def test_a_log_that_another_program_locks_is_explained_and_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_S", 0.01)
    store = SqliteStore.open(tmp_path)
    other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="database is locked; another program has the file"):
        store.append(some_events(1, 1))
    assert list(store.records()) == []
    other.execute("ROLLBACK")
    other.close()
    store.append(some_events(1, 1))
    assert seqs(list(store.records())) == [1]
    store.close()


def test_a_second_writer_cannot_make_the_log_disagree(tmp_path: Path) -> None:
    first, second = SqliteStore.open(tmp_path), SqliteStore.open(tmp_path)
    first.append(some_events(1, 1, 1))
    with pytest.raises(StoreError, match="another program writes to it"):
        second.append(some_events(1, 2), [an_archived(2)])
    assert seqs(first.records_of(JobId(1))) == [1, 2]
    assert list(first.archived_page(JobFilter(), 9)) == []
    first.close()
    second.close()


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    (tmp_path / FILE).touch(mode=0o666)
    (tmp_path / FILE).chmod(0o666)
    store = SqliteStore.open(tmp_path)
    store.append(some_events(1, 1))
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    store.close()
    assert modes[FILE] == 0o600
    assert modes[f"{FILE}-wal"] == 0o600


def test_a_commit_is_on_the_disk_when_it_returns(tmp_path: Path) -> None:
    writer = connections.connect_writer(tmp_path / FILE)
    (full,) = writer.execute("PRAGMA synchronous").fetchone()
    (journal,) = writer.execute("PRAGMA journal_mode").fetchone()
    writer.close()
    assert (full, journal) == (2, "wal")


# ── disks ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.needs_root
def test_a_read_only_file_system_is_explained(small_disk: SmallDisk) -> None:
    a_log(small_disk.folder)
    small_disk.make_read_only()
    with pytest.raises(StoreError, match=r"the event log .*(writable)"):
        SqliteStore.open(small_disk.folder)


@pytest.mark.needs_root
def test_a_new_log_on_a_read_only_file_system_is_explained(small_disk: SmallDisk) -> None:
    small_disk.make_read_only()
    with pytest.raises(StoreError, match=r"the event log .*(writable)"):
        SqliteStore.open(small_disk.folder)


@pytest.mark.needs_root
def test_a_full_disk_loses_nothing_that_was_answered(small_disk: SmallDisk) -> None:
    store = SqliteStore.open(small_disk.folder)
    store.append(some_events(1, *([1] * 50)))
    small_disk.fill()
    with pytest.raises(StoreError, match="disk is full; free space"):
        append_without_end(store)
    kept = store.last_seq()
    assert seqs(list(store.records())) == list(range(1, kept + 1))
    with pytest.raises(StoreError, match="disk is full"):
        store.save_snapshot(Snapshot(kept, bytes(1 << 20)))
    assert store.snapshot() is None

    small_disk.free()
    store.append(some_events(kept + 1, *([2] * 20)))
    assert seqs(list(store.records())) == list(range(1, kept + 21))
    store.close()
    store = SqliteStore.open(small_disk.folder)
    assert store.last_seq() == kept + 20
    store.close()


def append_without_end(store: SqliteStore) -> NoReturn:
    while True:
        store.append(some_events(store.last_seq() + 1, *([2] * 20)))


@pytest.mark.needs_root
def test_a_log_on_a_full_disk_opens_once_there_is_room(small_disk: SmallDisk) -> None:
    a_log(small_disk.folder)
    small_disk.fill()
    with pytest.raises(StoreError, match="the disk is full; free space"):
        SqliteStore.open(small_disk.folder)
    small_disk.free()
    store = SqliteStore.open(small_disk.folder)
    assert store.last_seq() == 300
    store.close()


@pytest.mark.needs_root
def test_a_new_log_on_a_full_disk_is_made_once_there_is_room(small_disk: SmallDisk) -> None:
    small_disk.fill()
    with pytest.raises(StoreError, match="free space"):
        SqliteStore.open(small_disk.folder)
    small_disk.free()
    SqliteStore.open(small_disk.folder).close()


@pytest.mark.needs_root
def test_a_backup_that_does_not_fit_leaves_nothing_behind(
    small_disk: SmallDisk, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    a_log(home)
    store = SqliteStore.open(home)
    before = everything(store)
    small_disk.fill()
    target = small_disk.folder / "copy.db"
    with pytest.raises(StoreError, match=r"cannot write .*copy\.db: .*; free space"):
        store.backup(str(target))
    assert not target.exists()
    assert everything(store) == before
    store.close()


@pytest.mark.needs_root
def test_a_restore_that_does_not_fit_leaves_nothing_behind(
    small_disk: SmallDisk, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    backup = a_log(home)
    small_disk.fill()
    with pytest.raises(StoreError, match="free space"):
        restore(backup, small_disk.folder)
    assert [path.name for path in small_disk.folder.iterdir()] == ["ballast"]
    small_disk.free()
    assert restore(backup, small_disk.folder) == 300


@pytest.mark.needs_root
def test_a_backup_is_restored_from_a_read_only_disk(
    small_disk: SmallDisk, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    a_log(home)
    store = SqliteStore.open(home)
    store.backup(str(small_disk.folder / "copy.db"))
    before = everything(store)
    store.close()
    small_disk.make_read_only()
    restore(small_disk.folder / "copy.db", tmp_path / "new")
    store = SqliteStore.open(tmp_path / "new")
    assert everything(store) == before
    store.close()
