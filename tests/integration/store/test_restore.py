"""A backup is checked before it is put in place, and nothing is ever overwritten."""

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allotment.model.errors import StoreError
from allotment.model.ids import Seq
from allotment.service.ports import Snapshot
from allotment.store.chain import event_digest
from allotment.store.sqlite import FILE, SqliteStore, restore
from tests.contract.stores.stores import an_archived, everything, seqs, some_events


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    store = SqliteStore.open(tmp_path / "home")
    store.append(some_events(1, *([1, 2, None] * 100)), [an_archived(1)])
    store.save_snapshot(Snapshot(Seq(290), b"state"))
    store.backup(str(tmp_path / "copy.db"))
    store.close()
    return tmp_path / "copy.db"


def refused(source: Path, folder: Path, why: str) -> None:
    """Find that a restore is refused, and leaves nothing."""
    before = {path.name: path.read_bytes() for path in folder.glob("*")}
    with pytest.raises(StoreError, match=why):
        restore(source, folder)
    assert {path.name: path.read_bytes() for path in folder.glob("*")} == before


def test_an_existing_log_is_never_overwritten(backup: Path, tmp_path: Path) -> None:
    refused(backup, tmp_path / "home", r"allot\.db exists already; move it away first")


def test_events_left_beside_a_removed_log_are_not_mixed_in(
    backup: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / f"{FILE}-wal").write_bytes(b"the newest events of the old log")
    refused(backup, folder, r"allot\.db-wal exists already; move it away first")


def test_a_missing_backup_is_explained(tmp_path: Path) -> None:
    refused(tmp_path / "copy.db", tmp_path / "new", "there is no backup")


def test_an_empty_file_is_no_backup(tmp_path: Path) -> None:
    (tmp_path / "copy.db").touch()
    refused(tmp_path / "copy.db", tmp_path / "new", "is not a backup: it has no event log")


def test_another_file_is_no_backup(tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_text("dear diary" * 1000)
    refused(tmp_path / "copy.db", tmp_path / "new", "the backup .*: file is not a database")


def test_a_truncated_backup_is_refused(backup: Path, tmp_path: Path) -> None:
    with backup.open("r+b") as file:
        file.truncate(backup.stat().st_size - 4096)
    refused(backup, tmp_path / "new", "the backup .*(malformed|is damaged)")


def test_a_damaged_page_is_found(backup: Path, tmp_path: Path) -> None:
    with backup.open("r+b") as file:
        file.seek(5 * 4096)
        file.write(b"\xff" * 4096)
    refused(backup, tmp_path / "new", "the backup .*(malformed|is damaged)")


def change(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(sql)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("UPDATE events SET body = x'00' WHERE seq = 300", r"event 300 \(.*not what was writ"),
        ("UPDATE events SET at = at + 1 WHERE seq = 17", r"event 17 \(.*not what was written"),
        ("DELETE FROM events WHERE seq = 295", "is damaged: event 295 is missing"),
        ("DELETE FROM events WHERE seq IN (7, 9)", "not removed on purpose: 2"),
        ("UPDATE archived_jobs SET name = 'x'", "the archived job 1 is not what was written"),
        ("UPDATE snapshots SET data = x'00'", "the snapshot after event 290 is not what"),
    ],
)
def test_a_backup_whose_rows_are_damaged_is_refused(
    backup: Path, tmp_path: Path, sql: str, why: str
) -> None:
    change(backup, sql)
    refused(backup, tmp_path / "new", why)


def test_a_backup_of_a_newer_version_is_refused(backup: Path, tmp_path: Path) -> None:
    connection = sqlite3.connect(backup)
    row = connection.execute("SELECT * FROM events WHERE seq = 300").fetchone()
    newer: Any = (*row[:7], 99, row[8])
    query = "UPDATE events SET version = 99, digest = ? WHERE seq = 300"
    connection.execute(query, (event_digest(row[9], newer),))
    connection.commit()
    connection.close()
    refused(backup, tmp_path / "new", "event 300 of the log cannot be read: format 99")


@pytest.mark.parametrize("name", ["100% #1? &mode=rw.db", "spa ce.db", "ünï.db"])
def test_any_file_name_will_do(tmp_path: Path, name: str) -> None:
    home = tmp_path / name
    home.mkdir()
    store = SqliteStore.open(home)
    store.append(some_events(1, 1))
    store.backup(str(tmp_path / f"copy {name}"))
    store.close()
    (home / FILE).unlink()
    assert restore(tmp_path / f"copy {name}", home) == 1


def test_the_file_of_a_stopped_service_is_a_backup_too(backup: Path, tmp_path: Path) -> None:
    assert backup.exists()
    source = tmp_path / "home" / FILE
    before = source.read_bytes()
    assert restore(source, tmp_path / "new") == 300
    assert source.read_bytes() == before


def test_a_restore_that_was_cut_off_is_done_again(backup: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / f"{FILE}.part").write_bytes(b"half")
    assert restore(backup, tmp_path / "new") == 300
    assert [path.name for path in (tmp_path / "new").iterdir()] == [FILE]


def test_a_backup_made_under_way_is_of_one_moment(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path)
    stop = threading.Event()

    def append_on() -> None:
        while not stop.is_set():
            first = store.last_seq() + 1
            store.append(some_events(first, *([first] * 10)), [an_archived(first)])

    writing(append_on, stop, lambda: backups(store, tmp_path))
    store.close()


def backups(store: SqliteStore, folder: Path) -> None:
    for number in range(5):
        before = store.last_seq()
        store.backup(str(folder / f"{number}.db"))
        after = store.last_seq()
        last = restore(folder / f"{number}.db", folder / f"new{number}")
        assert before <= last <= after
        copy = SqliteStore.open(folder / f"new{number}")
        assert seqs(list(copy.records())) == list(range(1, last + 1))
        assert last % 10 == 0
        everything(copy)
        copy.close()


def writing(write: Callable[[], None], stop: threading.Event, read: Callable[[], None]) -> None:
    """Write in another thread while this one reads."""
    writer = threading.Thread(target=write)
    writer.start()
    try:
        read()
    finally:
        stop.set()
        writer.join()
