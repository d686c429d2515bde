"""Records ⇄ bytes. Versioned: what was written once must be readable for ever.

The API may change weekly; history may not. Shapes of shipped events are pinned by a golden
file in the tests. When a shape must change, VERSION grows and UPCASTERS gets a function
that turns the older bytes into the newer form.
"""

from collections.abc import Callable

import msgspec

from allotment.model.errors import StoreError
from allotment.model.events import AnyEvent, Record
from allotment.model.ids import Actor, Seq
from allotment.model.quantity import Instant

VERSION = 1

UPCASTERS: dict[int, Callable[[bytes], bytes]] = {}
"""From the version in the key to the next one."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyEvent)


def encode(event: AnyEvent) -> bytes:
    """Write one event in the newest version."""
    return _encoder.encode(event)


def decode(body: bytes, version: int) -> AnyEvent:
    """Read one event of any version. Raises StoreError when it cannot be."""
    while version < VERSION:
        body = UPCASTERS[version](body)
        version += 1
    if version > VERSION:
        raise StoreError(
            f"an event was written by a newer Allotment (format {version}, this one reads "
            f"up to {VERSION}); run that version"
        )
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise StoreError(f"an event cannot be read: {error}; restore a backup") from error


def join_groups(groups: tuple[str, ...]) -> str:
    """Write group names in one column; a comma cannot stand in one."""
    return ",".join(groups)


def record_of(row: tuple[int, int, str, int | None, str, int, bytes]) -> Record:
    """Make a record of (seq, at, user, uid, groups, version, body)."""
    seq, at, user, uid, groups, version, body = row
    actor = _actor(user, uid, groups)
    return Record(Seq(seq), Instant(at), actor, decode(body, version))


_actors: dict[tuple[str, int | None, str], Actor] = {}


def _actor(user: str, uid: int | None, groups: str) -> Actor:
    """Give the same object for the same actor: a log repeats a few of them."""
    key = (user, uid, groups)
    actor = _actors.get(key)
    if actor is None:
        if len(_actors) > 10_000:
            _actors.clear()
        actor = _actors[key] = Actor(user, uid, tuple(groups.split(",")) if groups else ())
    return actor
