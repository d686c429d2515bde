"""What was written, on its disk: all of a folder's file system, or soon a part of a file."""

import ctypes
import os
from pathlib import Path
from typing import Final

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
_BEGIN: Final = 2


def flush(folder: Path) -> None:
    """Write what is in memory of a folder's file system to its disk. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _libc.syncfs(fd):
            why = ctypes.get_errno()
            raise OSError(why, os.strerror(why), str(folder))
    finally:
        os.close(fd)


def begin_flush(fd: int, offset: int, size: int) -> None:
    """Have the disk begin to write a part of a file, so that `flush` later waits for less.

    Where a file system cannot, it waits for more.
    """
    _libc.sync_file_range(fd, offset, size, _BEGIN)
