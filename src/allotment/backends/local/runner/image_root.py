"""The world of a task that brings an image: its layers, and above them what the task has.

Everything is made in the task's own mount namespace, so it goes with the last of its processes,
however they end. Layers are shared and only read; what the task writes lies in a folder beside
its scratch folder, which no other user enters and which counts as scratch space.

First the image is the root, and what it lacks is made in memory: mount points, who the user
is, what the host knows of names. Then that is one layer more, and the task's root lies above
it. So a start makes a handful of folders on the disk, whatever the image has. In both, all is
done by plain names: a link that an image has leads to another place of the same image,
whatever it says. Whoever builds it must have all modules that it will want: what Python would
find from then on is the image's.
"""

import contextlib
import errno
import fcntl
import os
import posixpath
import stat
from collections.abc import Generator
from typing import Final

from allotment.backends.local.runner import datasets, libc, mounts, overlay
from allotment.backends.local.runner.mounts import Place, View
from allotment.backends.local.runner.schema import Dataset, TaskImage
from allotment.rights import paths, removing
from allotment.rights.unmounting import unmount

LAYERS: Final = "images/layers"
"""Below the state folder. Options of a mount have one page, so layers are named from there."""
_STAGE: Final = "/dev"
"""A folder that is always there and is root's alone."""
_STAGES_OPTIONS: Final = "mode=0755,size=16m"
_COVERS_OPTIONS: Final = "mode=0755,size=256k"
OF_TASKS: Final = ",volatile,xino=on"
"""What a task writes ends with it: without the first, its end would write the whole disk out.
The second has all of an image's files on one device, as programs expect."""
_UPPER: Final = "upper"
_WORK: Final = "work"
_INNER: Final = f"{_WORK}/{_WORK}"
"""What an overlay makes in its work folder, with marks of what it can do."""
_MARKS: Final = f"{_INNER}/incompat"
_LEFT: Final = (f"{_MARKS}/volatile", _MARKS, _INNER, _WORK, _UPPER)
_FROM_HOST: Final = ("resolv.conf", "hosts", "localtime", "timezone")
_MOST_BYTES: Final = 1 << 20
_MOST_SHOWN: Final = 200
_LOOK: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def beside(key: str) -> str:
    """Name the folder of what a task writes into its image, beside its scratch folder."""
    return f"{key}.image"


def written(key: str) -> str:
    """Name the part of it that counts as used."""
    return f"{beside(key)}/{_UPPER}"


def remove(scratch: int | None, key: str) -> None:
    """Remove the folder of what a task wrote. Never raises.

    What a mount leaves there is known, and goes by its names, most often with all there is.
    """
    folder = beside(key)
    with contextlib.suppress(OSError):
        os.unlink(f"{folder}/{_LEFT[0]}/dirty", dir_fd=scratch)
    for name in _LEFT:
        with contextlib.suppress(OSError):
            os.rmdir(f"{folder}/{name}", dir_fd=scratch)
    removing.remove(scratch, folder)


