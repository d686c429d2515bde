"""The plain bytes of a layer, which may be packed with gzip or zstd; few at a time.

A layer says by its first bytes how it is packed. What unpacks it is imported with this module:
when a layer comes, nothing can be imported any more.
"""

import zlib
from collections.abc import Iterator
from typing import IO, Final

try:
    import zstandard
except ImportError:  # a process that sees no installed libraries
    zstandard = None

PIECE: Final = 1 << 18
"""Bytes at a time, at most."""
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = (
    b"\x28\xb5\x2f\xfd",
    *(bytes([kind]) + b"\x2a\x4d\x18" for kind in range(0x50, 0x60)),
)
"""What a frame begins with: one of data, or one to be skipped."""
_LITTLE: Final = 1 << 8
"""Bytes packed with zstd at a time. Four can stand for 128 KiB, so at most 8 MiB come."""
_MOST_WINDOW: Final = 1 << 27
"""Bytes of memory that a frame may need; the program `zstd` takes no more by itself."""


class Unreadable(Exception):
    """A layer cannot be decompressed; the text says why."""


def pieces(source: IO[bytes]) -> Iterator[bytes]:
    """Yield a layer's plain bytes; some pieces are empty.

    Raises Unreadable, and EOFError where it ends too early.
    """
    raw = source.read(_LITTLE)
    if raw.startswith(_GZIP):
        yield from _inflated(raw, source)
    elif raw.startswith(_ZSTD):
        yield from _unzstd(raw, source)
    else:
        while raw:
            yield raw
            raw = source.read(PIECE)


def _inflated(raw: bytes, source: IO[bytes]) -> Iterator[bytes]:
    member = zlib.decompressobj(wbits=31)
    while raw:
        try:
            piece = member.decompress(raw, PIECE)
        except zlib.error as error:
            raise Unreadable(str(error)) from error
        yield piece
        if member.eof:
            raw = member.unused_data or source.read(PIECE)
            member = zlib.decompressobj(wbits=31)
        elif not (raw := member.unconsumed_tail or source.read(PIECE)):
            raise EOFError


def _unzstd(raw: bytes, source: IO[bytes]) -> Iterator[bytes]:
    if zstandard is None:
        raise Unreadable(
            "it is packed with zstd, which its kind in the manifest has to say, and for which "
            "the library zstandard has to be installed"
        )
    context = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW)
    frame = context.decompressobj()
    while raw:
        try:
            piece = frame.decompress(raw)
        except zstandard.ZstdError as error:
            raise Unreadable(str(error)) from error
        for start in range(0, len(piece), PIECE):
            yield piece[start : start + PIECE]
        if frame.eof:
            raw = frame.unused_data or source.read(_LITTLE)
            frame = context.decompressobj()
        elif not (raw := source.read(_LITTLE)):
            raise EOFError
