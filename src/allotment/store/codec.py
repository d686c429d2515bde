"""Records ⇄ bytes. Versioned: what was written once must be readable for ever.

The API may change weekly; history may not. Shapes of shipped events are pinned by a golden
file in the tests. When a shape must change, VERSION grows and UPCASTERS gets a function
that turns the older bytes into the newer form.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from allotment.model.errors import StoreError
from allotment.model.events import AnyEvent, Record
from allotment.model.ids import Actor, JobId, Seq
from allotment.model.quantity import Instant
from allotment.store.chain import event_digest

VERSION = 1

UPCASTERS: dict[int, Callable[[bytes], bytes]] = {}
"""From the version in the key to the next one."""

MOST_ACTORS = 10_000
"""Actors remembered while reading; a log repeats a few of them."""


class Row(NamedTuple):
    """A record as the table `events` keeps it, in the order of its columns."""

    seq: Seq
    at: Instant
    user: str
    uid: int | None
    groups: str
    job: JobId | None
    kind: str
    version: int
    body: bytes
    before: int
    digest: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyEvent)
_groups_encoder = msgspec.json.Encoder()
_groups_decoder = msgspec.json.Decoder(tuple[str, ...])


def rows_of(records: Sequence[Record], before: int) -> list[Row]:
    """Return records as rows of the newest version, chained to the checksum before them.

    Raises StoreError when a value cannot be encoded.
    """
    rows: list[Row] = []
    for record in records:
        rows.append(_row_of(record, before))
        before = rows[-1].digest
    return rows


def _row_of(record: Record, before: int) -> Row:
    event, actor = record.event, record.actor
    try:
        columns = (
            record.seq,
            record.at,
            actor.user,
            actor.uid,
            join_groups(actor.groups),
            record.job,
            type(event).__name__,
            VERSION,
            _encoder.encode(event),
        )
        return Row(*columns, before, event_digest(before, columns))
    except (UnicodeError, OverflowError, TypeError) as error:
        raise StoreError(
            f"event {record.seq} ({type(event).__name__}) cannot be written: {error}"
        ) from error


def record_of(row: Row) -> Record:
    """Read an event, given with all columns in order. Raises StoreError, naming the event."""
    seq, at, user, uid, groups, _job, _kind, version, body, before, digest = row
    if event_digest(before, row[:9]) != digest:
        raise StoreError(damaged(seq))
    try:
        event = decode(body, version)
        actor = _actor(user, uid, groups)
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise StoreError(
            f"event {seq} of the log cannot be read: {error}; a newer Allotment wrote it: run "
            "that one"
        ) from error
    return Record(Seq(seq), Instant(at), actor, event)


def damaged(seq: int) -> str:
    """Return a message that an event is not what was written."""
    return (
        f"event {seq} of the log is damaged: its checksum does not match; `allot doctor` says "
        "what else is, and a backup has it whole"
    )


def decode(body: bytes, version: int) -> AnyEvent:
    """Read an event of any version.

    Raises msgspec.DecodeError, ValueError or TypeError when it is none.
    """
    while version < VERSION:
        upcast = UPCASTERS.get(version)
        if upcast is None:
            raise msgspec.DecodeError(f"there is no format {version}")
        body = upcast(body)
        version += 1
    if version > VERSION:
        raise msgspec.DecodeError(f"format {version}, and this version reads up to {VERSION}")
    return _decoder.decode(body)


def join_groups(groups: tuple[str, ...]) -> str:
    """Return group names as one text. Any name is possible: some have commas."""
    return _groups_encoder.encode(groups).decode() if groups else ""


_actors: dict[tuple[str, int | None, str], Actor] = {}


def _actor(user: str, uid: int | None, groups: str) -> Actor:
    """Return the same object for the same actor."""
    key = (user, uid, groups)
    actor = _actors.get(key)
    if actor is None:
        if len(_actors) >= MOST_ACTORS:
            _actors.clear()
        names = _groups_decoder.decode(groups) if groups else ()
        actor = _actors[key] = Actor(user, uid, names)
    return actor
