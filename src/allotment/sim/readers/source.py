"""A stored trace as pieces of text, plain, gzip or zstd, never more than a little in memory."""

import codecs
import hashlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import BinaryIO

from allotment.sim.trace import BadTrace

LONGEST_LINE = 1 << 20
"""Characters. A longer line is no row of a table."""

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_PIECE = 1 << 18
_ZSTD_PIECE = 1 << 8
"""Stored bytes given to zstd at once. Four can stand for 128 KiB, so at most 8 MiB come."""


class Text:
    """The text of one file, read once from its start: `head` may be looked at before."""

    def __init__(self, name: str, pieces: Iterator[str]) -> None:
        self.name = name
        self.head = ""
        self._pieces = pieces
        for piece in pieces:
            self.head += piece
            if len(self.head) >= _PIECE >> 2:
                break

    def __iter__(self) -> Iterator[str]:
        yield self.head
        yield from self._pieces

    def blocks(self) -> Iterator[list[str]]:
        """Return whole lines, many at a time, without their line feeds."""
        rest, seen = "", 0
        for piece in self:
            cut = piece.rfind("\n")
            if cut < 0:
                rest += piece
                self._check([rest], seen)
                continue
            block = (rest + piece[:cut]).split("\n")
            self._check(block if len(piece) > LONGEST_LINE else block[:1], seen)
            rest, seen = piece[cut + 1 :], seen + len(block)
            yield block
        self._check([rest], seen)
        if rest:
            yield [rest]

    def _check(self, lines: list[str], before: int) -> None:
        for number, line in enumerate(lines, before + 1):
            if len(line) > LONGEST_LINE:
                raise BadTrace(
                    f"{self.name}, line {number}: longer than 1 MiB, so this is not a table "
                    "of jobs; look at the file"
                )


def open_text(handle: BinaryIO, name: str) -> Text:
    """Open a stored file; its first bytes tell how it is compressed. BadTrace if damaged."""
    head = handle.read(len(_ZSTD))
    handle.seek(0)
    if head[:2] == _GZIP:
        return Text(name, _decoded(_gunzipped(handle, name)))
    if head == _ZSTD:
        return Text(name, _decoded(_unzstd(handle, name)))
    return Text(name, _decoded(iter(lambda: handle.read(_PIECE), b"")))


def digest_of(handles: list[BinaryIO]) -> str:
    """SHA-256 of the bytes as stored, first 16 hexadecimal digits; leaves them at the start."""
    total = hashlib.sha256()
    for handle in handles:
        while piece := handle.read(_PIECE):
            total.update(piece)
        handle.seek(0)
    return total.hexdigest()[:16]


def name_of(path: Path) -> str:
    """Name a file or folder in a word, without the folders it is in; `.` by its real name."""
    return path.name or path.resolve().name or str(path)


def open_stored(path: Path) -> BinaryIO:
    """Open a file of a trace for reading. BadTrace if it cannot be, or is empty."""
    if path.exists() and not path.is_file():
        raise BadTrace(f"{path}: not a file that can be read twice; save it to one first")
    try:
        size = path.stat().st_size
        handle = path.open("rb")
    except OSError as problem:
        raise BadTrace(f"{path}: cannot be read: {problem.strerror}") from None
    if size:
        return handle
    handle.close()
    raise BadTrace(f"{path.name}: the file is empty")


def _decoded(pieces: Iterator[bytes]) -> Generator[str]:
    """Decode UTF-8; a byte that is none becomes U+FFFD, for old names in other encodings."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    first = True
    for piece in pieces:
        text = decoder.decode(piece)
        if first and text:
            text, first = text.removeprefix("\ufeff"), False
        yield text
    yield decoder.decode(b"", final=True)


def _gunzipped(handle: BinaryIO, name: str) -> Generator[bytes]:
    import gzip
    import zlib

    out = 0
    try:
        with gzip.GzipFile(fileobj=handle, mode="rb") as stream:
            while piece := stream.read(_PIECE):
                out += len(piece)
                yield piece
    except EOFError:
        raise _cut_short(handle, name, out) from None
    except (zlib.error, OSError) as problem:
        raise _damaged(handle, name, str(problem)) from None


def _unzstd(handle: BinaryIO, name: str) -> Generator[bytes]:
    from zstandard import ZstdDecompressor, ZstdError

    context = ZstdDecompressor()
    frame = context.decompressobj()
    out, waiting, ready = 0, 0, list[bytes]()
    stored = handle.read(_ZSTD_PIECE)
    while stored:
        try:
            ready.append(frame.decompress(stored))
        except ZstdError as problem:
            raise _damaged(handle, name, str(problem)) from None
        waiting += len(ready[-1])
        if waiting > _PIECE >> 2:
            yield b"".join(ready)
            out, waiting, ready = out + waiting, 0, []
        stored = frame.unused_data or handle.read(_ZSTD_PIECE)
        if frame.eof and stored:
            frame = context.decompressobj()
    yield b"".join(ready)
    if not frame.eof:
        raise _cut_short(handle, name, out + waiting)


def _cut_short(handle: BinaryIO, name: str, out: int) -> BadTrace:
    return BadTrace(
        f"{name}: the compressed file is cut short: it ends at byte {handle.tell()}, "
        f"{out} bytes into the trace, before its end mark; fetch it again"
    )


def _damaged(handle: BinaryIO, name: str, problem: str) -> BadTrace:
    return BadTrace(
        f"{name}: the compressed file is damaged near byte {handle.tell()} ({problem}); "
        "fetch it again"
    )
