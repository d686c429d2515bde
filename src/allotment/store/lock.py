"""One service a state folder: a lock that vanishes with the process that holds it."""

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from allotment.model.errors import StoreError

TAKEN = {errno.EWOULDBLOCK, errno.EACCES}


class FolderLock:
    """An exclusive lock on a folder, with the holder's pid inside for people."""

    def __init__(self, folder: Path) -> None:
        """Take the lock. Raises StoreError, naming the holder, when it is taken."""
        self.path = folder / "lock"
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                f"cannot use the state folder {folder}: {error.strerror}; choose another with "
                "--state or $ALLOT_STATE"
            ) from error
        try:
            self._take(folder)
        except BaseException:
            os.close(self._fd)
            raise
        self._sign()

    def _take(self, folder: Path) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in TAKEN:
                raise StoreError(
                    f"cannot lock {self.path}: {error.strerror}; put the state folder on a "
                    "local disk with --state"
                ) from error
            holder = os.pread(self._fd, 20, 0).decode(errors="replace").split("\n")[0]
            raise StoreError(
                f"another allot service (pid {holder or 'unknown'}) already uses {folder}; use "
                "it, stop it with `allot down`, or choose another folder with --state"
            ) from None

    def _sign(self) -> None:
        """Write our pid over the last one, so that there is one at any moment."""
        with contextlib.suppress(OSError):  # A full disk: the lock holds without a name.
            written = os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
            os.ftruncate(self._fd, written)

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
