"""A task attempt's scratch folder: made, measured and removed without following links.

The launcher may be root and the folder its user's, who could swap a name for a link at any
moment, or nest folders deeper than anybody goes. So everything goes through descriptors of
folders opened without following links, never through paths, and nothing calls itself.
"""

import contextlib
import errno
import fcntl
import os
import stat
import sys
from typing import Final

from allotment.backends.local.runner import layout, procfs
from allotment.backends.local.runner.hierarchy import short_hash

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK_BYTES: Final = 512
_MOST_LEVELS: Final = 200
"""Of folders in folders: what is deeper counts as too much of it."""
_SHARED: Final = "/var/tmp"  # noqa: S108 - owner and mode of what is in it are checked
_OURS: Final = 0o711


# ── the folder above all of them ────────────────────────────────────────────────────────


def open_root(state_dir: str) -> tuple[str, int]:
    """Make and open the folder above all scratch folders; give its path and descriptor.

    It lies in the state folder if all users can reach it there. Otherwise where all may make
    folders, so that somebody may have taken its name: another is chosen then, and kept in
    the state folder, which is the current one. Raises OSError.
    """
    inside = f"{state_dir}/{layout.SCRATCH}"
    if os.geteuid() != 0 or _all_may_pass(state_dir):
        return inside, _open_own(inside)
    usual = f"{_SHARED}/allotment-{short_hash(state_dir)}"
    for path in (_chosen(), usual):
        try:
            return path, _open_own(path)
        except OSError:
            continue
    path = f"{usual}-{os.urandom(6).hex()}"
    fd = _open_own(path)
    _choose(path)
    return path, fd


def give_back(path: str, fd: int) -> None:
    """Remove the folder above all scratch folders, unless a task or a launcher has it open.

    That of another state folder, too, which came to the place of ours.
    """
    os.close(fd)
    with contextlib.suppress(OSError):
        fcntl.flock(os.open(path, _OPEN), fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rmdir(path)


def _all_may_pass(path: str) -> bool:
    while path != "/":
        if not os.stat(path).st_mode & stat.S_IXOTH:
            return False
        path = os.path.dirname(path)
    return True


def _open_own(path: str) -> int:
    """Make and open a folder that nobody else can write to. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, _OURS)
    fd = os.open(path, _OPEN)
    found = os.fstat(fd)
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        os.close(fd)
        raise PermissionError(errno.EPERM, "it is not ours alone", path)
    # Those who clear up where all may write leave alone what is locked.
    fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return fd


def _chosen() -> str:
    try:
        return procfs.read(layout.SCRATCH_PLACE).strip()
    except OSError:
        return ""


def _choose(path: str) -> None:
    part = f"{layout.SCRATCH_PLACE}.new"
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    os.write(fd, os.fsencode(path))
    os.close(fd)
    os.rename(part, layout.SCRATCH_PLACE)


# ── one of them: `name` in the folder `root`, or in the current one ─────────────────────


def make(root: int | None, name: str, uid: int, gid: int) -> None:
    """Make one empty scratch folder for its user only."""
    os.mkdir(name, 0o700, dir_fd=root)
    if uid != os.geteuid():
        os.chown(name, uid, gid, dir_fd=root, follow_symlinks=False)


def used_bytes(root: int | None, name: str) -> int:
    """Add up the disk space below a folder. O(files); what vanishes meanwhile is skipped."""
    total = 0
    levels: list[tuple[int, list[str]]] = []
    try:
        levels.append(_open_level(name, root))
        while levels:
            fd, names = levels[-1]
            if not names:
                os.close(levels.pop()[0])
                continue
            used, is_folder = _used_by(names.pop(), fd, levels)
            total += used
            if is_folder and len(levels) > _MOST_LEVELS:
                return sys.maxsize
    except OSError:
        return total
    finally:
        for fd, _ in levels:
            os.close(fd)
    return total


def _open_level(name: str, folder: int | None) -> tuple[int, list[str]]:
    fd = os.open(name, _OPEN, dir_fd=folder)
    try:
        return fd, os.listdir(fd)
    except OSError:
        os.close(fd)
        raise


def _used_by(name: str, fd: int, levels: list[tuple[int, list[str]]]) -> tuple[int, bool]:
    """Measure one name; a folder is the next level to be looked at."""
    try:
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        is_folder = stat.S_ISDIR(found.st_mode)
        if is_folder:
            levels.append(_open_level(name, fd))
    except OSError:
        return 0, False
    return found.st_blocks * _BLOCK_BYTES, is_folder
