"""Files as they come over a connection: each under another name until it is whole.

    for each file: 32 bytes of digest, 8 of size (big end first), and then what is in it

A connection that ends in the middle leaves the files before, which are whole, and nothing
of the one that it cut. Where the sender may leave it to us to say what the digest is, it
sends zeros.
"""

import contextlib
import fcntl
import hashlib
import os
import threading
from pathlib import Path
from typing import IO, Final

import msgspec

from allotment.model.errors import Code, Rejected
from allotment.model.quantity import show_bytes
from allotment.rights.flushing import begin_flush
from allotment.service.content.shelf import Room, Shelf, blocks

HEAD: Final = 40
"""Bytes before each file."""
FLUSH_EVERY: Final = 16 << 20
"""Bytes of one file: by the time it is whole, much of it is on the disk."""
_CLONE: Final = 0x40049409
"""FICLONE of linux/fs.h."""
UNSAID: Final = "0" * 64
"""The digest of a file whose sender did not read it before."""


class Words(msgspec.Struct, frozen=True):
    """What a sender is told that sends too much, or what is not what it said."""

    beyond: str
    """How large all files together may be: `all code may be`."""
    leave_out: str
    full: str
    make_room: str
    again: str


class Receiving:
    """What one request brings for one shelf. No file may be larger than `largest` bytes."""

    def __init__(
        self,
        shelf: Shelf,
        room: Room,
        largest: int,
        words: Words,
        *,
        may_be_unsaid: bool = False,
        is_believed: bool = False,
    ) -> None:
        """With `is_believed` files keep the names with which they come, whatever they are."""
        self._shelf = shelf
        self._room = room
        self._words = words
        self._may_be_unsaid = may_be_unsaid
        self._is_believed = is_believed
        self._reserved = 0
        self._turn = threading.Lock()
        self._is_closed = False
        self._largest = largest
        self._head = b""
        self._left = self._size = self._flushed = 0
        self._is_clone = False
        self._digest = ""
        self._hash = hashlib.sha256()
        self._file: IO[bytes] | None = None
        self._path = Path()
        self.digests: list[str] = []
        """Of the files that came whole, in the order in which they came."""

    @property
    def files(self) -> int:
        """Return how many files came whole."""
        return len(self.digests)

    def has(self, digest: str, size: int) -> bool:
        """Whether such a file is here already: it need not come."""
        return self._shelf.has_file(digest) and self._shelf.file(digest).stat().st_size == size

    def feed(self, *pieces: bytes | memoryview) -> None:
        """Take what came. Raises Rejected, and OSError where the disk does not take it."""
        with self._turn:
            for data in pieces if not self._is_closed else ():
                self._feed(memoryview(data))

    def source_of(self, whole: int) -> int:
        """Return what to read the file from that has begun, and lies open here as a whole.

        Some file systems give it the same blocks: then nothing is written, and it is read from
        what is kept, which nobody changes any more. Else the disk's room is allocated, which
        halves the time to write: others could say that they send what they never do. Raises
        OSError.
        """
        with self._turn:
            if self._file is None:
                return whole
            own = self._file.fileno()
            try:
                fcntl.ioctl(own, _CLONE, whole)
            except OSError:
                os.ftruncate(own, 0)  # a part may have been cloned, beyond what comes
                os.posix_fallocate(own, 0, self._size)
                return whole
            self._is_clone = True
            if os.fstat(own).st_size > self._size:
                os.ftruncate(own, self._size)
            return own

    def _feed(self, view: memoryview) -> None:
        while view:
            if self._file is None:
                taken = HEAD - len(self._head)
                self._head += bytes(view[:taken])
                view = view[taken:]
                if len(self._head) < HEAD:
                    return
                self._begin()
            piece = view[: self._left]
            view = view[len(piece) :]
            self._take(piece)

    def _begin(self) -> None:
        self._digest = self._head[:32].hex()
        self._left = int.from_bytes(self._head[32:], "big")
        self._head = b""
        self._size, self._flushed, self._is_clone = self._left, 0, False
        if self._left > self._largest:
            raise Rejected(
                Code.TOO_LARGE,
                f"A file of {show_bytes(self._left)} is larger than {self._words.beyond} "
                f"({show_bytes(self._largest)}).",
                self._words.leave_out,
            )
        size = blocks(self._left)
        if not self._room.reserve(size):
            raise Rejected(Code.TOO_LARGE, self._words.full, self._words.make_room)
        self._reserved = size
        self._hash = hashlib.sha256()
        self._path = self._shelf.fresh.path()
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(fd, "wb")
        if not self._left:
            self._end()

    def _take(self, piece: memoryview) -> None:
        if self._file is None:
            return
        if not self._is_believed:
            self._hash.update(piece)
        self._left -= len(piece)
        if not self._is_clone:
            self._write(self._file, piece)
        if not self._left:
            self._end()

    def _write(self, file: IO[bytes], piece: memoryview) -> None:
        file.write(piece)
        if (written := self._size - self._left) - self._flushed >= FLUSH_EVERY:
            file.flush()
            begin_flush(file.fileno(), self._flushed, written - self._flushed)
            self._flushed = written

    def _end(self) -> None:
        assert self._file is not None
        self._file.close()
        self._file = None
        found = self._digest if self._is_believed else self._hash.hexdigest()
        is_right = found == self._digest or (self._may_be_unsaid and self._digest == UNSAID)
        if not is_right:
            self._path.unlink()
            raise Rejected(
                Code.CONFLICT,
                f"A file came that is not what its digest says ({self._digest[:12]}…): it "
                "changed while it was sent.",
                self._words.again,
            )
        self._shelf.keep_file(self._path, found)
        self._release()
        self.digests.append(found)

    def _release(self) -> None:
        if self._reserved:
            self._room.release(self._reserved)
            self._reserved = 0

    def close(self) -> None:
        """Delete what is not whole. Nothing is taken afterwards."""
        with self._turn:
            self._is_closed = True
            self._release()
            if self._file is not None:
                with contextlib.suppress(OSError):
                    self._file.close()
                self._path.unlink(missing_ok=True)
                self._file = None

    @property
    def is_whole(self) -> bool:
        """Whether the last file has come to its end."""
        return self._file is None and not self._head
