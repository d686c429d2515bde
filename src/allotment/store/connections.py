"""Connections to the SQLite file: one that writes, and a few that read."""

import sqlite3
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.pool import QueuePool

from allotment.model.errors import StoreError

BUSY_S = 10
"""How long to wait for a lock that another connection holds."""

LARGEST_WAL = 64 << 20
"""The -wal file is cut to this many bytes once it was emptied into the database."""

READERS = 4

# Of bytes and None the driver asks, for every value of every row, who would adapt them, and
# binds them as they are when nobody does. One that gives them back is found sooner.
sqlite3.register_adapter(bytes, bytes)
sqlite3.register_adapter(type(None), dict[None, None]().get)


def connect_writer(path: Path) -> sqlite3.Connection:
    """Open for writing, durably: a commit is on disk when it returns.

    Transactions are begun by name. May be used from any thread, by one at a time.
    """
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=BUSY_S
    )
    try:
        _prepare_writer(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare_writer(connection: sqlite3.Connection, path: Path) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        raise StoreError(
            f"the event log {path}: its file system has no shared memory, which the log needs "
            "(a network file system?); put the state folder on a local disk with --state"
        )
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute(f"PRAGMA journal_size_limit={LARGEST_WAL}")
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)


def make_readers(path: Path) -> sa.Engine:
    """Make a pool of connections that cannot write, and never wait for the one that does."""
    url = sa.URL.create("sqlite", database=str(path))
    readers = sa.create_engine(url, poolclass=QueuePool, pool_size=READERS)
    event.listen(readers, "connect", _prepare_reader)
    return readers


def _prepare_reader(connection: sqlite3.Connection, record: object) -> None:  # noqa: ARG001
    connection.execute("PRAGMA query_only=ON")
    connection.execute(f"PRAGMA busy_timeout={1000 * BUSY_S}")
