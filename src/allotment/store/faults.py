"""The database's complaints in our words: what, where, and what to do next."""

import contextlib
import shutil
import sqlite3
from collections.abc import Generator
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from allotment.model.errors import StoreError

WRITABLE = "make the file and its folder writable for the user that the service runs as"
RESTORE = "move it away, with its -wal and -shm if there, then `allot restore BACKUP`"

FULL = 64 << 10
"""With fewer bytes free than this, SQLite cannot even open its files."""

HINTS = {
    "disk is full": "free space on that disk; the service then continues by itself",
    "no space left": "free space on that disk; the service then continues by itself",
    "quota exceeded": "free space there; the service then continues by itself",
    "readonly": WRITABLE,
    "read-only": WRITABLE,
    "permission denied": WRITABLE,
    "not permitted": WRITABLE,
    "unable to open": "check that the folder exists and is writable",
    "not a database": f"the file is not an event log: {RESTORE}",
    "malformed": f"the file is damaged: {RESTORE}",
    "no such table": f"the file is damaged: {RESTORE}",
    "no such column": f"the file is damaged: {RESTORE}",
    "duplicate column": f"the file is damaged: {RESTORE}",
    "could not decode": f"the file is damaged: {RESTORE}",
    "disk i/o error": "check the disk and its space (dmesg, df)",
    "locked": "another program has the file open: end it",
    "unique constraint": "another program writes to it: end it, then restart the service",
}


@contextlib.contextmanager
def explained(what: str, path: Path) -> Generator[None]:
    """Turn every fault of the database or the file system into a StoreError."""
    try:
        yield
    except (sqlite3.Error, SQLAlchemyError, OSError, OverflowError, UnicodeError) as error:
        raise StoreError(explain(what, path, error)) from error


def explain(what: str, path: Path, error: Exception) -> str:
    """Write a fault down, with a hint where one is known."""
    cause = getattr(error, "orig", None) or error
    words = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    if "disk i/o error" in words.lower() and _is_full(path.parent):
        words = f"{words}, the disk is full"
    hint = next((hint for part, hint in HINTS.items() if part in words.lower()), "")
    return f"{what} {path}: {words}" + (f"; {hint}" if hint else "")


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < FULL
    except OSError:
        return False
