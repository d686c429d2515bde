"""What the client does with files by their content: reads, remembers and sends them."""

import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from allotment.client.errors import Refused
from allotment.service.content.manifest import digest_of

BATCH: Final = 32 << 20
"""Bytes of one request, unless a file is larger."""
PIECE: Final = 1 << 20
UNSAID: Final = bytes(32)
"""In place of a digest that the service is to find out."""
_SETTLED_NS: Final = 2_000_000_000
"""How long after its last change a file has a time that later changes do not share."""

READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Refuse = Callable[[str], Refused]
"""Makes the refusal of a folder for a reason."""


class Known(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A file as it was when it was read: while it looks the same, it is the same."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    digest: str

    def looks_like(self, state: os.stat_result) -> bool:
        """Whether a file looks as it did."""
        return (self.size, self.mtime_ns, self.ctime_ns, self.inode) == (
            state.st_size,
            state.st_mtime_ns,
            state.st_ctime_ns,
            state.st_ino,
        )

    def is_settled(self, now_ns: int) -> bool:
        """Whether a change after `now_ns` could not go unnoticed."""
        return max(self.mtime_ns, self.ctime_ns) < now_ns - _SETTLED_NS


def known_of(state: os.stat_result, size: int, digest: str) -> Known:
    """Return a file as it was when it was read."""
    return Known(size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, digest)


class _Memory(msgspec.Struct, frozen=True):
    """What is known of the files of a folder."""

    version: int
    files: dict[str, Known]


def memory_of(kind: str, folder: Path) -> Path:
    """Return the file that remembers the files of a folder."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return Path(home, "allotment", kind, digest_of(os.fsencode(folder))[:32])


def recall(memory: Path) -> dict[str, Known]:
    """Return what is known of the files of a folder; nothing where that cannot be read."""
    try:
        found = msgspec.msgpack.decode(memory.read_bytes(), type=_Memory)
    except (OSError, msgspec.MsgspecError):
        return {}
    return found.files if found.version == 1 else {}


def remember(memory: Path, files: dict[str, Known]) -> None:
    """Keep what was read, for the next time. Without, all is only read again."""
    fresh = memory.with_name(f"{memory.name}.{os.getpid()}")
    try:
        memory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh.write_bytes(msgspec.msgpack.encode(_Memory(1, files)))
        fresh.replace(memory)
    except (OSError, msgspec.MsgspecError):
        return


KINDS: Final = {
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a pipe",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


def utf8(name: str, refuse: Refuse) -> str:
    """Return a name that can be sent. Raises Refused."""
    if not name.isascii() and any("\ud800" <= letter <= "\udfff" for letter in name):
        raise refuse(f"{name!a} is not a name in UTF-8")
    return name


def why(name: str, error: OSError) -> str:
    """Return why a file cannot be read."""
    return f"{name}: {(error.strerror or 'cannot be read').lower()}"


def digested(path: str) -> tuple[Known, os.stat_result]:
    """Read a file, and return what it then looked like. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb", buffering=0) as file:
        state = os.fstat(fd)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return known_of(state, file.tell(), digest), state


# ── sending ─────────────────────────────────────────────────────────────────────────────


class Sent(msgspec.Struct, frozen=True, gc=False):
    """A file to be sent. Without a digest the service finds it out."""

    path: str
    size: int
    digest: str = ""


def batches(files: Sequence[Sent], most: int = sys.maxsize) -> list[list[Sent]]:
    """Part files into requests, of which none has more than `most` files."""
    found: list[list[Sent]] = [[]]
    size = 0
    for file in files:
        if (size and size + file.size > BATCH) or len(found[-1]) >= most:
            found.append([])
            size = 0
        found[-1].append(file)
        size += file.size
    return found


class Body:
    """The files of one request. It can be read again, should the connection be lost."""

    def __init__(
        self, folder: Path, files: Sequence[Sent], refuse: Refuse, first: bytes = b""
    ) -> None:
        """`first` is what goes before all files, though it is in none."""
        self._folder = folder
        self._files = files
        self._refuse = refuse
        self._first = first
        self.size = sum(40 + file.size for file in files)
        self.size += 40 + len(first) if first else 0
        self.seen: dict[str, os.stat_result] = {}
        """How each file looked, where it looked the same after it was read as before."""

    def __iter__(self) -> Iterator[bytes | memoryview]:
        """Yield pieces, of which each counts only until the next is asked for."""
        held = bytearray()
        self._buffer = memoryview(bytearray(PIECE))
        if self._first:
            held += _head(digest_of(self._first), len(self._first)) + self._first
        for file in self._files:
            held += _head(file.digest, file.size)
            for piece in self._pieces(file):
                if len(held) + len(piece) > PIECE:
                    yield bytes(held)
                    held.clear()
                if len(piece) == PIECE:
                    yield piece
                else:
                    held += piece
        if held:
            yield bytes(held)

    def _pieces(self, file: Sent) -> Iterator[memoryview]:
        """Read just as much of a file as was said that it has."""
        left = file.size
        try:
            fd = os.open(f"{self._folder}/{file.path}", READ)
            with os.fdopen(fd, "rb", buffering=0) as source:
                before = os.fstat(fd)
                if not stat.S_ISREG(before.st_mode):
                    raise self._refuse(f"{file.path} is not a regular file any more")
                while left and (got := source.readinto(self._buffer[: min(left, PIECE)])):
                    left -= got
                    yield self._buffer[:got]
                after = os.fstat(fd)
        except OSError as error:
            raise self._refuse(why(file.path, error)) from error
        if left:
            raise self._refuse(f"{file.path} became shorter while it was sent")
        if known_of(before, 0, "") == known_of(after, 0, "") and after.st_size == file.size:
            self.seen[file.path] = after


def _head(digest: str, size: int) -> bytes:
    return (bytes.fromhex(digest) if digest else UNSAID) + size.to_bytes(8, "big")
