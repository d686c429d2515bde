"""Files that jobs left, handed out without trusting the folders they lie in.

The folders belong to the jobs' users, who may swap a file for a link at any moment, and a
service of the superuser could follow it anywhere. So the file is opened first, without
following a link at its end and without waiting for a pipe; what was really opened is then
looked at: where it lies, what it is, and whether the caller could have read it alone.
"""

import asyncio
import os
import stat
from pathlib import Path
from urllib.parse import quote

import msgspec

from allotment.api.accounts import gids_of
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor

CHUNK = 256 * 1024


class OpenFile(msgspec.Struct, frozen=True):
    """A file open for reading, and its size at that moment."""

    fd: int
    size: int
    name: str


def open_for(path: Path, caller: Actor) -> OpenFile:
    """Open a regular file that the caller may read. Blocks; raises Rejected."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _not_there(path.name, (error.strerror or "").lower()) from error
    try:
        return OpenFile(fd, _checked(fd, path, caller).st_size, path.name)
    except BaseException:
        os.close(fd)
        raise


def _checked(fd: int, path: Path, caller: Actor) -> os.stat_result:
    """Look at what was really opened. Raises Rejected."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise _not_there(path.name, "is no regular file")
    real = Path(f"/proc/self/fd/{fd}").readlink()
    if real != path:
        raise _not_there(path.name, "has moved")
    if not may_read(real, found, caller):
        message = f"{caller.user} may not read {path.name}."
        raise Rejected(Code.FORBIDDEN, message, "Ask its owner.")
    return found


def may_read(path: Path, found: os.stat_result, caller: Actor) -> bool:
    """Tell whether a user could read a file with nothing but their own rights."""
    if caller.uid is None or caller.uid == 0 or os.geteuid() != 0:
        return True  # the kernel has decided it already, for the only user there is
    gids = gids_of(caller.uid)
    return _allows(found, os.R_OK, caller.uid, gids) and all(
        _allows(parent.stat(), os.X_OK, caller.uid, gids) for parent in path.parents
    )


def _allows(found: os.stat_result, mode: int, uid: int, gids: frozenset[int]) -> bool:
    if found.st_uid == uid:
        bits = found.st_mode >> 6
    elif found.st_gid in gids:
        bits = found.st_mode >> 3
    else:
        bits = found.st_mode
    return bits & mode == mode


class Contents:
    """Gives what was in a file when it was opened. `aclose` closes the file."""

    def __init__(self, file: OpenFile) -> None:
        self._fd = file.fd
        self._left = file.size
        self._reading: asyncio.Future[bytes] | None = None

    async def __anext__(self) -> bytes:
        if self._left <= 0:
            raise StopAsyncIteration
        work = asyncio.to_thread(os.read, self._fd, min(CHUNK, self._left))
        self._reading = asyncio.ensure_future(work)
        data = await asyncio.shield(self._reading)
        if not data:
            raise StopAsyncIteration
        self._left -= len(data)
        return data

    async def aclose(self) -> None:
        """Close the file, once the thread that may still read from it is done."""
        if self._reading is not None:
            await asyncio.wait({self._reading})
        os.close(self._fd)


def headers_of(file: OpenFile) -> dict[str, str]:
    """Say what is sent, and that no browser is to make anything of it."""
    return {
        "Content-Length": str(file.size),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.name, safe='')}",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }


def _not_there(name: str, why: str) -> Rejected:
    return Rejected(Code.NOT_FOUND, f"{name[:200]} cannot be read: {why}.", "Try again.")
