"""What jobs left in their output folders: listed and opened, by descriptors from the top down.

The folders belong to the jobs' users, who may swap a file for a link at any moment, and a
service of the superuser could follow it anywhere. So whoever asks uses the rights of a user
(docs/adr/0012), resolves the top once, and follows no link below it. Nothing here waits for
a pipe, and however much lies there, only so much is looked at.
"""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import PurePosixPath

import msgspec

from allotment.model.errors import Code, Rejected
from allotment.rights import paths
from allotment.rights.user import rights_of
from allotment.service.workspace import FileBelow, Left

MOST_NAMES = 400_000
"""How many names one listing reads, files or not, before it is called incomplete."""

_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_FILE = os.O_RDONLY | os.O_NONBLOCK


class Found(msgspec.Struct, frozen=True):
    """A file open for reading, and its size at that moment."""

    fd: int
    size: int
    name: str


def files_left(left: Left, most: int) -> tuple[list[FileBelow], bool]:
    """Return at most so many files of an attempt, in order; whether these are all. Blocks."""
    with _opened(left) as top:
        return files_below(top, most) if top is not None else ([], True)


def open_left(left: Left, path: str) -> Found | None:
    """Open a file of an attempt; None without its folder. Blocks. Raises Rejected."""
    with _opened(left) as top:
        return open_file(top, path, left.name) if top is not None else None


@contextmanager
def _opened(left: Left) -> Generator[int | None]:
    """Open an output folder, and use files with the reader's rights meanwhile.

    None when it is not there, or not really the job's: its user may have put a link there.
    """
    with rights_of(left.reader):
        try:
            fd = paths.resolve(left.folder)
        except OSError:
            yield None
            return
        try:
            is_theirs = left.owner is None or os.fstat(fd).st_uid == left.owner.uid
            yield fd if is_theirs else None
        finally:
            os.close(fd)


# ── listing ─────────────────────────────────────────────────────────────────────────────


def files_below(top: int, most: int) -> tuple[list[FileBelow], bool]:
    """Return at most so many regular files below a folder, in order; and whether these are all.

    In each folder the files come before those of its folders. Files may come and go meanwhile;
    a folder that may not be read is one of which something is missing.
    """
    found: list[FileBelow] = []
    folders, names_left, is_all = [""], MOST_NAMES, True
    while folders:
        if len(found) >= most or names_left <= 0:
            is_all = False
            break
        where = folders.pop()
        try:
            fd = paths.open_below(top, where or ".", _FOLDER)
        except OSError as error:
            is_all &= error.errno in _GONE
            continue
        try:
            files, below, is_whole = _names_in(fd, names_left)
            names_left -= len(files) + len(below)
            states = _look_at(fd, where, files, most - len(found))
        finally:
            os.close(fd)
        is_all &= is_whole and len(found) + len(files) <= most
        found += states
        folders += (_join(where, name) for name in reversed(below))
    return sorted(found, key=lambda file: PurePosixPath(file.path).parts), is_all


def _names_in(fd: int, most: int) -> tuple[list[str], list[str], bool]:
    """Read the names of files and of folders in a folder, in order; and whether all."""
    files: list[str] = []
    folders: list[str] = []
    with os.scandir(fd) as entries:
        for entry in entries:
            if len(files) + len(folders) >= most:
                return sorted(files), sorted(folders), False
            try:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    files.append(entry.name)
            except OSError:
                continue
    return sorted(files), sorted(folders), True


def _look_at(fd: int, where: str, names: list[str], most: int) -> list[FileBelow]:
    found: list[FileBelow] = []
    for name in names[:most]:
        try:
            state = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISREG(state.st_mode):
            changed_ms = state.st_mtime_ns // 1_000_000
            found.append(FileBelow(_join(where, name), state.st_size, changed_ms))
    return found


def shown(path: str) -> str:
    """Return a name as JSON can hold it. A name that is not UTF-8 cannot be fetched by it."""
    return path.encode(errors="surrogateescape").decode(errors="replace")


def _join(where: str, name: str) -> str:
    return f"{where}/{name}" if where else name


# ── opening ─────────────────────────────────────────────────────────────────────────────


def open_file(top: int, path: str, reader: str) -> Found:
    """Open a regular file below a folder for reading. Raises Rejected."""
    name = path.rpartition("/")[2]
    try:
        fd = paths.open_below(top, path, _FILE)
    except PermissionError as error:
        message = f"{reader} may not read {name[:200]}."
        raise Rejected(Code.FORBIDDEN, message, "Ask its owner.") from error
    except (OSError, ValueError) as error:
        why = (getattr(error, "strerror", "") or str(error)).lower()
        raise _not_there(name, why) from error
    state = os.fstat(fd)
    if not stat.S_ISREG(state.st_mode):
        os.close(fd)
        raise _not_there(name, "is not a regular file")
    return Found(fd, state.st_size, name)


def _not_there(name: str, why: str) -> Rejected:
    return Rejected(Code.NOT_FOUND, f"{name[:200]} cannot be read: {why}.", "Try again.")
