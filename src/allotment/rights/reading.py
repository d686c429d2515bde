"""Reads a small file of a user's with that user's rights, whatever it may turn out to be."""

import os
import stat

from allotment.rights import paths
from allotment.rights.user import User, rights_of


def read_small(path: str, user: User | None, most: int) -> bytes | None:
    """Read the beginning of a plain file; None where there is none, or it may not be read.

    May block. Raises OSError where the rights cannot be taken on.
    """
    with rights_of(user):
        try:
            handle = paths.resolve(path)
        except OSError:
            return None
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            fd = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        finally:
            os.close(handle)
        try:
            return os.read(fd, most)
        except OSError:
            return None
        finally:
            os.close(fd)
