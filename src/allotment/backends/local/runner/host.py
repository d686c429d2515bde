"""What the launcher learns of this machine at its start and every supervisor inherits."""

import os
import signal
import stat
from collections.abc import Callable
from functools import partial
from typing import Final

from allotment.backends.local.runner import (
    hierarchy,
    image_root,
    libc,
    mounts,
    overlay,
    procfs,
    scratch,
    user_namespace,
    verdict,
)
from allotment.backends.local.runner.schema import TaskImage
from allotment.rights.removing import remove

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_TRIED: Final = "run/overlay"
_EMPTY: Final = "empty"
_PLACES: Final = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap")


class Host:
    """Facts and descriptors: an empty stdin, the state folder, the scratch folders, the
    host's /proc.

    `missing` says of each means of isolation that is not in force why not. A plain class
    with slots: its fields are read in every supervisor, and a named tuple's cost more.
    """

    __slots__ = (
        "boot_id",
        "bwrap",
        "devices",
        "folders",
        "hierarchy",
        "home",
        "missing",
        "namespaces",
        "proc",
        "reached",
        "scratch",
        "scratch_root",
        "state_dir",
        "stdin",
    )

    def __init__(self, state_dir: str) -> None:
        self.state_dir = state_dir
        self.missing: dict[str, str] = {}
        self.boot_id = procfs.boot_id()
        self.hierarchy = hierarchy.prepare(state_dir)
        self.reached = self.hierarchy.reached()
        self.bwrap = find_bwrap(self.missing)
        self.devices = mounts.plain_devices()
        self.folders = mounts.shared_folders()
        self.namespaces = "bwrap" if self.bwrap else "none"
        if own_namespaces_work(state_dir, self.devices, self.missing):
            self.namespaces = "own"
        if problem := why_no_images(state_dir, self.devices):
            self.missing["images"] = problem
        self.scratch_root, self.scratch = "", -1
        self.stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self.home = os.open(".", _FOLDER)
        self.proc = os.open("/proc", _FOLDER)


def look(state_dir: str) -> Host:
    """Find out what this machine allows us to do, by trying it. Takes a few ms.

    Makes the folder of scratch folders too. To be called in the state folder.
    """
    found = Host(state_dir)
    found.scratch_root, found.scratch = scratch.open_root(state_dir)
    return found


def find_bwrap(missing: dict[str, str]) -> str:
    """Return the path of a bubblewrap that works here, or note why there is none."""
    path = next((place for place in _PLACES if os.access(place, os.X_OK)), "")
    if not path:
        missing["bwrap"] = "bubblewrap is not installed"
        return ""
    argv = [path, "--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--dev", "/dev"]
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    pid = os.posix_spawn(path, [*argv, "true"], {"PATH": "/usr/bin:/bin"}, file_actions=null)
    if os.waitpid(pid, 0)[1] == 0:
        return path
    missing["bwrap"] = "bubblewrap may not make namespaces here (a container, or a setting)"
    return ""


def own_namespaces_work(
    state_dir: str, devices: tuple[mounts.Device, ...], missing: dict[str, str]
) -> bool:
    """Try in a child what init does for a task."""
    if os.geteuid() != 0:
        missing["own"] = "only root makes namespaces without help"
        return False
    view = mounts.View(state_dir, devices, (), (), (), ())
    problem = _said_by_first(partial(_try_mounts, view))
    if problem:
        missing["own"] = problem
    return not problem


def _said_by(attempt: Callable[[], None]) -> str:
    """Try something in a child; return what keeps it from working, '' where it does."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            attempt()
        except BaseException as error:  # noqa: BLE001 - a forked child must not go on
            os.write(write_end, verdict.text_of(error).encode()[:4000])
        finally:
            os._exit(0)
    os.close(write_end)
    problem = os.read(read_end, 4000).decode(errors="replace")
    os.close(read_end)
    os.waitpid(pid, 0)
    return problem


def _said_by_first(attempt: Callable[[], None]) -> str:
    """Try something in the first process of a PID namespace; return as `_said_by` does."""

    def begin() -> None:
        user_namespace.unshare(libc.CLONE_NEWPID)
        if said := _said_by(attempt):
            raise OSError(0, said)

    return _said_by(begin)


def _try_mounts(view: mounts.View) -> None:
    libc.die_with_parent(signal.SIGKILL)
    libc.unshare(libc.CLONE_NEWNS | libc.CLONE_NEWIPC | libc.CLONE_NEWUTS)
    mounts.build(view)


# ── images ──────────────────────────────────────────────────────────────────────────────


def why_no_images(state_dir: str, devices: tuple[mounts.Device, ...]) -> str:
    """Make the world of a task with an empty image, and leave nothing behind.

    Return what keeps that from working, and what to do; '' where it works.
    """
    folder = f"{state_dir}/{_TRIED}"
    remove(None, folder)
    problem = _said_by_first(partial(_try_image, folder, devices)).replace(f"/{_TRIED}", "")
    remove(None, folder)
    if not problem or os.geteuid() == 0:
        return problem
    if barred := _said_by(user_namespace.mount):
        return user_namespace.why_barred() or barred
    return user_namespace.too_old(os.uname().release) or problem


def _try_image(folder: str, devices: tuple[mounts.Device, ...]) -> None:
    libc.die_with_parent(signal.SIGKILL)
    libc.unshare(libc.CLONE_NEWNS | libc.CLONE_NEWIPC | libc.CLONE_NEWUTS)
    layer = f"{folder}/{image_root.LAYERS}/{_EMPTY}"
    os.makedirs(layer)
    try:
        os.setxattr(layer, overlay.opaque_mark(), b"y")
        os.mknod(f"{layer}/hidden", stat.S_IFCHR)
    except OSError as error:
        raise image_root.unfit_disk(folder, error) from error
    user = f"user:x:{os.geteuid()}:{os.getegid()}"
    image: TaskImage = {
        "record": "",
        "layers": [_EMPTY],
        "passwd": user,
        "group": user,
        "home": "/home",
        "uid": os.geteuid(),
        "gid": os.getegid(),
    }
    home, written = os.open(folder, _FOLDER), os.open(folder, _FOLDER)
    view = mounts.View(folder, devices, (), (), (), ())
    image_root.build(view, image, "/", home, (folder, written))
    with open("/written", "w", encoding="utf-8"):
        pass
