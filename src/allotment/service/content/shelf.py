"""The files of one owner, kept by what is in them.

    FOLDER/files/AB/DIGEST    what is in a file, whatever files have it
    FOLDER/LISTS/DIGEST       a list of files; there only once all of them are

Nothing gets its name before it is whole. To know a digest proves nothing: it is looked for
among the files of one owner, so nobody can learn of others' files by guessing.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from allotment.rights.clearing import clear
from allotment.rights.flushing import flush
from allotment.service.content.manifest import (
    Manifest,
    digest_of,
    is_digest,
    needs,
)

BLOCK: Final = 4096


class Full(Exception):
    """An owner has no room for more."""


def blocks(size: int) -> int:
    """Return what a file takes of the disk."""
    return max(BLOCK, -(-size // BLOCK) * BLOCK)


class Fresh:
    """Where things are made before they get their names. Emptied at the start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Make the folder; throw away what a service that was killed was making."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        clear(self.folder)

    def path(self) -> Path:
        """Return a name under which something is made."""
        return self.folder / os.urandom(8).hex()

    def write(self, path: Path, data: bytes) -> None:
        """Replace a file as a whole; durable on return. Raises OSError."""
        made = self.path()
        fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            made.replace(path)
        except OSError:
            made.unlink(missing_ok=True)
            raise


class Shelf:
    """The files of one owner. Calls may come from several threads."""

    def __init__(self, folder: Path, fresh: Fresh, lists: str) -> None:
        self.folder = folder
        self.fresh = fresh
        self.turn = threading.RLock()
        """Each owner has its own: who has much here holds up nobody else."""
        self._lists = folder / lists
        self._besides = folder / "besides"
        self._is_gone = False
        self._used: int | None = None
        """Bytes, once they were counted."""

    # ── files ───────────────────────────────────────────────────────────────────────

    def file(self, digest: str) -> Path:
        """Return where a file lies, if it is there."""
        return self.folder / "files" / digest[:2] / digest

    def has_file(self, digest: str) -> bool:
        """Whether a file is there; it is then not removed for a while."""
        try:
            os.utime(self.file(digest))
        except FileNotFoundError:
            return False
        return True

    def keep_file(self, made: Path, digest: str) -> None:
        """Put a file that is whole in its place; what is there of it already stays.

        Raises FileNotFoundError where all of this owner was removed meanwhile.
        """
        with self.turn:
            if self._is_gone:
                made.unlink()
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            place, size = self.file(digest), made.stat().st_size
            before = place.stat().st_size if self.has_file(digest) else None
            if before == size:
                made.unlink()
                return
            # One that is shorter is what a power failure left of it; no version has it.
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            made.rename(place)
            self.add(blocks(size) - (blocks(before) if before is not None else 0))

    def discard(self, digest: str, is_needed: Callable[[str], bool]) -> None:
        """Remove a file that nothing else has a link to, unless it is needed at that moment."""
        with self.turn, contextlib.suppress(FileNotFoundError):
            if self.file(digest).stat().st_nlink == 1 and not is_needed(digest):
                self.file(digest).unlink()

    def files(self) -> Iterable[Path]:
        """List the files that are kept."""
        for above in names_in(self.folder / "files"):
            yield from names_in(above)

    # ── lists ───────────────────────────────────────────────────────────────────────

    def list_file(self, digest: str) -> Path:
        """Return where a list of files lies, if it is there."""
        return self._lists / digest

    def lists(self) -> list[Path]:
        """List the lists of files."""
        return names_in(self._lists)

    def missing(self, manifest: Manifest, also: Iterable[str] = ()) -> list[str]:
        """Return the digests of a list, and `also`, of which there are no such files."""
        with self.turn:
            wanted = [*needs(manifest.files), *also]
            missing = [digest for digest in wanted if not self.has_file(digest)]
            return missing or self._of_other_size(manifest)

    def keep_list(
        self, data: bytes, manifest: Manifest, also: Iterable[str], most: int
    ) -> list[str]:
        """Keep a list all of whose files are there, on the disk; else return the missing.

        `manifest` is what is in it. Raises Full where there would be more than `most` bytes
        here, and OSError.
        """
        if missing := self.missing(manifest, also):
            return missing
        flush(
            self.fresh.folder
        )  # All files are on the disk before a list says that they are there.
        with self.turn:
            wanted = [*needs(manifest.files), *also]
            if gone := [digest for digest in wanted if not self.file(digest).exists()]:
                return gone
            path = self._lists / digest_of(data)
            if path.exists():
                os.utime(path)
                return []
            if self.used() + blocks(len(data)) > most:
                raise Full
            self._lists.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.fresh.write(path, data)
            self.add(blocks(len(data)))
        return []

    def note_list(self, digest: str, data: bytes, *, again: bool = False) -> None:
        """Keep a list of what is elsewhere; durable on return. Raises OSError.

        One that is there already stays, but where it is told `again`.
        """
        with self.turn:
            path = self.list_file(digest)
            if path.exists() and not again:
                os.utime(path)
                return
            self._lists.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.fresh.write(path, data)
            self.count_anew()

    def _of_other_size(self, manifest: Manifest) -> list[str]:
        """Return a file that is not as large as the list says: the list lies."""
        for digest, size in needs(manifest.files).items():
            if self.file(digest).stat().st_size != size:
                return [digest]
        return []

    # ── room ────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Take nothing more: all that is here goes."""
        with self.turn:
            self._is_gone = True

    def charge(self, digest: str, entries: int) -> None:
        """Count what a list needs besides its files: folders and links, each a block."""
        if not entries:
            return
        with self.turn:
            self._besides.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._besides / f"{digest}.{entries}").touch()
            self.add(entries * BLOCK)

    def charges(self) -> list[Path]:
        """List what is charged besides, each under its list's digest."""
        return names_in(self._besides)

    def used(self) -> int:
        """Return how much of the disk it takes."""
        with self.turn:
            if self._used is None:
                self._used = self._count()
            return self._used

    def add(self, size: int) -> None:
        """Count more of the disk."""
        if self._used is not None:
            self._used += size

    def count_anew(self) -> None:
        """Count when asked again: something was removed."""
        self._used = None

    def _count(self) -> int:
        size = 0
        for path in (*self.files(), *self.lists()):
            with contextlib.suppress(FileNotFoundError):  # It went meanwhile.
                size += blocks(path.stat().st_size)
        return size + BLOCK * sum(int(path.suffix[1:]) for path in self.charges())


class Room:
    """What shelves may take of the disk together: `most` bytes, on their way or kept."""

    def __init__(self, most: Callable[[], int], used: Callable[[], int]) -> None:
        self._most = most
        self._used = used
        self._coming = 0
        self._turn = threading.Lock()

    def reserve(self, size: int) -> bool:
        """Whether so much more may come; `release` it once it came, or did not."""
        with self._turn:
            if self._used() + self._coming + size > self._most():
                return False
            self._coming += size
            return True

    def release(self, size: int) -> None:
        """Count no more what was on its way."""
        with self._turn:
            self._coming -= size


def is_there(path: Path) -> bool:
    """Whether a file is there whose name is a digest; it is then not removed for a while."""
    if not is_digest(path.name):
        return False
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def names_in(folder: Path) -> list[Path]:
    """List a folder; nothing where it is not there."""
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
