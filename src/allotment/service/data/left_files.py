"""Files that a job left below a folder that the service sees, as they become a version.

They are read with the rights of the job's owner, following no link.
"""

import os
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from allotment.model.errors import Code, Rejected
from allotment.rights import paths
from allotment.rights.user import rights_of
from allotment.service.content.manifest import Kind
from allotment.service.content.receiving import UNSAID
from allotment.service.files import files_below
from allotment.service.ports import Identity
from allotment.service.workspace import FileBelow

_PIECE: Final = 1 << 20
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


class FolderFiles:
    """The files below a folder, or of `only` a part of it, for one thread.

    `known` are those that there have to be, where somebody kept them whole.
    """

    nodes: tuple[str, ...] = ()

    def __init__(
        self,
        folder: str,
        identity: Identity | None,
        only: str = "",
        known: Sequence[FileBelow] | None = None,
    ) -> None:
        self.only = only
        self._folder = folder
        self._identity = identity
        self._known = known
        self._top = -1

    def files(self, most: int) -> tuple[Sequence[FileBelow], bool]:
        """Return at most so many files, in order; and whether these are all.

        Raises OSError, and FileNotFoundError where there is no such folder.
        """
        with rights_of(self._identity):
            if self._top < 0:
                self._top = paths.resolve(self._folder)
            if self._known is not None:
                return self._known[:most], len(self._known) <= most
            return _files_of(self._top, self.only, most)

    @contextmanager
    def opened(self, path: str) -> Generator["FolderFile"]:
        """Open one of them. Raises OSError and Rejected."""
        with rights_of(self._identity):
            fd = paths.open_below(self._top, path, _READ)
        try:
            state = os.fstat(fd)
            if not stat.S_ISREG(state.st_mode):
                raise changed(path)
            yield FolderFile(fd, state)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close the folder."""
        if self._top >= 0:
            os.close(self._top)
            self._top = -1


class FolderFile:
    """A file that is open for reading."""

    digest = UNSAID

    def __init__(self, fd: int, state: os.stat_result) -> None:
        self._fd = fd
        self.size = state.st_size
        self.kind: Kind = "x" if state.st_mode & stat.S_IXUSR else "f"

    def pieces(self, offset: int, size: int) -> Iterator[bytes]:
        """Read a part of it, as several threads may; less where it became shorter."""
        end = offset + size
        while offset < end and (piece := os.pread(self._fd, min(end - offset, _PIECE), offset)):
            offset += len(piece)
            yield piece


def _files_of(top: int, only: str, most: int) -> tuple[list[FileBelow], bool]:
    if not only:
        return files_below(top, most)
    try:
        part = paths.open_below(top, only, os.O_PATH)
    except FileNotFoundError:
        return [], True
    try:
        state = os.fstat(part)
        if stat.S_ISREG(state.st_mode):
            return [FileBelow(only, state.st_size, state.st_mtime_ns // 1_000_000)], True
        if not stat.S_ISDIR(state.st_mode):
            return [], True
        found, is_all = files_below(part, most)
    finally:
        os.close(part)
    below = [FileBelow(f"{only}/{each.path}", each.size, each.changed_ms) for each in found]
    return below, is_all


def changed(path: str) -> Rejected:
    """Return the refusal of a file that is not what it was a moment ago."""
    return Rejected(Code.CONFLICT, f"{path[:200]!a} changed while it was read.")
