"""Finds the control groups this machine offers and prepares a place for ours in them.

Done once, when the launcher starts, and undone when it ends with nobody left. The place is
the top of what is visible: in a container that is the container's own group, and a log-in
session that ends does not take the tasks with it. Where that is not writable, our own group
is tried (delegation).
"""

import binascii
import contextlib
import errno
import os
import time
from typing import Final, NamedTuple

from allotment.backends.local.runner import procfs
from allotment.backends.local.runner.cgroup import RUNNER, WANTED, Group
from allotment.backends.local.runner.cgroup_files import members, read, write
from allotment.backends.local.runner.cgroup_v1 import SHARED_DEVICES, GroupV1
from allotment.backends.local.runner.cgroup_v2 import GroupV2
from allotment.backends.local.runner.devices import deny_accelerators

_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_TRIES: Final = 200
_PAUSE_S: Final = 0.01
_V2_CONTROLLERS: Final = ("cpu", "memory", "pids")


class Mount(NamedTuple):
    """One mounted cgroup hierarchy: its controllers, or none for version 2."""

    path: str
    controllers: tuple[str, ...]


class Hierarchy(NamedTuple):
    """Where groups can be made. `missing` says of each controller that cannot, why not."""

    version: str
    bases: dict[str, str]
    missing: dict[str, str]

    def group(self, key: str, devices: list[str]) -> Group:
        """Describe the groups of one task; nothing is made yet."""
        if self.version == "v1":
            return GroupV1(self.bases, key, devices)
        if self.version == "v2":
            return GroupV2(next(iter(self.bases.values())), list(self.bases), key)
        return Group()

    def reached(self) -> "Hierarchy":
        """Return same, reached by open folders: also where a mount namespace lacks the paths.

        And where they are read-only there: what is open keeps the rights of its own mount.
        """
        fds = {path: os.open(path, _FOLDER) for path in set(self.bases.values())}
        bases = {name: f"/proc/self/fd/{fds[path]}" for name, path in self.bases.items()}
        return self._replace(bases=bases)


def prepare(state_dir: str) -> Hierarchy:
    """Find the best hierarchy and make our folder in it. Never raises."""
    name = "allotment/" + short_hash(state_dir)
    mounts = find_mounts(procfs.read("/proc/self/mountinfo"))
    own = own_groups(procfs.read("/proc/self/cgroup"))
    first = _prepare_v1([mount for mount in mounts if mount.controllers], own, name)
    if first.bases:
        return first
    for mount in mounts:
        if not mount.controllers:
            return _prepare_v2(mount.path, own.get("", "/"), name)
    return first


def give_back(place: Hierarchy, came_from: str) -> None:
    """Leave our folder for the groups in `came_from`, a /proc/PID/cgroup, and remove it.

    Who clears up after a lost task may be in it for a moment more, so it is tried for two
    seconds. A folder that somebody stays in is used again by the next launcher. Never raises.
    """
    own = own_groups(came_from)
    for mount in find_mounts(procfs.read("/proc/self/mountinfo")):
        for name in mount.controllers or ("",):
            base = place.bases.get(name, "") if name else next(iter(place.bases.values()), "")
            if base.startswith(mount.path + "/"):
                with contextlib.suppress(OSError):
                    write(f"{mount.path}{own.get(name, '/').rstrip('/')}/cgroup.procs", 0)
    paths = set(place.bases.values())
    for _ in range(_TRIES):
        paths = {path for path in paths if not _is_removed(path)}
        if not paths:
            return
        time.sleep(_PAUSE_S)


def _is_removed(base: str) -> bool:
    try:
        for path in (f"{base}/{RUNNER}", f"{base}/{SHARED_DEVICES}", base):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(path)
    except OSError:
        return False
    return True


def short_hash(path: str) -> str:
    """Name a state folder in 16 letters. Not a secret, so a checksum will do.

    hashlib would bring OpenSSL into every supervisor.
    """
    raw = os.fsencode(path)
    return f"{binascii.crc32(raw):08x}{binascii.crc32(raw[::-1], 1):08x}"


def find_mounts(mountinfo: str) -> list[Mount]:
    """Read /proc/self/mountinfo. Named v1 hierarchies without controllers are left out."""
    found: list[Mount] = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        path = left.split()[4].encode().decode("unicode_escape")
        kind, _, options = right.split(" ", 2)
        if kind == "cgroup2":
            found.append(Mount(path, ()))
        elif kind == "cgroup":
            words = set(options.split(",")) & set(WANTED)
            if words:
                found.append(Mount(path, tuple(sorted(words))))
    return found


