"""One service a state folder: a lock that vanishes with the process that holds it."""

import fcntl
import os
from pathlib import Path
from typing import IO

from allotment.model.errors import StoreError


class FolderLock:
    """An exclusive lock on a folder, with the holder's pid inside for people."""

    def __init__(self, folder: Path) -> None:
        """Take the lock. Raises StoreError, naming the holder, when it is taken."""
        self.path = folder / "lock"
        try:
            self._file: IO[str] = self.path.open("a+", encoding="utf-8")
        except OSError as error:
            raise StoreError(
                f"cannot use the state folder {folder}: {error.strerror}; choose another with "
                "--state or $ALLOT_STATE"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            raise StoreError(
                f"another allot service (pid {holder}) already uses {folder}; use it, stop it "
                "with `allot down`, or choose another folder with --state"
            ) from None
        self._file.truncate(0)
        self._file.write(f"{os.getpid()}\n")
        self._file.flush()

    def release(self) -> None:
        """Let go of the lock."""
        self._file.close()
