"""Makes a node's folder on a disk of the node's own, and becomes the fence there.

    own_folder FOLDER NODE FENCE…        with the note on standard input

It may lie in a folder like /var/tmp, where any user can lay something first: so no part of
its path may be a link, or another user's. Standard library only.
"""

import os
import stat
import sys
from typing import Final, NoReturn

LOG: Final = "pilot.log"
NAME: Final = "node"
"""In the folder: which node it is of."""
_LOOK: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def main() -> NoReturn:
    """Have the folder, write to its log from now on, and start the fence."""
    folder, node, *fence = sys.argv[1:]
    try:
        fd = open_own(folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        log = os.open(LOG, flags, 0o600, dir_fd=fd)
    except OSError as error:
        sys.exit(f"allotment: the node's folder {folder} cannot be used: {error}")
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    if (other := owner_of(fd, node)) != node:
        sys.exit(
            f"allotment: {folder} is the folder of node {other} too, so it is not on a disk "
            "of this "
            "node's own: take `folder` out of the engine, or name another"
        )
    os.execv(fence[0], fence)


def open_own(folder: str) -> int:
    """Make a folder where it is missing, and open it. Raises OSError where it is not ours."""
    fd = os.open("/", _LOOK)
    path = ""
    for name in (part for part in folder.split("/") if part):
        path = f"{path}/{name}"
        is_new = True
        try:
            os.mkdir(name, 0o711, dir_fd=fd)
        except FileExistsError:
            is_new = False
        below = os.open(name, _LOOK, dir_fd=fd)
        if is_new:
            os.fchmod(below, 0o711)  # whatever the umask: users reach their files
        os.close(fd)
        fd = below
        found = os.fstat(fd)
        if found.st_uid not in (0, os.geteuid()):
            raise PermissionError(1, "is another user's", path)
        if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
            raise PermissionError(1, "can be changed by other users", path)
    os.fchmod(fd, 0o711)
    return fd


def owner_of(folder: int, node: str) -> str:
    """Return which node has a folder: the first that wrote its name there."""
    try:
        fd = os.open(NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
    except FileExistsError:
        with os.fdopen(os.open(NAME, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)) as file:
            return file.read(1000) or node
    with os.fdopen(fd, "w") as file:
        file.write(node)
    return node