def own_groups(text: str) -> dict[str, str]:
    """Read /proc/self/cgroup: controller to path; the empty name is version 2."""
    groups: dict[str, str] = {}
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            groups[name] = path
    return groups


def _prepare_v1(mounts: list[Mount], own: dict[str, str], name: str) -> Hierarchy:
    bases: dict[str, str] = {}
    missing: dict[str, str] = dict.fromkeys(WANTED, "no such control group is mounted")
    for mount in mounts:
        for controller in mount.controllers:
            places = [mount.path, mount.path + own.get(controller, "/").rstrip("/")]
            problem = _first_usable(places, name, bases, controller)
            missing.pop(controller, None)
            if problem:
                missing[controller] = problem
    if "devices" in bases:
        _prepare_devices(bases, missing)
    return Hierarchy("v1" if bases else "none", bases, missing)


def _prepare_devices(bases: dict[str, str], missing: dict[str, str]) -> None:
    path = f"{bases['devices']}/{SHARED_DEVICES}"
    try:
        os.makedirs(path, exist_ok=True)
        deny_accelerators(path)
    except OSError as error:
        missing["devices"] = str(error.strerror)
        del bases["devices"]


def _first_usable(places: list[str], name: str, bases: dict[str, str], controller: str) -> str:
    """Make our folder in the first place that allows it; give the problem otherwise."""
    problem = ""
    for place in places:
        path = f"{place}/{name}"
        try:
            os.makedirs(f"{path}/{RUNNER}", exist_ok=True)
            os.rmdir(_probe_dir(path))
        except OSError as error:
            problem = f"{place} is not writable: {error.strerror}"
        else:
            bases[controller] = path
            return ""
    return problem


def _probe_dir(path: str) -> str:
    """A folder of ours may be there from a time when we had more rights: really try."""
    probe = f"{path}/probe-{os.getpid()}"
    os.mkdir(probe)
    return probe


def _prepare_v2(root: str, own: str, name: str) -> Hierarchy:
    missing = {"devices": "version 2 limits devices by eBPF only; /dev holds the allotted ones"}
    problem = "not mounted"
    for place in dict.fromkeys((root + own.rstrip("/"), root)):
        path = f"{place}/{name}"
        try:
            _enable_along(place, path)
            os.makedirs(f"{path}/{RUNNER}", exist_ok=True)
            os.rmdir(_probe_dir(path))
        except OSError as error:
            problem = f"{place}: {error.strerror}"
            continue
        usable = [one for one in _V2_CONTROLLERS if one in read(f"{path}/cgroup.controllers")]
        lacking = {
            one: f"not enabled in {place}" for one in _V2_CONTROLLERS if one not in usable
        }
        if usable:
            return Hierarchy("v2", dict.fromkeys(usable, path), missing | lacking)
        problem = "; ".join(lacking.values())
    return Hierarchy(
        "none", {}, missing | dict.fromkeys((*_V2_CONTROLLERS, "freezer"), problem)
    )


def _enable_along(place: str, path: str) -> None:
    """Make the folders from `place` down to `path` hand their controllers on.

    A group that hands controllers on may hold no processes itself, unless it is the
    root. In a group delegated to us, ours are moved into a leaf first.
    """
    offered = set(read(f"{place}/cgroup.controllers").split())
    wanted = " ".join(f"+{one}" for one in _V2_CONTROLLERS if one in offered)
    if not wanted:
        return
    level = place
    for part in ("", *path.removeprefix(place).strip("/").split("/")):
        if part:
            level = f"{level}/{part}"
            if not os.path.isdir(level):
                os.mkdir(level)
        try:
            write(f"{level}/cgroup.subtree_control", wanted)
        except OSError:
            if level != place:
                raise
            _move_into_leaf(place)
            write(f"{level}/cgroup.subtree_control", wanted)


def _move_into_leaf(place: str) -> None:
    """Only where systemd says that the group is ours to arrange (Delegate=yes)."""
    if not any(_attribute(place, f"{space}.delegate") == b"1" for space in ("trusted", "user")):
        raise OSError(errno.EBUSY, "the group holds processes and is not delegated to us")
    leaf = f"{place}/allotment-service"
    os.makedirs(leaf, exist_ok=True)
    for pid in members(place):
        write(f"{leaf}/cgroup.procs", pid)


def _attribute(path: str, name: str) -> bytes:
    try:
        return os.getxattr(path, name)
    except OSError:
        return b""
