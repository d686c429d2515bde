"""Where a task's own mounts may lie: never over what programs of the system believe in.

A mount point is a folder of the user's own, one that is empty, or one that is not there. For
the last, a folder above it that is root's alone is shown with one entry more, to the task
alone: nothing is made on the machine.
"""

import errno
import os
import posixpath
import stat
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from allotment.rights import paths

SYSTEM: Final = (
    "/proc", "/sys", "/dev", "/run", "/boot", "/etc", "/usr", "/var",
    "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
)  # fmt: skip
"""Nothing is mounted there, nor below."""
SHARED: Final = ("/", "/home", "/tmp", "/opt", "/srv", "/mnt", "/media", "/root")  # noqa: S108
"""Nothing is mounted there, though below."""
LONGEST: Final = 1024
_DEEPEST: Final = 32
_OTHERS_WRITE: Final = 0o022


class Target(NamedTuple):
    """A mount point: its path without links, and the folder to show with one entry more."""

    real: str
    above: str
    """'' where the mount point is there."""


def trouble_of(path: str) -> str:
    """Return why nothing may be mounted at a path, whatever is there; '' where it may."""
    if not path.startswith("/"):
        return "is not an absolute path"
    if len(path.encode(errors="replace")) > LONGEST or path.count("/") > _DEEPEST:
        return f"is longer than {LONGEST} bytes, or deeper than {_DEEPEST} folders"
    if posixpath.normpath(path) != path or path.startswith("//"):
        return "has '.', '..' or '//' in it"
    if not path.isprintable():
        return "has a control character"
    for system in SYSTEM:
        if path == system or path.startswith(f"{system}/"):
            return f"is in {system}, which programs of the system need as it is"
    return "is a folder of the whole machine; name one below it" if path in SHARED else ""


def is_roots_alone(folder: os.stat_result) -> bool:
    """Whether only root can write to a folder."""
    return folder.st_uid == 0 and not folder.st_mode & _OTHERS_WRITE


def _is_others(folder: os.stat_result) -> bool:
    """Whether a folder is of somebody else, and nobody else's to write to, as far as that can
    be seen in a user namespace that does not have root."""
    return folder.st_uid == _stand_in() and not folder.st_mode & _OTHERS_WRITE


@cache
def _stand_in() -> int:
    """Return who stands for all users that a namespace lacks; -1 in one that has root."""
    lines = Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
    if any(line.split()[0] == "0" for line in lines):
        return -1
    return int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii"))


def look_for(path: str, uid: int) -> Target:
    """Find a mount point for a user, with the rights of the calling thread.

    Raises OSError that says why it is none.
    """
    rest: list[str] = []
    at = path
    while True:
        try:
            fd = paths.resolve(at)
            break
        except FileNotFoundError:
            at, _, name = at.rpartition("/")
            at = at or "/"
            rest.append(name)
        except OSError as error:
            raise OSError(
                error.errno, f"{at}: {os.strerror(error.errno or 0).lower()}"
            ) from error
    try:
        real = os.readlink(f"/proc/self/fd/{fd}")
        found = os.fstat(fd)
        if not stat.S_ISDIR(found.st_mode):
            raise OSError(errno.ENOTDIR, f"{real} is not a folder")
        target = posixpath.join(real, *reversed(rest)) if rest else real
        if trouble := trouble_of(target):
            raise OSError(errno.EINVAL, f"{target} {trouble}")
        if rest:
            if not (is_roots_alone(found) or _is_others(found)):
                raise OSError(
                    errno.ENOENT, f"it is not there, and users may write to {real}: make it"
                )
            return Target(target, real)
        if found.st_uid != uid and not _is_empty(fd):
            raise OSError(
                errno.ENOTEMPTY, f"{real} has files of others, which a mount would hide"
            )
        return Target(target, "")
    finally:
        os.close(fd)


def _is_empty(folder: int) -> bool:
    try:
        fd = os.open(f"/proc/self/fd/{folder}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        with os.scandir(fd) as entries:
            return next(entries, None) is None
    finally:
        os.close(fd)
