"""Removes a folder of a user's, which may be nested deeper than anybody goes, and change.

Everything goes through descriptors of folders opened without following links, never through
paths, and nothing calls itself.
"""

import os
from typing import Final

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(root: int | None, name: str) -> None:
    """Remove a folder and all in it, as far as possible. Never raises.

    `name` is below `root`, or a path that leads through nobody else's folders.
    """
    if _remove_empty(root, name):
        return
    try:
        fd = os.open(name, _OPEN, dir_fd=root)
        try:
            _take(fd)
            _empty(fd)
        finally:
            os.close(fd)
        os.rmdir(name, dir_fd=root)
    except OSError:
        return


def _remove_empty(root: int | None, name: str) -> bool:
    """Remove it the quick way, which most often is enough. False when something is in it."""
    try:
        os.rmdir(name, dir_fd=root)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _empty(top: int) -> None:
    """Remove what is in a folder: folders in folders are moved up, so that none is deep."""
    folders = _unlink_files(top)
    moved = 0
    while folders:
        name = folders.pop()
        try:
            fd = os.open(name, _OPEN, dir_fd=top)
        except OSError:
            continue
        _take(fd)
        for below in _unlink_files(fd):
            moved += 1
            up = f".removed-{os.getpid()}-{moved}"
            try:
                os.rename(below, up, src_dir_fd=fd, dst_dir_fd=top)
            except OSError:
                continue
            folders.append(up)
        os.close(fd)
        _remove_empty(top, name)


def _take(fd: int) -> None:
    """Take a folder from its user, so that no process that has it open can fill it any more."""
    found = os.fstat(fd)
    if os.geteuid() != 0 or (found.st_uid == 0 and not found.st_mode & 0o022):
        return
    try:
        os.fchown(fd, 0, 0)
        os.fchmod(fd, 0o700)  # Its lists of rights then give none, too.
    except OSError:
        return


def _unlink_files(fd: int) -> list[str]:
    """Remove the files in a folder; give the folders, made removable."""
    folders: list[str] = []
    with os.scandir(fd) as entries:
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    if os.geteuid() != 0:
                        os.chmod(entry.name, 0o700, dir_fd=fd)
                    folders.append(entry.name)
                else:
                    os.unlink(entry.name, dir_fd=fd)
            except OSError:
                continue
    return folders
