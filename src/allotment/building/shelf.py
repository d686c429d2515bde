"""The folder of a user's layers: what was built, and what the next build may use again.

Nobody else may enter it. Each build holds a shared lock on it; who finds that nobody holds one
clears away what a build that was killed has left.
"""

import contextlib
import fcntl
import os
from collections.abc import Generator, Mapping
from pathlib import Path

FOLDER = "allotment/images"
"""Below $XDG_DATA_HOME, else below ~/.local/share."""
_LOCK = "lock"
_BLOCK = 512
_NAME = 512
"""Bytes that a file takes at least, an empty one too: a million of them fill a disk as well."""


def folder_for(environ: Mapping[str, str]) -> Path:
    """Return the folder for whoever has this environment."""
    home = Path(environ.get("HOME") or "/")
    return Path(environ.get("XDG_DATA_HOME") or home / ".local/share") / FOLDER


class Lock:
    """A lock on the folder. `is_alone` says whether nobody else holds one."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.is_alone = False
            self.share()
        else:
            self.is_alone = True

    def share(self) -> None:
        """Let others in; wait where somebody does not."""
        fcntl.flock(self._fd, fcntl.LOCK_SH)


@contextlib.contextmanager
def held(folder: Path) -> Generator[Lock]:
    """Hold the folder, made if need be, until the end. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(folder / _LOCK, flags, 0o600)
    try:
        yield Lock(fd)
    finally:
        os.close(fd)


def measure(folder: Path, most: int) -> int:
    """Return how many bytes a folder takes on disk; it stops counting beyond `most`."""
    total, waiting = 0, [os.fspath(folder)]
    while waiting and total <= most:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    total += max(found.st_blocks * _BLOCK, _NAME)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return total
