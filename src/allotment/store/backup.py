"""Copies of the event log: written beside a running service, checked before they are used."""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from allotment.model.errors import StoreError
from allotment.model.ids import Seq
from allotment.rights.writing import sync
from allotment.store import codec, queries
from allotment.store.examine import TAIL, everything_wrong, find_end, reading
from allotment.store.faults import explain, explained
from allotment.store.migrate import revision, upgrade
from allotment.store.withhold import withhold_secrets

FLUSH_EVERY_S = 0.02


# ── writing ─────────────────────────────────────────────────────────────────────────────


def copy_database(source: Path, target: Path, *, without_secrets: bool = False) -> None:
    """Write what the source has now to a new file, durable on return. Raises StoreError.

    The source may be in use; its writers do not wait.
    """
    with _new_file(target), reading(source) as connection:
        try:
            with _flushed_meanwhile(target):
                connection.execute("VACUUM INTO ?", (str(target),))
                if without_secrets:
                    withhold_secrets(target)
        except sqlite3.OperationalError:
            raise  # About the target: full, or not writable.
        except sqlite3.DatabaseError as error:
            raise StoreError(explain("cannot copy", source, error)) from error


@contextlib.contextmanager
def _flushed_meanwhile(path: Path) -> Generator[None]:
    """See a file to the disk bit by bit while it grows.

    Otherwise whoever else waits for the disk waits at the end for all of it.
    """
    over = threading.Event()

    def flush() -> None:
        while not over.wait(FLUSH_EVERY_S):
            os.fdatasync(fd)

    fd = os.open(path, os.O_RDONLY)
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="flush") as flusher:
            flushing = flusher.submit(flush)
            try:
                yield
            finally:
                over.set()
            flushing.result()  # a fault of the disk is told once, and this may have been it
    finally:
        os.close(fd)


@contextlib.contextmanager
def _new_file(path: Path) -> Generator[None]:
    """Make an empty file of our own, let it be filled, see it to the disk; or leave none."""
    with explained("cannot write", path):
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise StoreError(f"{path} exists already; name a file that does not") from None
        try:
            yield
            sync(path)
            sync(path.parent)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


# ── checking ────────────────────────────────────────────────────────────────────────────


def checked_copy(source: Path, target: Path) -> Seq:
    """Copy a backup to a new file, of the newest schema; return the number of its last event.

    Raises StoreError, leaving no file, when it is damaged or nothing could be replayed.
    """
    with explained("the backup", source):
        _check_pages(source)
    copy_database(source, target)
    try:
        with explained("cannot write", target):
            upgrade(target)
            last = _checked(target, source)
            sync(target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return last


def _check_pages(source: Path) -> None:
    if not source.is_file():
        raise StoreError(f"there is no backup {source}")
    if not revision(source):
        raise StoreError(f"{source} is not a backup: it has no event log")
    with reading(source) as connection:
        (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok":
        raise StoreError(f"the backup {source} is damaged: {verdict}; use an older one")


def _checked(path: Path, source: Path) -> Seq:
    """Look at every row; have the mark begin anew where it is put; return the last event."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        found = find_end(connection)
        wrong = found.damage.text if found.damage else next(everything_wrong(connection), "")
        if wrong:
            raise StoreError(f"the backup {source} is damaged: {wrong}; use an older one")
        _decode_all(connection)
        connection.execute(queries.NOTE, (0, "marked"))
        return found.end.seq


def _decode_all(connection: sqlite3.Connection) -> None:
    """Read every event that a start would. Raises StoreError for one of a newer Allotment."""
    (snapshot,) = connection.execute("SELECT max(seq) FROM snapshots").fetchone()
    for _ in codec.records_of(connection.execute(TAIL, (snapshot or 0,))):
        pass
