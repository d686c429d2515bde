"""Is the log whole, to its end? Looked at before anything is written, and by the doctor.

A start looks at what it reads: the newest snapshot, the events after it, and whether they
come as far as the mark says they were written. The doctor looks at every row.
"""

import contextlib
import sqlite3
from collections.abc import Generator, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from allotment.model.ids import Seq
from allotment.model.quantity import Instant
from allotment.service.ports import Snapshot
from allotment.store.chain import (
    START,
    End,
    archived_digest,
    event_digest,
    snapshot_digest,
)
from allotment.store.mark import FILE as MARK
from allotment.store.mark import Mark, read_mark
from allotment.store.migrate import newest, revision

PATIENCE_S = 10.0
MOST_TOLD = 5
"""Findings of one kind that the doctor lists."""

TAIL = "SELECT * FROM events WHERE seq > ? ORDER BY seq"
SNAPSHOTS = "SELECT seq, data, chain, digest FROM snapshots ORDER BY seq DESC"
UNKEPT = (
    "SELECT job FROM events WHERE kind = 'JobArchived' "
    "AND job NOT IN (SELECT id FROM archived_jobs) ORDER BY seq"
)


class Damage(msgspec.Struct, frozen=True):
    """What is wrong with a log: the words say what, where, and what is still good."""

    text: str
    good: End | None = None
    """The log may go on from here, if somebody says so; None if it cannot."""
    lost: int = 0
    """Events that are known to be missing after `good`."""
    until: Instant = Instant(0)
    """When the last of them was recorded; 0 if that is not known."""


class Finding(msgspec.Struct, frozen=True):
    """What a look at a log's end found."""

    end: End
    damage: Damage | None = None
    bad_snapshots: tuple[Seq, ...] = ()
    """Not needed: an older one, or the events themselves, say the same."""
    snapshot: Snapshot | None = None
    """The newest that is whole."""


@contextlib.contextmanager
def reading(path: Path) -> Generator[sqlite3.Connection]:
    """Open a log without changing anything: damage stays to be looked at."""
    source = f"file:{quote(str(path))}?mode=ro"
    connection = sqlite3.connect(source, uri=True, timeout=PATIENCE_S)
    try:
        yield connection
    finally:
        connection.close()


def _text(data: bytes) -> str:
    """Read what may be damaged: its checksum says so."""
    return data.decode(errors="replace")


