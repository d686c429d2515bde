"""Records ⇄ bytes. Versioned: what was written once must be readable for ever.

The API may change weekly; history may not. Shapes of shipped events are pinned by a golden
file in the tests. When a shape must change, VERSION grows and UPCASTERS gets a function
that turns the older bytes into the newer form.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from allotment.model.errors import StoreError
from allotment.model.events import AnyEvent, Record
from allotment.model.ids import Actor, JobId, Seq
from allotment.model.quantity import Instant

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


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyEvent)
_groups_encoder = msgspec.json.Encoder()
_groups_decoder = msgspec.json.Decoder(tuple[str, ...])


def row_of(record: Record) -> Row:
    """Write a record in the newest version. Raises StoreError when a value has no bytes."""
    event, actor = record.event, record.actor
    try:
        body = _encoder.encode(event)
        groups = join_groups(actor.groups)
    except (UnicodeError, OverflowError, TypeError) as error:
        raise StoreError(
            f"event {record.seq} ({type(event).__name__}) cannot be written: {error}"
        ) from error
    return Row(
        record.seq,
        record.at,
        actor.user,
        actor.uid,
        groups,
        record.job,
        type(event).__name__,
        VERSION,
        body,
    )


def record_of(row: tuple[int, int, str, int | None, str, int, bytes]) -> Record:
    """Read (seq, at, user, uid, groups, version, body). Raises StoreError, naming the event."""
    seq, at, user, uid, groups, version, body = row
    try:
        event = decode(body, version)
        actor = _actor(user, uid, groups)
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise StoreError(
            f"event {seq} of the log cannot be read: {error}; a newer Allotment wrote it (run "
            "that one), or it is damaged (restore a backup)"
        ) from error
    return Record(Seq(seq), Instant(at), actor, event)


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
    """Write group names in one column. Any name is possible: a directory's has commas."""
    return _groups_encoder.encode(groups).decode() if groups else ""


_actors: dict[tuple[str, int | None, str], Actor] = {}


def _actor(user: str, uid: int | None, groups: str) -> Actor:
    """Give the same object for the same actor."""
    key = (user, uid, groups)
    actor = _actors.get(key)
    if actor is None:
        if len(_actors) >= MOST_ACTORS:
            _actors.clear()
        names = _groups_decoder.decode(groups) if groups else ()
        actor = _actors[key] = Actor(user, uid, names)
    return actor
