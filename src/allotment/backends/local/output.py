"""Reads a task's output while it grows, and after: offsets are those of the stream itself.

A stream lies in a head file and, beyond that, in pieces named for the byte they begin with;
bytes between them may be gone. At the end, a line in the head file says how many: it stands
where they stood. A reader who follows sees each byte that was kept once, in order, whichever
way it lay when he looked.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from allotment.service.ports import LogChunk


class Piece(NamedTuple):
    """A stretch of a stream: where it starts, how long it is, and how a part of it is read."""

    start: int
    length: int
    read: Callable[[int, int], bytes]
    """Of so many bytes, from a place in the piece on."""


def read_output(folder: Path, stream: str, offset: int, size: int) -> LogChunk:
    """Read at most `size` bytes from `offset` on, from the end when it is negative."""
    return chunk_of(_pieces(folder, stream), offset, size)


def chunk_of(pieces: Sequence[Piece], offset: int, size: int) -> LogChunk:
    """Read of pieces that are in order as `read_output` does."""
    end = max((piece.start + piece.length for piece in pieces), default=0)
    if offset < 0:
        offset = max(0, end + offset)
    for start, length, read in pieces:
        if offset < start + length:
            at = max(offset, start)
            data = read(min(size, start + length - at), at - start)
            return LogChunk(data, at + len(data))
    return LogChunk(b"", max(offset, 0))


def _read(path: Path, size: int, at: int) -> bytes:
    with path.open("rb") as file:
        file.seek(at)
        return file.read(size)


def _pieces(folder: Path, stream: str) -> list[Piece]:
    """List the pieces, in order. Files may vanish while we look."""
    found: list[Piece] = []
    for path in [folder / f"{stream}.log", *folder.glob(f"{stream}.tail.*")]:
        start = int(path.suffix[1:]) if path.suffix != ".log" else 0
        try:
            found.append(Piece(start, path.stat().st_size, partial(_read, path)))
        except FileNotFoundError:
            continue
    return sorted(found, key=lambda piece: piece.start)
