"""Lets apt work where there is one user only: it insists on becoming another.

It asks APT_CONFIG for its settings. An ARG is seen by the steps of a build, and by nothing that
runs in the image later.
"""

import os
import re
import stat
from typing import Final

from allotment.building.dockerfile import with_argument

_SETTINGS: Final = b'APT::Sandbox::User "root";\n'
_USES_IT: Final = re.compile(r"\bapt(?:-get|itude)?\b")


def with_apt(text: str) -> str:
    """Return the text of a Dockerfile so that apt works in it; as it was if it has none."""
    path = f"/dev/shm/allot-apt-{os.getuid()}.conf"  # noqa: S108 - steps see it there, too
    if not _USES_IT.search(text) or "APT_CONFIG" in text or not _is_written(path):
        return text
    return with_argument(text, f"ARG APT_CONFIG={path}")


def _is_written(path: str) -> bool:
    """Write the settings; False where somebody else has that name."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        fd = os.open(path, flags, 0o600)
    except OSError:
        return False
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
            return False
        if os.pread(fd, len(_SETTINGS) + 1, 0) != _SETTINGS:
            os.truncate(fd, 0)
            os.pwrite(fd, _SETTINGS, 0)
    finally:
        os.close(fd)
    return True
