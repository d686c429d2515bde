"""What a backend keeps of its tasks, through crashes: in one SQLite file, written in groups.

What comes while the disk is busy is written together when it is done: one flush for many
tasks. A file for each took a flush each, and thousands of tasks may start at once.
"""

import asyncio
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from allotment.model.errors import BackendError
from allotment.model.ids import TaskKey

T = TypeVar("T", bound=msgspec.Struct)
_Change = tuple[str, tuple[int | bytes, ...]]
"""SQL, and its parameters."""

_TABLE = """CREATE TABLE IF NOT EXISTS tasks (
    job INTEGER, attempt INTEGER, task INTEGER, record BLOB NOT NULL,
    PRIMARY KEY (job, attempt, task)) WITHOUT ROWID"""
_KEEP = "INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?)"
_ADD = "INSERT OR IGNORE INTO tasks VALUES (?, ?, ?, ?)"
_READ = "SELECT record FROM tasks WHERE job = ? AND attempt = ? AND task = ?"
_FORGET = "DELETE FROM tasks WHERE job = ?"
_JOBS = "SELECT DISTINCT job FROM tasks"
_ALL = "SELECT record FROM tasks"


class TaskRecords(Generic[T]):
    """Records of one type, by task. One service at a time writes them."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        self._path, self._kind = path, kind
        self._reads: sqlite3.Connection | None = None
        self._writes: sqlite3.Connection | None = None
        self._next: list[_Change] = []
        self._is_done: asyncio.Future[None] | None = None
        """Of `_next`: set when that is on the disk."""
        self._writer: asyncio.Task[None] | None = None

    def make(self, old: Iterable[tuple[TaskKey, bytes]] = ()) -> None:
        """Make the file if there is none, and add `old` records that it does not have. Raises
        BackendError."""
        try:
            if self._writes is None:
                self._writes = _connected(self._path)
            self._writes.execute(_TABLE)
            with self._writes:
                self._writes.executemany(_ADD, ((*_of(key), data) for key, data in old))
        except sqlite3.Error as error:
            raise BackendError(f"records of tasks: {self._path}: {error}") from error

    def jobs(self) -> list[int]:
        """Return the jobs of which anything is kept. Raises BackendError."""
        return [job for (job,) in self._ask(_JOBS, ())]

    def read(self, key: TaskKey) -> T | None:
        """Return what is kept of a task; None for nothing. Raises BackendError."""
        found = self._ask(_READ, _of(key))
        try:
            return msgspec.json.decode(found[0][0], type=self._kind) if found else None
        except msgspec.DecodeError as error:
            # That it cannot be read does not say that it never was.
            raise BackendError(f"what is known of task {key}: {self._path}: {error}") from error

    def all(self) -> list[T]:
        """Return what is kept of each task. Raises BackendError."""
        try:
            return [
                msgspec.json.decode(each, type=self._kind) for (each,) in self._ask(_ALL, ())
            ]
        except msgspec.DecodeError as error:
            raise BackendError(f"what is known of tasks: {self._path}: {error}") from error

    def _ask(self, sql: str, words: tuple[int, ...]) -> list[tuple[Any, ...]]:
        try:
            if self._reads is None:
                if not self._path.exists():
                    return []
                self._reads = _connected(self._path)
            return self._reads.execute(sql, words).fetchall()
        except sqlite3.Error as error:
            raise BackendError(f"records of tasks: {self._path}: {error}") from error

    async def keep(self, key: TaskKey, record: T) -> None:
        """Keep what is known of a task: it is on the disk on return. Raises BackendError."""
        await self._write((_KEEP, (*_of(key), msgspec.json.encode(record))))

    async def forget(self, job: int) -> None:
        """Keep nothing of a job any more. Raises BackendError."""
        await self._write((_FORGET, (job,)))

    async def _write(self, change: _Change) -> None:
        if self._is_done is None:
            self._is_done = asyncio.get_running_loop().create_future()
        self._next.append(change)
        done = self._is_done
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_groups())
        await asyncio.shield(done)

    async def _write_groups(self) -> None:
        """Write all that waits, then all that came meanwhile, in the order in which it came."""
        try:
            while self._is_done is not None:
                group, done = self._next, self._is_done
                self._next, self._is_done = [], None
                try:
                    await asyncio.to_thread(self._commit, group)
                except Exception as error:  # whatever it is, each that waits is told
                    why = f"records of tasks cannot be kept: {self._path}: {error}"
                    done.set_exception(BackendError(why))
                    done.exception()  # Those that asked may have left.
                else:
                    done.set_result(None)
        finally:
            self._writer = None

    def _commit(self, group: list[_Change]) -> None:
        if self._writes is None:
            raise sqlite3.ProgrammingError("it is closed")
        with self._writes:
            self._writes.execute("BEGIN")
            for change in group:
                self._writes.execute(*change)

    async def close(self) -> None:
        """Write what waits, and close the file."""
        if self._writer is not None:
            await asyncio.wait({self._writer})
        for connection in (self._reads, self._writes):
            if connection is not None:
                connection.close()
        self._reads = self._writes = None


def _connected(path: Path) -> sqlite3.Connection:
    # Each group is written in some thread, one after the other.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _of(key: TaskKey) -> tuple[int, int, int]:
    return key.job, key.attempt, key.index