def hold(home: int, image: TaskImage) -> int:
    """Open the record of an image, and keep it from being removed while that is open.

    Raises OSError when it is gone already.
    """
    try:
        record = os.open(image["record"], os.O_RDONLY | os.O_CLOEXEC, dir_fd=home)
        fcntl.flock(record, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if not os.fstat(record).st_nlink:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    except OSError as error:
        why = "the image was removed from the store before the task began"
        raise OSError(error.errno, why) from error
    return record


def build(
    view: View, image: TaskImage, cwd: str, home: int, written_to: tuple[str, int]
) -> None:
    """Make the world in the calling process's own mount namespace, and go there.

    `home` is the state folder, `written_to` the path and descriptor of the folder for what is
    written. Needs CAP_SYS_ADMIN, and to be in the task's PID namespace already. Raises OSError
    that says what failed.
    """
    libc.mount("none", "/", "", libc.MS_REC | libc.MS_SLAVE)
    places = mounts.resolve(view)
    for place in places:
        mounts.check(place, view.hidden)
    trees = [_copy(place.handle, place.path, place.is_read_only) for place in places]
    trees += datasets.copies(view.mounts, view.user)
    drivers = [_driver(bind) for bind in image.get("drivers", ())]
    system = os.open("/sys", _LOOK)
    system_tree = _copy(system, "/sys", is_read_only=True)
    asked = [mounts.look_at(path) for path in view.devices if mounts.under(path, "/dev")]
    devices, is_root = [*view.plain, *asked], os.geteuid() == 0
    # They are copied, for from a root that was let go of nothing can be mounted. Of devices
    # only root makes others.
    kept = [_kept(path, is_folder=True) for path in view.folders]
    if not is_root:
        kept += [_kept(device.path, is_folder=False) for device in devices]
    host = {name: _read(f"/etc/{name}") for name in _FROM_HOST}
    layers = _again_here(f"{view.hidden}/{LAYERS}", os.open(LAYERS, _LOOK, dir_fd=home))
    folder = _again_here(*written_to)
    proc = own_proc()
    libc.mount("tmpfs", _STAGE, "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, _STAGES_OPTIONS)
    root = f"{_STAGE}/root"
    os.mkdir(root, 0o755)
    mount_layers(image["layers"], layers, _STAGE, root)
    with _root_at(root):
        _write_etc(host, image)
        _make_folders(image, cwd)
        _make_targets(places)
        for mount in view.mounts:
            _make_folder(mount.at)
        for name in ("proc", "sys", "dev"):
            make_plain_folder(f"/{name}")
    unmount(root)
    names = [f"{_STAGE}/{_UPPER}", *image["layers"]]
    try:
        mount_layers(names, layers, f"/proc/self/fd/{folder}", root, OF_TASKS)
    except OSError as error:
        raise unfit_disk(written_to[0], error) from error
    go_to_root(root)
    os.close(layers)
    os.close(folder)
    attach(proc, "/proc", is_systems=True)
    attach(system_tree, "/sys", is_systems=True)
    for at, tree in drivers:
        attach(tree, at)
    mounts.build_dev(devices if is_root else [], [])
    for path, tree, is_folder in kept:
        make_target(path, is_folder=is_folder)
        attach(tree, path, is_systems=True)
    _show(view, places, trees, home)
    for fd in (system, *(place.handle for place in places)):
        os.close(fd)


def _show(view: View, places: list[Place], trees: list[int], home: int) -> None:
    """Mount what a task has of the host, and let nothing of it show the state folder.

    What it has of that as well lies in what covers it: there a name is made for it.
    """
    found = [(place.path, place.real, posixpath.relpath(place.real, view.hidden))
             for place in places]  # fmt: skip
    found += [(mount.at, mount.source, "..") for mount in view.mounts]
    covers: list[int] = []
    for (path, real, inside), tree in sorted(
        zip(found, trees, strict=True), key=lambda each: len(each[0][0])
    ):
        for cover in covers if not mounts.under(inside, "..") else ():
            is_folder = stat.S_ISDIR(os.fstat(tree).st_mode)
            # By its descriptor: above it are folders of users.
            make_target(f"/proc/self/fd/{cover}/{inside}", is_folder=is_folder)
        attach(tree, path)
        if mounts.under(view.hidden, real):
            covers.append(_cover(path, posixpath.relpath(view.hidden, real), home))
    for fd in covers:
        os.close(fd)


# ── from the host ───────────────────────────────────────────────────────────────────────


def _copy(handle: int, path: str, is_read_only: bool) -> int:  # noqa: FBT001 - of a place
    """Copy what is mounted at a descriptor; it comes into the image later."""
    try:
        tree = libc.clone_tree(handle)
        if is_read_only:
            libc.make_tree_read_only(tree)
    except OSError as error:
        raise OSError(error.errno, f"{path}: {error.strerror}") from error
    return tree


def _kept(path: str, *, is_folder: bool) -> tuple[str, int, bool]:
    """Copy a device of the host, or a folder of such, as it is."""
    handle = paths.resolve(path)
    try:
        return path, _copy(handle, path, is_read_only=False), is_folder
    finally:
        os.close(handle)


def own_proc() -> int:
    """Mount what shows the processes of our PID namespace; return a copy for another root.

    Without root's rights it has to be done where another such is to be seen.
    """
    try:
        libc.mount("proc", "/proc", "proc", libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC)
    except OSError as error:
        why = "a task may not mount its own /proc, as where parts of /proc are covered"
        raise OSError(error.errno, f"{why}: {os.strerror(error.errno or 0)}") from error
    handle = os.open("/proc", _LOOK)
    try:
        return libc.clone_tree(handle)
    finally:
        os.close(handle)


def _driver(bind: Dataset) -> tuple[str, int]:
    """Copy a file or folder of drivers; their places are made in a layer of the image."""
    try:
        handle = paths.resolve(bind["source"], links=False)
        try:
            tree = libc.clone_tree(handle)
        finally:
            os.close(handle)
        libc.make_tree_safe(tree, is_read_only=not bind["write"])
    except OSError as error:
        raise OSError(error.errno, f"{bind['source']}: {error.strerror}") from error
    return bind["at"], tree


def _read(path: str) -> bytes | None:
    """Read a small plain file; None where there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
            return None
        return os.read(fd, found.st_size)
    finally:
        os.close(fd)


def _again_here(path: str, folder: int) -> int:
    """Open a folder of ours anew in this mount namespace: of another, none can be mounted."""
    found = os.open(path, _LOOK)
    is_same = paths.is_same(found, folder)
    os.close(folder)
    if not is_same:
        os.close(found)
        raise OSError(errno.ESTALE, f"{path}: it is another folder than before")
    return found


def unfit_disk(path: str, error: OSError) -> OSError:
    """Return in words what a disk said that is no good for images."""
    text = f"{path} is on a disk that cannot take what tasks write into images"
    return OSError(error.errno, f"{text} (overlay: {os.strerror(error.errno or 0)})")


def mount_layers(
    names: list[str], layers: int, written: str, root: str, more: str = ""
) -> None:
    """Mount the layers, topmost first, under what is written, in a folder that is given.

    Raises OSError.
    """
    for name in (_UPPER, _WORK):
        os.mkdir(f"{written}/{name}", 0o755)
    ours = f"upperdir={written}/{_UPPER},workdir={written}/{_WORK}"
    options = f"lowerdir={':'.join(names)},{ours}{more}{overlay.options()}"
    os.fchdir(layers)
    try:
        flags = libc.MS_NOSUID | libc.MS_NODEV
        libc.mount("overlay", root, "overlay", flags, options)
    except OSError as error:
        why = os.strerror(error.errno or 0)
        text = f"the layers of the image cannot be mounted (overlay): {why}"
        raise OSError(error.errno, text) from error


@contextlib.contextmanager
def _root_at(path: str) -> Generator[None]:
    """Have a folder as the root for a while."""
    before = os.open("/", _LOOK)
    os.chroot(path)
    os.chdir("/")
    try:
        yield
    finally:
        os.fchdir(before)
        os.chroot(".")
        os.close(before)


def go_to_root(path: str) -> None:
    """Make a mounted folder the root, and let go of the one before."""
    old = os.open("/", _LOOK)
    os.chdir(path)
    libc.pivot_root(".", ".")
    os.fchdir(old)
    unmount(".")
    os.close(old)
    os.chdir("/")


# ── in the image ────────────────────────────────────────────────────────────────────────


def _write_etc(host: dict[str, bytes | None], image: TaskImage) -> None:
    """Write who the user is, and what the host knows of names and time."""
    os.makedirs("/etc", exist_ok=True)
    for name, data in host.items():
        if data is not None:
            _replace(f"/etc/{name}", data)
    for name in ("passwd", "group"):
        before = _read(f"/etc/{name}") or b""
        line, number = image[name].encode(), image[name].split(":")[2].encode()
        numbers = [words.split(b":")[2:3] for words in before.splitlines()]
        # Root is called what the image calls it.
        if number != b"0" or [number] not in numbers:
            _replace(f"/etc/{name}", line + b"\n" + before)


def _replace(path: str, data: bytes) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _in_image(path, error) from error
    fd = os.open(path, _NEW, 0o644)
    os.write(fd, data)
    os.close(fd)


def _make_folders(image: TaskImage, cwd: str) -> None:
    """Make what every task needs: a place for small files, its home, where it begins."""
    if not os.path.isdir("/tmp"):  # noqa: S108 - the image's own
        _make_folder("/tmp")  # noqa: S108
        os.chmod("/tmp", 0o1777)  # noqa: S103, S108 - as it is everywhere
    home = image["home"]
    if not os.path.isdir(home):
        _make_folder(home)
        os.chown(home, image["uid"], image["gid"])
        os.chmod(home, 0o700)
    if not os.path.isdir(cwd):
        _make_folder(cwd)


def _make_folder(path: str) -> None:
    try:
        _make_all(path)
    except OSError as error:
        raise _in_image(path, error) from error
    except ValueError as error:
        problem = OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        raise _in_image(path[:_MOST_SHOWN], problem) from error


def _make_all(path: str) -> None:
    """Make a folder and those above it: most often only its name is missing."""
    missing, path = list[str](), path.rstrip("/")
    while True:
        try:
            os.mkdir(path)
        except FileNotFoundError:
            missing.append(path)
            path = os.path.dirname(path) or "/"
        except FileExistsError:
            if not os.path.isdir(path):
                raise
            break
        else:
            break
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):  # It ends in `..`.
            os.mkdir(each)


def make_plain_folder(path: str) -> None:
    """Make a folder that is one itself: to where a link leads, nothing may be mounted."""
    if os.path.islink(path):
        os.unlink(path)
    _make_folder(path)


def _make_targets(places: list[Place]) -> None:
    """Make a name for each place, before anything of a user's is there."""
    for place in places:
        make_target(place.path, is_folder=stat.S_ISDIR(os.fstat(place.handle).st_mode))


def make_target(path: str, *, is_folder: bool) -> None:
    """Make a name at which something can be mounted, where there is none. Raises OSError."""
    if is_folder:
        _make_folder(path)
    elif not os.path.exists(path):
        _make_folder(path.rpartition("/")[0])
        try:
            os.close(os.open(path, _NEW, 0o644))
        except OSError as error:
            raise _in_image(path, error) from error


def attach(tree: int, path: str, *, is_systems: bool = False) -> None:
    """Mount a copy at a path of the image, which leads to nothing of the system's unless that
    is meant. Raises OSError."""
    try:
        target = paths.resolve(path)
        try:
            if not is_systems:
                datasets.check_in_image(target, path)
            libc.move_tree(tree, target)
        finally:
            os.close(target)
    except OSError as error:
        raise _in_image(path, error) from error
    os.close(tree)


def _cover(path: str, below: str, home: int) -> int:
    """Cover the state folder where a place shows it, by one of memory; return that, opened."""
    top = paths.resolve(path)
    try:
        found = paths.open_below(top, below, _LOOK)
        if not paths.is_same(found, home):
            raise OSError(errno.ESTALE, f"{path}/{below}: it is another folder than before")
        flags = libc.MS_NOSUID | libc.MS_NODEV
        libc.mount("tmpfs", f"/proc/self/fd/{found}", "tmpfs", flags, _COVERS_OPTIONS)
        os.close(found)
        return paths.open_below(top, below, _LOOK)
    finally:
        os.close(top)


def _in_image(path: str, error: OSError) -> OSError:
    return OSError(error.errno, f"in the image, {path}: {os.strerror(error.errno or 0)}")
