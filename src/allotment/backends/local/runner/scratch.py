"""A task attempt's scratch folder: made, measured and removed without following links.

The launcher may be root and the folder its user's, who could swap a name for a link at
any moment. So everything goes through file descriptors of folders opened without
following links, never through paths.
"""

import os
import stat
from typing import Final

from allotment.backends.local.runner import layout
from allotment.backends.local.runner.hierarchy import short_hash

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK_BYTES: Final = 512


def root_for(state_dir: str) -> str:
    """Choose where scratch folders lie: in the state folder if all users can reach it."""
    inside = f"{state_dir}/{layout.SCRATCH}"
    if os.geteuid() != 0 or _all_may_pass(state_dir):
        return inside
    return f"/var/tmp/allotment-{short_hash(state_dir)}"  # owner and mode are checked


def _all_may_pass(path: str) -> bool:
    while path != "/":
        if not os.stat(path).st_mode & stat.S_IXOTH:
            return False
        path = os.path.dirname(path)
    return True


def make_root(path: str) -> None:
    """Make the folder above all scratch folders. Raises OSError when it is another's."""
    try:
        os.mkdir(path, 0o711)
    except FileExistsError:
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise


def make(path: str, uid: int, gid: int) -> None:
    """Make one empty scratch folder for its user only."""
    os.mkdir(path, 0o700)
    if uid != os.geteuid():
        os.chown(path, uid, gid)


def used_bytes(path: str) -> int:
    """Add up the disk space below a folder. O(files); what vanishes meanwhile is skipped."""
    try:
        return _used_below(os.open(path, _OPEN))
    except OSError:
        return 0


def _used_below(fd: int) -> int:
    total = 0
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                total += _used_by(entry, fd)
    finally:
        os.close(fd)
    return total


def _used_by(entry: os.DirEntry[str], fd: int) -> int:
    try:
        total = entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
        if entry.is_dir(follow_symlinks=False):
            total += _used_below(os.open(entry.name, _OPEN, dir_fd=fd))
    except OSError:
        return 0
    return total


def remove(path: str) -> None:
    """Remove a scratch folder and all in it, as far as possible. Never raises."""
    if _remove_empty(path):
        return
    try:
        _empty(os.open(path, _OPEN))
        os.rmdir(path)
    except (OSError, RecursionError):
        return


def _remove_empty(path: str) -> bool:
    """Remove it the quick way, which most often is enough. False when something is in it."""
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _empty(fd: int) -> None:
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                _remove_entry(entry, fd)
    finally:
        os.close(fd)


def _remove_entry(entry: os.DirEntry[str], fd: int) -> None:
    try:
        if entry.is_dir(follow_symlinks=False):
            if os.geteuid() != 0:
                os.chmod(entry.name, 0o700, dir_fd=fd)
            _empty(os.open(entry.name, _OPEN, dir_fd=fd))
            os.rmdir(entry.name, dir_fd=fd)
        else:
            os.unlink(entry.name, dir_fd=fd)
    except OSError:
        return
