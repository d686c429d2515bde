"""Files as they come over a connection: each under another name until it is whole.

    for each file: 32 bytes of digest, 8 of size (big end first), and then what is in it

A connection that ends in the middle leaves the files before, which are whole, and nothing
of the one that it cut.
"""

import contextlib
import hashlib
import os
import threading
from pathlib import Path
from typing import IO, Final

from allotment.model.errors import Code, Rejected
from allotment.model.quantity import show_bytes
from allotment.service.code.store import CodeStore, blocks

HEAD: Final = 40
"""Bytes before each file."""


class Receiving:
    """What one request brings for one user, who may have `most` bytes, on their way or kept."""

    def __init__(self, store: CodeStore, uid: int, most: int, largest: int) -> None:
        self._store = store
        self._uid = uid
        self._most = most
        self._reserved = 0
        self._turn = threading.Lock()
        self._is_closed = False
        self._largest = largest
        self._head = b""
        self._left = 0
        self._digest = ""
        self._hash = hashlib.sha256()
        self._file: IO[bytes] | None = None
        self._path = Path()
        self.files = 0

    def feed(self, data: bytes) -> None:
        """Take what came. Raises Rejected, and OSError where the disk does not take it."""
        with self._turn:
            if not self._is_closed:
                self._feed(memoryview(data))

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
        if self._left > self._largest:
            raise Rejected(
                Code.TOO_LARGE,
                f"A file of {show_bytes(self._left)} is larger than all code may be "
                f"({show_bytes(self._largest)}).",
                "Leave it out by a line in .allotignore; large files belong in `data`.",
            )
        size = blocks(self._left)
        if not self._store.reserve(self._uid, size, self._most):
            raise Rejected(
                Code.TOO_LARGE,
                "The code that you took along takes all the room there is for one user.",
                "It gets free when jobs that used older code are forgotten. An administrator "
                "can raise `limits.code_store`.",
            )
        self._reserved = size
        self._hash = hashlib.sha256()
        self._path = self._store.new_file()
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(fd, "wb")
        if not self._left:
            self._end()

    def _take(self, piece: memoryview) -> None:
        if self._file is None:
            return
        self._hash.update(piece)
        self._file.write(piece)
        self._left -= len(piece)
        if not self._left:
            self._end()

    def _end(self) -> None:
        assert self._file is not None
        self._file.close()
        self._file = None
        if self._hash.hexdigest() != self._digest:
            self._path.unlink()
            raise Rejected(
                Code.CONFLICT,
                f"A file came that is not what its digest says ({self._digest[:12]}…): it "
                "changed while it was sent.",
                "Submit again, while nothing writes to the folder.",
            )
        self._store.keep_file(self._uid, self._path, self._digest)
        self._release()
        self.files += 1

    def _release(self) -> None:
        if self._reserved:
            self._store.release(self._uid, self._reserved)
            self._reserved = 0

    def close(self) -> None:
        """Throw away what is not whole. Nothing is taken afterwards."""
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
