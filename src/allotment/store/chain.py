"""Checksums over the log: each event's also covers the one before it.

So a row that was changed, lost or put elsewhere is found, and the last checksum stands for all
that came before. Against faults of disks and of hands, not against forgers: it is a CRC, and
costs less than a microsecond an event. Stored for ever: what is computed here never changes.
"""

from typing import NamedTuple
from zlib import crc32

from allotment.model.ids import Seq
from allotment.model.quantity import Instant

Columns = tuple[int, int, str, int | None, str, int | None, str, int, bytes, *tuple[int, ...]]
"""An event as the table keeps it, in the order of its columns: from `seq` to `body`, and what
may stand behind them, which no checksum covers."""


class End(NamedTuple):
    """Where a log ends: its last event, and the checksum that stands for all of them."""

    seq: Seq
    digest: int
    at: Instant


START = End(Seq(0), 0, Instant(0))
"""The end of an empty log."""


def event_digest(before: int, columns: Columns) -> int:
    """Return the checksum of an event that follows the one with the checksum `before`."""
    head = "%s %s %s %s %s %s %s %s " % columns[:8]  # noqa: UP031 - an f-string costs more
    return crc32(head.encode() + columns[8], before)


def snapshot_digest(seq: int, chain: int | None, data: bytes) -> int:
    """Return the checksum of a snapshot, and of the checksum of the event it was taken at."""
    return crc32(_blob(data), crc32(f"{seq} {chain}".encode()))


def archived_digest(columns: tuple[object, ...]) -> int:
    """Return the checksum of an archived job: of its columns from `id` to `document`."""
    *head, document = columns
    return crc32(_blob(document), crc32(repr(head).encode("utf-8", "surrogatepass")))


def _blob(value: object) -> bytes:
    """Return bytes as they are; a damaged row may have something else in their place."""
    return value if isinstance(value, bytes) else repr(value).encode("utf-8", "surrogatepass")
