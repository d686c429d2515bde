"""Datasets that a task finds where its job wants them, in its own mount namespace.

What is mounted was named by the service, and is opened with its rights: users may not pass
through the folders above it, and need not. Where it is mounted was named by the user, and is
looked for with the user's rights (rights/mount_points.py). A mount point that is not there is
made in a copy of the folder above it: an empty folder of memory in which each entry of that
folder is mounted again. So nothing is made on the machine, and names of datasets stand nowhere.
"""

import errno
import os
import posixpath
import stat
from typing import Final, NamedTuple

from allotment.backends.local.runner import libc
from allotment.rights import paths
from allotment.rights.mount_points import SYSTEM, Target, is_roots_alone, look_for
from allotment.rights.unmounting import unmount
from allotment.rights.user import User, rights_of

_STAGE: Final = "/dev"
"""A folder that is always there and is root's alone."""
_LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_ENTRIES: Final = 1_000


class DataPlace(NamedTuple):
    """A folder of the service's, or one that an administrator registered, and where to."""

    source: str
    at: str
    write: bool


def copies(mounts: tuple[DataPlace, ...], user: User | None) -> list[int]:
    """Copy what is to be mounted, before anything covers it. Raises OSError.

    A copy is read-only unless it may be written.
    """
    return [_copied(mount, user) for mount in mounts]


def _opened(mount: DataPlace, user: User | None) -> int:
    try:
        try:
            return paths.resolve(mount.source, links=False)
        except PermissionError:
            # A file server may not trust our root, and may its users.
            with rights_of(user):
                return paths.resolve(mount.source, links=False)
    except OSError as error:
        why = os.strerror(error.errno or 0).lower()
        raise OSError(
            error.errno, f"the data for {mount.at} cannot be opened: {why}"
        ) from error


def _copied(mount: DataPlace, user: User | None) -> int:
    handle = _opened(mount, user)
    try:
        tree = libc.clone_tree(handle)
        if not mount.write:
            libc.make_tree_read_only(tree)
    except OSError as error:
        raise OSError(error.errno, f"{mount.at}: {error.strerror}") from error
    finally:
        os.close(handle)
    return tree


# ── on the machine's own tree ───────────────────────────────────────────────────────────


def make_targets(mounts: tuple[DataPlace, ...], user: User | None) -> list[Target]:
    """Find the mount points, and make those that are not there. Raises OSError."""
    uid = os.geteuid() if user is None else user.uid
    with rights_of(user):
        targets = [look_for(mount.at, uid) for mount in mounts]
    folders = sorted({target.above for target in targets if target.above})
    shown = {folder: _show_anew(folder, user) for folder in folders}
    for target in targets:
        if target.above:
            # Below the folder that is ours: at its path there may be a link by now.
            below = posixpath.relpath(target.real, target.above)
            os.makedirs(f"/proc/self/fd/{shown[target.above]}/{below}", exist_ok=True)
    for fd in shown.values():
        os.close(fd)
    return targets


def attach(trees: list[int], targets: list[Target], user: User | None) -> None:
    """DataPlace the copies at their targets, last of all. Raises OSError."""
    for tree, target in zip(trees, targets, strict=True):
        try:
            with rights_of(user):
                place = paths.resolve(target.real, links=False)
            try:
                libc.move_tree(tree, place)
            finally:
                os.close(place)
        except OSError as error:
            raise OSError(error.errno, f"{target.real}: {error.strerror}") from error
        finally:
            os.close(tree)


def _show_anew(folder: str, user: User | None) -> int:
    """Cover a folder by a copy to which entries can be added; of `/` it becomes the root.

    Return the copy, opened. The user may be able to put something else at the folder's path.
    """
    with rights_of(user):
        top = paths.resolve(folder, links=False)
    found = os.fstat(top)
    if not is_roots_alone(found):
        raise OSError(errno.ESTALE, f"{folder}: it was replaced while it was being mounted")
    names = _names_in(top)
    if len(names) > _MOST_ENTRIES:
        raise OSError(errno.E2BIG, f"{folder} has too many entries to be shown with one more")
    entries = [(name, os.open(name, _LOOK, dir_fd=top)) for name in names]
    trees = [(name, fd, _tree_of(fd)) for name, fd in entries]
    mode = f"mode={stat.S_IMODE(found.st_mode):o},size=256k"
    libc.mount("tmpfs", _STAGE, "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, mode)
    fresh = os.open(_STAGE, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    os.chown(f"/proc/self/fd/{fresh}", found.st_uid, found.st_gid)
    if folder != "/":
        staged, fresh = fresh, libc.clone_tree(fresh)
        os.close(staged)
        unmount(_STAGE)
        libc.move_tree(fresh, top)
    for name, fd, tree in trees:
        _show(name, fd, tree, fresh)
    if folder == "/":
        os.fchdir(fresh)
        libc.pivot_root(".", ".")
        os.fchdir(top)
        unmount(".")
        os.chdir("/")
    os.close(top)
    return fresh


def _names_in(folder: int) -> list[str]:
    fd = os.open(f"/proc/self/fd/{folder}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def _tree_of(fd: int) -> int:
    return -1 if stat.S_ISLNK(os.fstat(fd).st_mode) else libc.clone_tree(fd)


def _show(name: str, fd: int, tree: int, folder: int) -> None:
    """Show an entry in a folder of ours: a link as a link, all else by mounting it."""
    if tree < 0:
        os.symlink(os.readlink("", dir_fd=fd), name, dir_fd=folder)
        os.close(fd)
        return
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.mkdir(name, 0o755, dir_fd=folder)
    else:
        made = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644,
                       dir_fd=folder)  # fmt: skip
        os.close(made)
    target = os.open(name, _LOOK, dir_fd=folder)
    libc.move_tree(tree, target)
    for each in (target, tree, fd):
        os.close(each)


# ── in an image ─────────────────────────────────────────────────────────────────────────


def check_in_image(place: int, path: str) -> None:
    """Raise OSError where an image's links lead a mount over what every task needs."""
    real = os.readlink(f"/proc/self/fd/{place}")
    if any(real == name or real.startswith(f"{name}/") for name in SYSTEM[:3]):
        raise OSError(errno.EINVAL, f"in the image, {path} leads to {real}")


# ── for bubblewrap ──────────────────────────────────────────────────────────────────────


class Shown(NamedTuple):
    """A folder to be shown with entries more: its entries, and where links lead."""

    folder: str
    entries: tuple[tuple[str, str], ...]
    """Names, and where a link leads; '' for what is none."""


def shown_anew(mounts: tuple[DataPlace, ...]) -> list[Shown]:
    """Return the folders in which mount points are missing, those above others first.

    As the task's user, who is ours. Raises OSError.
    """
    targets = [look_for(mount.at, os.geteuid()) for mount in mounts]
    found: list[Shown] = []
    for folder in sorted({target.above for target in targets if target.above}):
        with os.scandir(folder) as entries:
            listed = sorted(
                (entry.name, os.readlink(entry.path) if entry.is_symlink() else "")
                for entry in entries
            )
        if len(listed) > _MOST_ENTRIES:
            raise OSError(
                errno.E2BIG, f"{folder} has too many entries to be shown with one more"
            )
        found.append(Shown(folder, tuple(listed)))
    return found
