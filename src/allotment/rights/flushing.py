"""All that was written to a folder's file system, on its disk."""

import ctypes
import os
from pathlib import Path
from typing import Final

_libc: Final = ctypes.CDLL(None, use_errno=True)


def flush(folder: Path) -> None:
    """Write what is in memory of a folder's file system to its disk. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _libc.syncfs(fd):
            why = ctypes.get_errno()
            raise OSError(why, os.strerror(why), str(folder))
    finally:
        os.close(fd)
