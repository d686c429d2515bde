"""What a task sees of the file system, when we are root and need no other program's help.

The host's tree stays where it is, with the task's own rights. Four things change: data and
code folders are read-only, the state folder is hidden but for what the task was given in
it, /proc shows the task's own processes, and /dev holds the plain devices and the
accelerators that were allotted, nothing else.

Bubblewrap does the same for users who are not root (bwrap.py). It is not used here because
under root it can only change the user by way of a user namespace, in which the files of all
others seem to be nobody's (ssh and git then refuse to work), and because it costs three
times as much (docs/benchmarks.md).
"""

import functools
import os
import stat
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from allotment.backends.local.runner import libc

_PLAIN_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS: Final = (
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("/proc/kcore", "core"),
    ("pts/ptmx", "ptmx"),
)
_EXTRA_FOLDERS: Final = ("/dev/infiniband",)


class User(NamedTuple):
    """Who the task runs as."""

    uid: int
    gid: int
    groups: tuple[int, ...]


class Device(NamedTuple):
    """A device file as it was found on the host."""

    path: str
    mode: int
    number: int
    uid: int
    gid: int


class View(NamedTuple):
    """What to show. `hidden` is the state folder; all paths are absolute.

    `plain` are the devices that everybody has; `folders` those of /dev shown as they are.
    """

    hidden: str
    plain: tuple[Device, ...]
    folders: tuple[str, ...]
    read_only: tuple[str, ...]
    writable: tuple[str, ...]
    devices: tuple[str, ...]
    user: User | None = None


def look_at(path: str) -> Device:
    """Look a device file up. Raises OSError."""
    found = os.stat(path)
    return Device(path, found.st_mode, found.st_rdev, found.st_uid, found.st_gid)


def plain_devices() -> tuple[Device, ...]:
    """Look up the devices without which few programs run."""
    return tuple(look_at(f"/dev/{name}") for name in _PLAIN_DEVICES)


def shared_folders() -> tuple[str, ...]:
    """List the folders of devices that are not allotted one by one."""
    return tuple(path for path in _EXTRA_FOLDERS if os.path.isdir(path))


def under(path: str, folder: str) -> bool:
    """Tell whether a path is a folder or something in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def plan(view: View) -> tuple[list[str], list[str]]:
    """Say which paths must be mounted again, read-only and writable, after the hiding.

    A writable path needs it below a read-only one; both need it below the hidden one.
    """
    again_read_only = [path for path in view.read_only if under(path, view.hidden)]
    covers = (view.hidden, *view.read_only)
    again_writable = [
        path for path in view.writable if any(under(path, cover) for cover in covers)
    ]
    return again_read_only, again_writable


def build(view: View) -> None:
    """Make the view in the calling process's own mount namespace.

    Needs CAP_SYS_ADMIN, and to be in the task's PID namespace already. Raises OSError that
    names the mount that failed.
    """
    again_read_only, again_writable = plan(view)
    # From the host new mounts still arrive (an automounted home); none go back.
    libc.mount("none", "/", "", libc.MS_REC | libc.MS_SLAVE)
    # Opened before anything covers them, so that they can be mounted again below.
    handles = {
        path: _as_allowed(_open, path, view.user)
        for path in (*again_read_only, *again_writable)
    }
    for path in view.read_only:
        if path not in handles:
            _as_allowed(_bind_read_only, path, view.user)
    _hide(view.hidden)
    for path, handle in handles.items():
        _as_allowed(functools.partial(_mount_again, handle), path, view.user)
    for path in again_read_only:
        if path not in again_writable:
            libc.make_read_only(path)
    for handle in handles.values():
        os.close(handle)
    devices = [look_at(path) for path in view.devices if under(path, "/dev")]
    libc.mount("proc", "/proc", "proc", libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC)
    _build_dev([*view.plain, *devices], view.folders)


_Result = TypeVar("_Result")


def _as_allowed(action: Callable[[str], _Result], path: str, user: User | None) -> _Result:
    """Use a path as ourselves, or as the task's user where only he may.

    Root may not enter a home that a file server keeps for its owner (root_squash).
    """
    try:
        return action(path)
    except PermissionError:
        if user is None:
            raise
    groups = os.getgroups()
    os.setgroups(user.groups)
    libc.set_file_user(user.uid, user.gid)
    try:
        return action(path)
    finally:
        libc.set_file_user(0, 0)
        os.setgroups(groups)


def _bind_read_only(path: str) -> None:
    _bind(path, path)
    libc.make_read_only(path)


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise OSError(error.errno, f"{path}: {error.strerror}") from error


def _bind(source: str, target: str) -> None:
    libc.mount(source, target, "", libc.MS_BIND | libc.MS_REC)


def _hide(folder: str) -> None:
    libc.mount("tmpfs", folder, "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, "mode=0755,size=256k")


def _mount_again(handle: int, path: str) -> None:
    if stat.S_ISDIR(os.fstat(handle).st_mode):
        os.makedirs(path, exist_ok=True)
    elif not os.path.lexists(path):
        os.makedirs(path.rpartition("/")[0], exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    _bind(f"/proc/self/fd/{handle}", path)


def _build_dev(devices: list[Device], folders: tuple[str, ...]) -> None:
    """Make device files rather than bind the host's: each bind would be a mount."""
    kept = [(path, _open(path)) for path in folders]
    libc.mount("tmpfs", "/dev", "tmpfs", libc.MS_NOSUID | libc.MS_NOEXEC, "mode=0755,size=64k")
    umask = os.umask(0)
    for device in devices:
        _make_device(device)
    for target, name in _LINKS:
        os.symlink(target, f"/dev/{name}")
    os.mkdir("/dev/shm", 0o1777)
    libc.mount("tmpfs", "/dev/shm", "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, "mode=1777")
    os.mkdir("/dev/pts", 0o755)
    options = "newinstance,ptmxmode=0666,mode=620"
    libc.mount("devpts", "/dev/pts", "devpts", libc.MS_NOSUID | libc.MS_NOEXEC, options)
    for path, handle in kept:
        _mount_again(handle, path)
        os.close(handle)
    os.umask(umask)


def _make_device(device: Device) -> None:
    if device.path.count("/") > 2:
        os.makedirs(device.path.rpartition("/")[0], exist_ok=True)
    os.mknod(device.path, device.mode, device.number)
    if device.uid or device.gid:
        os.chown(device.path, device.uid, device.gid)