def notes(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the notes that the log keeps of itself, by name."""
    return dict(connection.execute("SELECT name, value FROM notes"))


# ── the end ─────────────────────────────────────────────────────────────────────────────


def find_end(connection: sqlite3.Connection) -> Finding:
    """Return where the log ends, from its newest whole snapshot to its last event."""
    newest, bad = 0, list[Seq]()
    base, snapshot = START, None
    for seq, data, chain, digest in connection.execute(SNAPSHOTS):
        newest = max(newest, seq)
        if snapshot_digest(seq, chain, data) == digest:
            base, snapshot = End(Seq(seq), chain, Instant(0)), Snapshot(Seq(seq), data)
            break
        bad.append(Seq(seq))
    end, wrong = _follow(connection, base)
    if end.seq < newest:
        text = (
            f"the snapshot after event {newest} is damaged, and {wrong or 'no event is left'}"
        )
        return Finding(end, Damage(f"{text}, so the state of that time cannot be restored"))
    if wrong:
        last = _last(connection)
        return Finding(end, _damaged_from(end, wrong, last), tuple(bad))
    return Finding(end, None, tuple(bad), snapshot)


def _follow(connection: sqlite3.Connection, end: End) -> tuple[End, str]:
    """Go on from one event to the last that is whole and next; return what is wrong there."""
    try:
        return _followed(connection, end)
    except sqlite3.OperationalError as error:
        if "decode" not in str(error) or connection.text_factory is _text:
            raise
        # Only now: to read text that may be damaged takes longer than its checksum.
        connection.text_factory = _text
        return _followed(connection, end)


def _followed(connection: sqlite3.Connection, end: End) -> tuple[End, str]:
    seq, digest, at = end
    wrong = ""
    for row in connection.execute(TAIL, (seq,)):
        is_next = row[0] == seq + 1
        wrong = _wrong_with(row, digest) if is_next else _gap(seq + 1, row[0] - 1)
        if wrong:
            break
        seq, digest, at = row[0], row[10], row[1]
    return End(Seq(seq), digest, Instant(at)), wrong


def _gap(first: int, last: int) -> str:
    return (
        f"event {first} is missing"
        if first == last
        else f"events {first} to {last} are missing"
    )


def _wrong_with(row: tuple[Any, ...], before: int | None) -> str:
    """Return what is wrong with an event, and with its place behind another; '' if nothing."""
    try:
        is_as_written = event_digest(row[9], row) == row[10]
    except TypeError:  # a flipped type: bytes are text now, or a number is none
        is_as_written = False
    if not is_as_written:
        return f"event {row[0]} ({_of(row)}) is not what was written"
    if before is not None and row[9] != before:
        return f"event {row[0]} ({_of(row)}) does not follow event {row[0] - 1} as it is now"
    return ""


def _of(row: tuple[Any, ...]) -> str:
    job = f" of job {row[5]}" if row[5] is not None else ""
    return f"{row[6]}{job}, {when(row[1])}"


def _last(connection: sqlite3.Connection) -> End:
    row = connection.execute("SELECT seq, digest, at FROM events ORDER BY seq DESC").fetchone()
    return End(*row)


def _damaged_from(good: End, wrong: str, last: End) -> Damage:
    text = f"{wrong}. What came before is complete: {_until(good)}"
    return Damage(text, good, last.seq - good.seq, last.at)


def _until(end: End) -> str:
    if not end.seq:
        return "nothing"
    at = f", of {when(end.at)}" if end.at else ""
    return f"events up to {end.seq}{at}"


def when(at: int) -> str:
    """Write an instant, in ms since the epoch, as UTC."""
    try:
        moment = datetime.fromtimestamp(at / 1000, UTC)
    except (OverflowError, ValueError, OSError, TypeError):
        return f"at {at}"
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


# ── the mark ────────────────────────────────────────────────────────────────────────────


def compare(connection: sqlite3.Connection, end: End, mark: Mark | None) -> Damage | None:
    """Return how the log differs from its mark; None where it agrees with it."""
    if mark is None:
        return Damage(
            "its mark, which says how far it was written, is missing or cannot be read, so "
            f"nothing shows whether its end is there. What there is: {_until(end)}",
            end,
        )
    if mark.end.seq > end.seq:
        return short(end, mark)
    known = _digest_at(connection, mark.end.seq, end)
    if known is not None and known != mark.end.digest:
        return Damage(
            f"it is not the log that was written here: event {mark.end.seq} is another one "
            "than its mark says (a copy put in place by hand?)",
            end,
        )
    return None


def short(end: End, mark: Mark) -> Damage:
    """Return the damage of a log that lost its end."""
    lost = mark.end.seq - end.seq
    events = "1 event was" if lost == 1 else f"{lost} events were"
    more = f" after those that are there ({_until(end)})" if end.seq else ""
    what = "its end is lost" if end.seq else "it is empty or gone"
    return Damage(
        f"{what}: {events} written{more}, the last on {when(mark.end.at)}",
        end,
        lost,
        mark.end.at,
    )


def _digest_at(connection: sqlite3.Connection, seq: int, end: End) -> int | None:
    """Find the checksum of an event; None if it was forgotten since."""
    if seq == end.seq:
        return end.digest
    asked = (
        "SELECT digest FROM events WHERE seq = ?",
        "SELECT chain FROM snapshots WHERE seq = ?",
    )
    found = (connection.execute(query, (seq,)).fetchone() for query in asked)
    return next((row[0] for row in found if row), None)


def doubts(path: Path) -> list[str] | None:
    """Return everything that is wrong with the log of a folder; None if there never was one.

    A service may be writing to it. Raises StoreError or sqlite3.Error for what is no log.
    """
    mark = read_mark(path.with_name(MARK))  # First: the log may be ahead of it, not behind.
    if not path.exists() or not path.stat().st_size:
        return [short(START, mark).text] if mark and mark.end.seq else None
    with reading(path) as connection:
        connection.text_factory = _text
        if revision(path) != newest():
            return list(_wrong_pages(connection))  # Of before there were checksums.
        connection.execute("BEGIN")  # one moment, whatever is written meanwhile
        found = find_end(connection)
        is_marked = bool(notes(connection).get("marked"))
        damage = found.damage or (compare(connection, found.end, mark) if is_marked else None)
        told = [damage.text] if damage else []
        return told + [wrong for wrong in everything_wrong(connection) if wrong not in told]


# ── all of it ───────────────────────────────────────────────────────────────────────────


def everything_wrong(connection: sqlite3.Connection) -> Iterator[str]:
    """Look at every row and every index; return all damage."""
    yield from _wrong_pages(connection)
    yield from _some(_wrong_events(connection), "events are damaged")
    yield from _some(_wrong_archived(connection), "archived jobs are damaged")
    for seq, data, chain, digest in connection.execute(SNAPSHOTS):
        if snapshot_digest(seq, chain, data) != digest:
            yield f"the snapshot after event {seq} is not what was written"


def _wrong_pages(connection: sqlite3.Connection) -> Iterator[str]:
    for (verdict,) in connection.execute(f"PRAGMA integrity_check({MOST_TOLD})"):
        if verdict != "ok":
            yield f"the file is damaged: {verdict}"


def _some(found: Iterable[str], more: str) -> Iterator[str]:
    """Return the first few, and a count of all if there are more."""
    count = 0
    for count, each in enumerate(found, 1):
        if count <= MOST_TOLD:
            yield each
    if count > MOST_TOLD:
        yield f"in all, {count} {more}"


def _wrong_events(connection: sqlite3.Connection) -> Iterator[str]:
    last, before, kept = 0, 0, 0
    for row in connection.execute(TAIL, (-1,)):
        if wrong := _wrong_with(row, before if row[0] == last + 1 else None):
            yield wrong
        last, before, kept = row[0], row[10], kept + 1
    (snapshot,) = connection.execute("SELECT max(seq) FROM snapshots").fetchone()
    missing = max(last, snapshot or 0) - kept - notes(connection).get("pruned", 0)
    if missing:
        yield f"events are missing that were not removed on purpose: {missing}"


def _wrong_archived(connection: sqlite3.Connection) -> Iterator[str]:
    for row in connection.execute("SELECT * FROM archived_jobs ORDER BY id"):
        if archived_digest(row[:9]) != row[9]:
            yield f"the archived job {row[0]} is not what was written"
    for (job,) in connection.execute(UNKEPT):
        yield f"job {job} was archived, and is not in the archive"
