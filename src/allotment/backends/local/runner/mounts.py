"""What a task sees of the file system, when we are root and need no other program's help.

The host's tree stays where it is, with the task's own rights. Four things change: data and
code folders are read-only, the state folder is hidden but for what the task was given in
it, /proc shows the task's own processes, and /dev holds the plain devices and the
accelerators that were allotted, nothing else.

Folders that a user named are resolved once, with his rights, and then mounted by descriptor
on themselves: whatever he changes meanwhile, nothing is shown to him that he could not reach,
nothing is made in a tree of his, and no name of the system's leads anywhere else than before,
for its supervisor, who is root, looks at the same tree (docs/adr/0012).

Bubblewrap does the same for users who are not root (bwrap.py). It is not used here because
under root it can only change the user by way of a user namespace, in which the files of all
others seem to be nobody's (ssh and git then refuse to work), and because it costs three
times as much (docs/benchmarks.md).
"""

import errno
import os
import stat
from collections.abc import Mapping
from typing import Final, NamedTuple

from allotment.backends.local.runner import datasets, libc
from allotment.backends.local.runner.datasets import DataPlace
from allotment.rights import paths
from allotment.rights.user import rights_of

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
_SYSTEM: Final = ("/proc", "/sys", "/dev")
"""What tasks and supervisors need as it is: not to be made read-only."""
_STAGE: Final = "/dev"
"""A folder that is always there and is root's alone."""


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
    mounts: tuple[DataPlace, ...] = ()
    """The datasets of its job."""


def look_at(path: str) -> Device:
    """Look up a device file. Raises OSError."""
    found = os.stat(path)
    return Device(path, found.st_mode, found.st_rdev, found.st_uid, found.st_gid)


def plain_devices() -> tuple[Device, ...]:
    """Look up the devices without which few programs run."""
    return tuple(look_at(f"/dev/{name}") for name in _PLAIN_DEVICES)


def shared_folders() -> tuple[str, ...]:
    """List the folders of devices that are not allotted one by one."""
    return tuple(path for path in _EXTRA_FOLDERS if os.path.isdir(path))


