"""Files that another process has open, to be read here without sending their bytes.

The process names a descriptor, and the kernel leads us to its file with the rights of its user:
that user must be allowed to look into the process, and to read the file. So a program that
has other rights, and what such a program opened before it gave them up, is let alone.

Reading may not hang or have effects either. So only plain files count, on disks that this
machine has mounted itself; what a user can mount, such as FUSE, is none. Until that is known
the file is held for looking only (O_PATH), since even to close another is a request to whoever
serves it, who may never answer.
"""

import ctypes
import os
import stat
import struct
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from allotment.rights.user import User, rights_of

_libc: Final = ctypes.CDLL(None, use_errno=True)
_KINDS: Final = {"ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs"}
"""Kinds of file systems whose disk is in this machine, or that are in its memory."""
_LOOK: Final = os.O_PATH | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_EMPTY_PATH: Final = 0x1000
_NOT_ASKED: Final = 0x4000
"""statx(2) answers from what the kernel knows, and asks no file server."""
_TYPE: Final = 1
_CAPABILITY_VERSION_3: Final = 0x20080522
_MAY_TRACE: Final = 1 << 19
"""CAP_SYS_PTRACE, which opens what each process has open."""


class NotHanded(Exception):
    """A descriptor cannot be taken; the text says why. Its bytes can still be sent."""


class Holder:
    """A process of a user that holds files open. A context: leave it when all are taken."""

    def __init__(self, pid: int, user: User | None) -> None:
        """Look at a process with a user's rights, or our own. Raises NotHanded."""
        self._pid, self._user = pid, user
        try:
            self._process = os.open(f"/proc/{pid}", _LOOK | os.O_DIRECTORY)
        except OSError as error:
            raise NotHanded(f"process {pid} cannot be looked at") from error
        self._disks = _own_disks()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._process)

    def take(self, number: int) -> int:
        """Return a descriptor to read a file that it has open under a number.

        Raises NotHanded. The caller closes it.
        """
        try:
            with _no_more_than(self._user):
                found = os.open(f"fd/{number}", _LOOK, dir_fd=self._process)
                try:
                    self._check_file(found, number)
                    return os.open(f"/proc/self/fd/{found}", _READ)
                finally:
                    os.close(found)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise NotHanded(
                f"descriptor {number} of process {self._pid} cannot be taken: {why}"
            ) from error

    def _check_file(self, fd: int, number: int) -> None:
        mode, disk = _look(fd)
        if not stat.S_ISREG(mode):
            raise NotHanded(f"descriptor {number} is not a regular file")
        if disk not in self._disks:
            raise NotHanded(f"descriptor {number} is on no disk of this machine")


@contextmanager
def _no_more_than(user: User | None) -> Generator[None]:
    """Use files and look into processes as a user, and as nobody else; None is who we are."""
    if user is None:
        yield
        return
    with rights_of(user):
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
        sets = (ctypes.c_uint32 * 6)()  # Effective, permitted, inheritable; then above 32.
        _check(_libc.capget(header, sets))
        before = sets[0]
        try:
            sets[0] = before & ~_MAY_TRACE
            _check(_libc.capset(header, sets))
            yield
        finally:
            sets[0] = before
            _check(_libc.capset(header, sets))


def _check(result: int) -> None:
    if result:
        why = ctypes.get_errno()
        raise OSError(why, os.strerror(why))


def _look(fd: int) -> tuple[int, int]:
    """Return the mode of a file, and its device. Raises OSError."""
    found = ctypes.create_string_buffer(256)
    _check(_libc.statx(fd, b"", _EMPTY_PATH | _NOT_ASKED, _TYPE, found))
    (mode,) = struct.unpack_from("H", found, 28)
    return mode, os.makedev(*struct.unpack_from("II", found, 136))


def _own_disks() -> set[int]:
    """Return the devices of file systems that are mounted where we are, and safe to read."""
    found: set[int] = set()
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.partition(" ")[0] in _KINDS:
            major, _, minor = before.split(" ", 3)[2].partition(":")
            found.add(os.makedev(int(major), int(minor)))
    return found
