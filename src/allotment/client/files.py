"""Output files onto this machine: complete, or not at all, and only where they belong.

Names come from whoever ran the job, and the folder may be one that others can change while
we write. So each folder on the way is opened in the one before, and a link is never followed:
it would lead elsewhere, with our rights.
"""

import contextlib
import errno
import os
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from allotment.client.errors import Unreadable
from allotment.client.transport import Reply
from allotment.service.content.manifest import BadManifest, check_link
from allotment.service.views import OutputFile

CHUNK = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def save(reply: Reply, file: OutputFile, folder: Path) -> Path:
    """Write an answer's body to the file's place below `folder`, and close the answer."""
    with contextlib.closing(reply):
        names = names_of(file.path)
        folder.mkdir(parents=True, exist_ok=True)
        with opened(folder, names[:-1], file.path) as below:
            _write(reply, file, below, names[-1])
    return folder.joinpath(*names)


def make_link(folder: Path, path: str, target: str) -> None:
    """Make a link that stays below `folder`; what is there of that name goes."""
    names = names_of(path)
    try:
        check_link(path, target)
    except BadManifest as error:
        raise Unreadable(f"The service named a link that leads elsewhere: {error}.") from error
    folder.mkdir(parents=True, exist_ok=True)
    with opened(folder, names[:-1], path) as below, _unless_in_place(below) as part:
        os.symlink(target, part, dir_fd=below)
        put_in_place(below, part, names[-1], path)


def _write(reply: Reply, file: OutputFile, folder: int, name: str) -> None:
    with _unless_in_place(folder) as part:
        handle = os.open(part, _NEW, 0o644, dir_fd=folder)
        with os.fdopen(handle, "wb") as out:
            _copy(reply, out, file)
        put_in_place(folder, part, name, file.path)


@contextlib.contextmanager
def _unless_in_place(folder: int) -> Generator[str]:
    """Name a file for a while; what still has that name then is removed."""
    part = f".fetch-{os.urandom(8).hex()}"
    try:
        yield part
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part, dir_fd=folder)


def put_in_place(folder: int, part: str, name: str, path: str) -> None:
    """Move a file to its name in its folder; what is there of that name goes."""
    try:
        os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    except IsADirectoryError:
        raise Unreadable(
            f"{path!r} cannot be written: there is a folder of that name.",
            "Remove it, or fetch into another folder.",
        ) from None


def _copy(reply: Reply, out: BinaryIO, file: OutputFile) -> None:
    while chunk := reply.read(CHUNK):
        out.write(chunk)
    if out.tell() < file.size:
        raise Unreadable(
            f"{file.path!r} came only in part: {out.tell()} of {file.size} bytes.",
            "Fetch it again.",
        )


def names_of(path: str) -> list[str]:
    """Take a path apart, refusing what would end elsewhere: it came over the network."""
    names = path.split("/")
    if any(name in ("", ".", "..") or "\0" in name for name in names):
        raise Unreadable(f"The service named an output file outside its folder: {path!r}.")
    return names


@contextlib.contextmanager
def opened(folder: Path, names: list[str], path: str) -> Generator[int]:
    """Open a folder below another, made where it is missing."""
    at = os.open(folder, _FOLDER)
    try:
        for name in names:
            below = _open_in(at, name, path)
            os.close(at)
            at = below
        yield at
    finally:
        os.close(at)


def _open_in(at: int, name: str, path: str) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o777, dir_fd=at)
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise Unreadable(
            f"{path!r} cannot be written: {name!r} is there, and is a link or no folder.",
            "Remove it, or fetch into another folder.",
        ) from None
