"""Whether a path leads where it does for all who open it: only root may change what is on it.

It is for what others open by its path, with root's rights, and follow links as they do.
"""

import errno
import os
import stat
from pathlib import PurePosixPath
from typing import Final

_OTHERS_WRITE: Final = 0o022
_LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def changeable_in(path: str) -> str:
    """Return the first folder in which a user may put something else in place of the next part
    of an absolute path; '' where only root and we may. Raises OSError, also for a link."""
    ours = (0, os.geteuid())
    above = os.open("/", _LOOK)
    try:
        at = PurePosixPath("/")
        for name in PurePosixPath(path).parts[1:]:
            below = os.open(name, _LOOK, dir_fd=above)
            folder, entry = os.fstat(above), os.fstat(below)
            os.close(above)
            above = below
            if stat.S_ISLNK(entry.st_mode):
                raise OSError(errno.ELOOP, "has a link in it", path)
            # In a sticky folder, such as /tmp, all may write, and each replaces only its own.
            is_kept = folder.st_mode & stat.S_ISVTX and entry.st_uid in ours
            if folder.st_uid not in ours or (folder.st_mode & _OTHERS_WRITE and not is_kept):
                return str(at)
            at /= name
    finally:
        os.close(above)
    return ""