def under(path: str, folder: str) -> bool:
    """Whether a path is a folder or something in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


class Place(NamedTuple):
    """A folder or file of the host as its user reached it. `real` has no links in it."""

    path: str
    handle: int
    real: str
    is_read_only: bool


def build(view: View) -> None:
    """Make the view in the calling process's own mount namespace.

    Needs CAP_SYS_ADMIN, and to be in the task's PID namespace already. Raises OSError that
    names the path, or the mount, that failed.
    """
    # From the host new mounts still arrive (an automounted home); none go back.
    libc.mount("none", "/", "", libc.MS_REC | libc.MS_SLAVE)
    copies = datasets.copies(view.mounts, view.user)
    targets = datasets.make_targets(view.mounts, view.user)
    for target in targets:
        check_target(target.real, view.hidden)
    places = resolve(view)
    for place in places:
        check(place, view.hidden)
    covered = _covered(places, view.hidden)
    for place in places:
        if place.is_read_only and place not in covered:
            _attach(place, place.handle)
    # What is hidden last is so below each of the others as well.
    _attach_again([each for each in covered if not under(each.real, view.hidden)], view.user)
    _hide(view.hidden)
    inside = [each for each in covered if under(each.real, view.hidden)]
    _attach_again(inside, view.user, _make_targets(inside))
    for place in places:
        os.close(place.handle)
    devices = [look_at(path) for path in view.devices if under(path, "/dev")]
    libc.mount("proc", "/proc", "proc", libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC)
    build_dev([*view.plain, *devices], open_folders(view.folders))
    datasets.attach(copies, targets, view.user)


def resolve(view: View) -> list[Place]:
    """Resolve all paths, with the rights of the task's user and before anything covers them.

    Root may not enter a home that a file server keeps for its owner (root_squash); and where
    it may, it must not for him.
    """
    places: list[Place] = []
    with rights_of(view.user):
        for path in (*view.read_only, *view.writable):
            handle = _open(path)
            real = os.readlink(f"/proc/self/fd/{handle}")
            places.append(Place(path, handle, real, len(places) < len(view.read_only)))
    return places


def _open(path: str) -> int:
    try:
        return paths.resolve(path)
    except OSError as error:
        raise OSError(error.errno, f"{path}: {error.strerror}") from error


def check(place: Place, hidden: str) -> None:
    """Raise OSError where to show a place would take away what every task has."""
    system = [name for name in _SYSTEM if under(place.real, name) or under(name, place.real)]
    if place.is_read_only and system:
        why = f"{system[0]} would become read-only with it; name a folder of data"
    elif place.real == hidden:
        why = "it is the state folder, which tasks do not see"
    else:
        return
    raise OSError(errno.EINVAL, f"{place.path}: {why}")


def check_target(path: str, hidden: str) -> None:
    """Raise OSError where a dataset would be mounted over the state folder, or in it."""
    if under(path, hidden) or under(hidden, path):
        raise OSError(errno.EINVAL, f"{path}: the service keeps its state there")


def _covered(places: list[Place], hidden: str) -> list[Place]:
    """Return which places would be covered by others, or be hidden; topmost first."""
    covers = [place.real for place in places if place.is_read_only]
    covered = [
        place
        for place in places
        if under(place.real, hidden)
        or (not place.is_read_only and any(under(place.real, cover) for cover in covers))
    ]
    return sorted(covered, key=lambda place: len(place.real))


def _make_targets(places: list[Place]) -> dict[Place, int]:
    """Make and open names for hidden places in what hides them, which is root's alone.

    None for those below others: they lie in what will be shown there.
    """
    made: dict[Place, int] = {}
    for place in places:
        if any(under(place.real, top.real) for top in made):
            continue
        if stat.S_ISDIR(os.fstat(place.handle).st_mode):
            os.makedirs(place.real)
        else:
            os.makedirs(place.real.rpartition("/")[0], exist_ok=True)
            os.close(os.open(place.real, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        made[place] = os.open(place.real, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    return made


def _attach_again(
    places: list[Place], user: User | None, made: Mapping[Place, int] = {}
) -> None:
    """Mount places that something covers, where that shows them or a name was made."""
    for place in places:
        target = made[place] if place in made else _find_again(place, user)
        _attach(place, target)
        os.close(target)


def _find_again(place: Place, user: User | None) -> int:
    """Open a place where something covers it, which has to show the very same there."""
    with rights_of(user):
        try:
            target = paths.resolve(place.real, links=False)
        except OSError as error:
            raise _changed(place) from error
    if not paths.is_same(target, place.handle):
        os.close(target)
        raise _changed(place)
    return target


def _changed(place: Place) -> OSError:
    return OSError(errno.ESTALE, f"{place.path}: it was replaced while it was being mounted")


def _attach(place: Place, target: int) -> None:
    """Mount a place on a descriptor, with all that is mounted below it."""
    try:
        tree = libc.clone_tree(place.handle)
        try:
            if place.is_read_only:
                libc.make_tree_read_only(tree)
            libc.move_tree(tree, target)
        finally:
            os.close(tree)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise OSError(error.errno, f"{place.path}: {error.strerror}") from error
        _attach_by_stage(place, target)


def _attach_by_stage(place: Place, target: int) -> None:
    """Do the same where the kernel, or a sandbox, lacks these calls.

    What is mounted on a descriptor has no safe name by which to make it read-only. So that
    is done elsewhere, before it is moved to its place.
    """
    libc.mount(f"/proc/self/fd/{place.handle}", _STAGE, "", libc.MS_BIND | libc.MS_REC)
    if place.is_read_only:
        libc.make_read_only(_STAGE)
    libc.mount(_STAGE, f"/proc/self/fd/{target}", "", libc.MS_MOVE)


def _hide(folder: str) -> None:
    libc.mount("tmpfs", folder, "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, "mode=0755,size=256k")


def open_folders(folders: tuple[str, ...]) -> list[tuple[str, int]]:
    """Open folders of devices, before what is mounted on /dev covers them."""
    return [(path, _open(path)) for path in folders]


def build_dev(devices: list[Device], kept: list[tuple[str, int]]) -> None:
    """Make device files rather than bind the host's: each bind would be a mount."""
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
        os.makedirs(path, exist_ok=True)
        libc.mount(f"/proc/self/fd/{handle}", path, "", libc.MS_BIND | libc.MS_REC)
        os.close(handle)
    os.umask(umask)


def _make_device(device: Device) -> None:
    if device.path.count("/") > 2:
        os.makedirs(device.path.rpartition("/")[0], exist_ok=True)
    os.mknod(device.path, device.mode, device.number)
    if device.uid or device.gid:
        os.chown(device.path, device.uid, device.gid)
