"""Files that another process has open for reading, to be read here without sending their bytes.

The kernel looked at its user's rights when they were opened, and a descriptor cannot be
exchanged for another file once we have it. What stays to be looked at: that the process is
still its user's, and that reading cannot hang or have effects. So only plain files count, on
disks that this machine has mounted itself; what a user can mount, such as FUSE, is none.
"""

import ctypes
import fcntl
import os
import signal
import stat
from pathlib import Path
from typing import Final, Self

_syscall: Final = ctypes.CDLL(None, use_errno=True).syscall
_PIDFD_GETFD: Final = 438
_KINDS: Final = {"ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs"}
"""Kinds of file systems whose disk is in this machine, or that are in its memory."""


class NotHanded(Exception):
    """A descriptor cannot be taken; the text says why. Its bytes can still be sent."""


class Holder:
    """A process of a user that holds files open. A context: leave it when all are taken."""

    def __init__(self, pid: int, uid: int) -> None:
        """Raises NotHanded."""
        self._pid, self._uid = pid, uid
        try:
            self._process = os.pidfd_open(pid)
        except OSError as error:
            raise NotHanded(f"process {pid} cannot be looked at") from error
        self._disks = _own_disks()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._process)

    def take(self, number: int) -> int:
        """Return a descriptor of our own of a file that it has open under a number.

        Raises NotHanded. The caller closes it.
        """
        self._check_user()
        fd = _syscall(_PIDFD_GETFD, self._process, number, 0)
        if fd < 0:
            why = os.strerror(ctypes.get_errno()).lower()
            raise NotHanded(f"descriptor {number} cannot be taken: {why}")
        try:
            self._check_user()  # It may have become a program of another user's meanwhile.
            self._check_file(fd, number)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _check_user(self) -> None:
        """Raise NotHanded unless it is its user's, and none that others may not look into."""
        try:
            owner = os.stat(f"/proc/{self._pid}").st_uid
            signal.pidfd_send_signal(self._process, 0)  # Its number is not another's by now.
        except OSError as error:
            raise NotHanded(f"process {self._pid} has ended") from error
        if owner != self._uid:
            raise NotHanded(f"process {self._pid} is not of user {self._uid}")

    def _check_file(self, fd: int, number: int) -> None:
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        state = os.fstat(fd)
        if flags & os.O_PATH or flags & os.O_ACCMODE == os.O_WRONLY:
            raise NotHanded(f"descriptor {number} is not open for reading")
        if not stat.S_ISREG(state.st_mode):
            raise NotHanded(f"descriptor {number} is no plain file")
        if state.st_dev not in self._disks:
            raise NotHanded(f"descriptor {number} is on no disk of this machine")


def _own_disks() -> set[int]:
    """Return the devices of file systems that are mounted where we are, and safe to read."""
    found: set[int] = set()
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.partition(" ")[0] in _KINDS:
            major, _, minor = before.split(" ", 3)[2].partition(":")
            found.add(os.makedev(int(major), int(minor)))
    return found
