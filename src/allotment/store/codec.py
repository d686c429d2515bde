"""Records ⇄ bytes. Versioned: what was written once must be readable for ever.

The API may change weekly; history may not. Shapes of shipped events are pinned by a golden
file in the tests. When a shape must change, VERSION grows and UPCASTERS gets a function
that turns the older bytes into the newer form.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from allotment.model.errors import StoreError
from allotment.model.events import AnyEvent, Record
from allotment.model.ids import SYSTEM, Actor, Seq
from allotment.model.quantity import Instant
from allotment.store.chain import event_digest

VERSION = 1

UPCASTERS: dict[int, Callable[[bytes], bytes]] = {}
"""From the version in the key to the next one."""

MOST_ACTORS = 10_000
"""Actors remembered while reading; a log repeats a few of them."""


Row = tuple[Seq, Instant, str, int | None, str, int | None, str, int, bytes, int, int]
"""A record as the table `events` keeps it, in the order of its columns: `chain.Columns`, and
then the checksum before it and its own. A plain tuple is made and bound in half the time of a
named one."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyEvent)
_groups_encoder = msgspec.json.Encoder()
_groups_decoder = msgspec.json.Decoder(tuple[str, ...])


def rows_of(records: Sequence[Record], before: int) -> list[Row]:
    """Return records as rows of the newest version, chained to the checksum before them.

    Raises StoreError when a value cannot be encoded.
    """
    rows: list[Row] = []
    actor, groups = SYSTEM, ""  # of the event before: many have the same
    for record in records:
        event = record.event
        kind = type(event).__name__
        try:
            if record.actor is not actor:
                actor = record.actor
                groups = join_groups(actor.groups)
            columns = (
                record.seq,
                record.at,
                actor.user,
                actor.uid,
                groups,
                record.job,
                kind,
                VERSION,
                _encoder.encode(event),
            )
            digest = event_digest(before, columns)
        except (UnicodeError, OverflowError, TypeError) as error:
            raise StoreError(
                f"event {record.seq} ({kind}) cannot be written: {error}"
            ) from error
        rows.append((*columns, before, digest))
        before = digest
    return rows


def records_of(rows: Iterable[Row]) -> Iterator[Record]:
    """Read events, each given with all columns in order. Raises StoreError, naming the event.

    In one loop: a start reads tens of thousands, and calls would be a third of its time.
    """
    for row in rows:
        seq, at, user, uid, groups, _job, _kind, version, body, before, digest = row
        if event_digest(before, row) != digest:
            raise StoreError(damaged(seq))
        try:
            event = _decoder.decode(body) if version == VERSION else decode(body, version)
            actor = _actors.get((user, uid, groups)) or _actor(user, uid, groups)
        except (msgspec.DecodeError, ValueError, TypeError) as error:
            raise StoreError(
                f"event {seq} of the log cannot be read: {error}; a newer Allotment wrote it: "
                "run that one"
            ) from error
        yield Record(seq, at, actor, event)


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
    """Make an actor, and keep it for whatever else it did."""
    if len(_actors) >= MOST_ACTORS:
        _actors.clear()
    names = _groups_decoder.decode(groups) if groups else ()
    actor = _actors[user, uid, groups] = Actor(user, uid, names)
    return actor
