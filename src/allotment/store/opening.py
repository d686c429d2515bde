"""What stands before the use of a log: is it the one that was written here, to its end?

Nothing is changed while that is not sure: SQLite itself would drop the -wal of an emptied
file, and empty a torn one into it. Only who says so goes on with less than was written.
"""

import shutil
import sqlite3
import time
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog
from msgspec.structs import replace

from allotment.model.errors import StoreError
from allotment.model.quantity import Instant
from allotment.service.ports import Snapshot
from allotment.store import queries
from allotment.store.chain import START, End
from allotment.store.examine import Damage, Finding, compare, find_end, notes, reading, short
from allotment.store.mark import FILE as MARK
from allotment.store.mark import Marker, read_mark
from allotment.store.migrate import newest, revision

CUT = (
    "DELETE FROM archived_jobs WHERE id IN (SELECT job FROM events WHERE seq > :good) "
    "AND id NOT IN (SELECT job FROM events WHERE seq <= :good AND job IS NOT NULL)",
    "DELETE FROM events WHERE seq > :good",
    "DELETE FROM snapshots WHERE seq > :good",
    "UPDATE notes SET value = :good - (SELECT count(*) FROM events) WHERE name = 'pruned'",
    "UPDATE notes SET value = 0 WHERE name = 'marked'",
)
"""Take back all after an event, and have the mark begin anew."""

log = structlog.get_logger("allot.store")


class Loss(msgspec.Struct, frozen=True):
    """What an administrator chose to go on without."""

    because: str
    events: int
    """0 when it is not known how many."""
    until: Instant
    kept: str
    """Where a copy of the damaged files is."""


class Looked(NamedTuple):
    """What a look at a log found, before it is used."""

    found: Finding | None
    """Its end, and that it is whole; None where it is yet to be made, migrated or cut."""
    loss: Loss | None


class Opening(NamedTuple):
    """What a log begins its use with."""

    end: End
    snapshot: Snapshot | None
    marker: Marker
    loss: Loss | None


def make_sure(path: Path, accept_loss: bool) -> Looked:
    """Raise StoreError for a log that is not whole, or repair it where its loss is accepted.

    The error says what is damaged, what is still good, and what to do.
    """
    found = _look(path)
    damage = found and found.damage
    if damage is None:
        return Looked(found, None)
    if not accept_loss or damage.good is None:
        raise StoreError(f"the event log {path} is damaged: {damage.text}. {_advice(damage)}")
    kept = _keep_aside(path)
    if path.exists():
        _cut(path, damage.good)
    log.warning("events are lost", events=damage.lost, why=damage.text, kept=kept)
    return Looked(None, Loss(damage.text, damage.lost, damage.until, kept))


def begin(path: Path, writer: sqlite3.Connection, looked: Looked) -> Opening:
    """Find where the log goes on, mark it, and note that it has a mark from now on.

    A log that was looked at and found whole is not read again: it is ours alone meanwhile.
    """
    found = looked.found or find_end(writer)
    if found.damage is not None:
        raise StoreError(f"the event log {path} is damaged: {found.damage.text}")
    for seq in found.bad_snapshots:
        log.warning("a damaged snapshot is dropped; the log has what it said", seq=seq)
        writer.execute("DELETE FROM snapshots WHERE seq = ?", (seq,))
    marker = Marker(path.with_name(MARK), found.end)
    try:
        if not notes(writer)["marked"]:
            writer.execute(queries.NOTE, (1, "marked"))
            # Into the file itself: whoever loses the -wal shall not lose this.
            writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except BaseException:
        marker.close()
        raise
    return Opening(found.end, found.snapshot, marker, looked.loss)


# ── looking ─────────────────────────────────────────────────────────────────────────────


def _look(path: Path) -> Finding | None:
    """Return a log's end and what is wrong with it, changing nothing. StoreError if it is none.

    None where there is no log yet, or one of before.
    """
    mark = read_mark(path.with_name(MARK))
    if path.exists() and not path.is_file():
        raise StoreError(f"{path} is not a file; move it away")
    if not path.exists() or not path.stat().st_size:
        _keep_wal(path)
        return Finding(START, short(START, mark)) if mark and mark.end.seq else None
    if revision(path) != newest():
        return None  # Written before there were marks: they begin when it is migrated.
    with reading(path) as connection:
        found = find_end(connection)
        if found.damage is not None or not notes(connection).get("marked"):
            return found
        return replace(found, damage=compare(connection, found.end, mark))


def _keep_wal(path: Path) -> None:
    """Keep SQLite from deleting the -wal of a log that was moved away without it."""
    wal = beside(path)[0]
    if not path.exists() and wal.exists() and wal.stat().st_size:
        raise StoreError(
            f"{wal} holds the newest events of a log that is not there; put {path.name} back "
            "beside it, or move it away too"
        )


def beside(path: Path) -> tuple[Path, Path]:
    """Return the files that SQLite keeps beside a log."""
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def _advice(damage: Damage) -> str:
    restore = (
        "Nothing was changed. Put the file back as it was, with its -wal; or move it, its -wal "
        "and its -shm away and `allot restore` the last backup"
    )
    if damage.good is None:
        return restore
    return (
        f"{restore}; or continue with the good part, without the rest: `allot up "
        "--accept-loss`. Copies of the damaged files are kept then"
    )


# ── going on with less ──────────────────────────────────────────────────────────────────


def _keep_aside(path: Path) -> str:
    """Copy what is there, for whoever can read more of it; return the folder."""
    folder = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    folder.mkdir(mode=0o700)
    for file in (path, beside(path)[0], path.with_name(MARK)):
        if file.exists():
            shutil.copy2(file, folder / file.name)
    if path.exists() and not path.stat().st_size:
        for file in (path, *beside(path)):
            file.unlink(missing_ok=True)
    return str(folder)


def _cut(path: Path, good: End) -> None:
    """Take back what stands after the last good event."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        for statement in CUT:
            connection.execute(statement, {"good": good.seq})
        connection.execute("COMMIT")
    finally:
        connection.close()
