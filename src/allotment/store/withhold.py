"""Takes the secrets of jobs out of a copy of the log: their names stay, their values go."""

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from allotment.model.spec import WITHHELD
from allotment.store.chain import archived_digest, event_digest, snapshot_digest

SECRETS = "secrets"
PAGE = 500
BREATH_S = 0.001
"""After each page: others of this process have work too."""

Event = tuple[int, int, str, int | None, str, int | None, str, int, bytes, int, int]


def withhold_secrets(path: Path) -> None:
    """Replace every secret in a copy that nobody uses, and chain its events anew."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        # What is replaced leaves no trace: not in the file, not in a journal beside it.
        connection.execute("PRAGMA secure_delete=ON")
        connection.execute("PRAGMA journal_mode=MEMORY")
        connection.execute("BEGIN IMMEDIATE")
        _archive(connection)
        _chain(connection)
        connection.execute("COMMIT")
    finally:
        connection.close()


def _archive(connection: sqlite3.Connection) -> None:
    query = "SELECT * FROM archived_jobs WHERE instr(document, ?) ORDER BY id"
    for row in connection.execute(query, (SECRETS.encode(),)).fetchall():
        columns = (*row[:8], without(row[8]))
        connection.execute(
            "UPDATE archived_jobs SET document = ?, digest = ? WHERE id = ?",
            (columns[8], archived_digest(columns), row[0]),
        )


def _chain(connection: sqlite3.Connection) -> None:
    """Write every event's checksums anew; and those of snapshots, once their event has its."""
    snapshots = connection.execute("SELECT seq, data, chain FROM snapshots ORDER BY seq")
    waiting: list[tuple[int, bytes, int | None]] = snapshots.fetchall()
    before = 0
    for page in _pages(connection):
        changed: list[tuple[bytes, int, int, int]] = []
        for row in page:
            while waiting and waiting[0][0] < row[0]:
                _snapshot(connection, waiting.pop(0), before)
            columns = (*row[:8], without(row[8]))
            digest = event_digest(before, columns)
            changed.append((columns[8], before, digest, row[0]))
            before = digest
        connection.executemany(
            "UPDATE events SET body = ?, before = ?, digest = ? WHERE seq = ?", changed
        )
        time.sleep(BREATH_S)
    for snapshot in waiting:
        _snapshot(connection, snapshot, before)


def _snapshot(
    connection: sqlite3.Connection, snapshot: tuple[int, bytes, int | None], chain: int
) -> None:
    seq, data = snapshot[0], without(snapshot[1])
    connection.execute(
        "UPDATE snapshots SET data = ?, chain = ?, digest = ? WHERE seq = ?",
        (data, chain, snapshot_digest(seq, chain, data), seq),
    )


def _pages(connection: sqlite3.Connection) -> Iterator[list[Event]]:
    last = 0
    query = "SELECT * FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
    while page := connection.execute(query, (last, PAGE)).fetchall():
        yield page
        last = page[-1][0]


def without(data: bytes) -> bytes:
    """Return an encoded value with every secret in it replaced."""
    if SECRETS.encode() not in data:
        return data
    value = msgspec.msgpack.decode(data, strict=False)
    _replace(value)
    return msgspec.msgpack.encode(value)


def _replace(value: object) -> None:
    """Go through a decoded value; a spec's secrets are a list of pairs below their name."""
    if isinstance(value, list):
        for each in value:  # pyright: ignore[reportUnknownVariableType]
            _replace(each)  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, dict):
        for name, each in value.items():  # pyright: ignore[reportUnknownVariableType]
            if name == SECRETS and isinstance(each, list):
                value[name] = [[pair[0], WITHHELD] for pair in each]  # pyright: ignore
            else:
                _replace(each)  # pyright: ignore[reportUnknownArgumentType]
