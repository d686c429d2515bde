"""Takes a mount away: one of ours, or what a user mounted on a folder of its own (FUSE)."""

import ctypes
import os
from typing import Final

_libc: Final = ctypes.CDLL(None, use_errno=True)
_DETACH: Final = 2
_NO_FOLLOW: Final = 8


def unmount(path: str) -> None:
    """Unmount what is mounted at `path`, also while it is in use. Raises OSError.

    Who serves its files is not asked.
    """
    if _libc.umount2(os.fsencode(path), _DETACH | _NO_FOLLOW):
        why = ctypes.get_errno()
        raise OSError(why, f"umount {path}: {os.strerror(why)}")
