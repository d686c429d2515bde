"""What is made around one task, and removed after it: scratch folder, groups, namespaces."""

import contextlib
import os
from typing import Final, NamedTuple

from allotment.backends.local.runner import bwrap, image_root, libc, mounts, pausing, scratch
from allotment.backends.local.runner.cgroup import Group
from allotment.backends.local.runner.datasets import DataPlace, shown_anew
from allotment.backends.local.runner.hierarchy import Hierarchy
from allotment.backends.local.runner.host import Host
from allotment.backends.local.runner.mounts import User
from allotment.backends.local.runner.schema import Isolation, Request, TaskImage
from allotment.backends.local.runner.spawn import Command
from allotment.rights import removing
from allotment.rights.sealing import take_no_more_code
from allotment.rights.unmounting import unmount

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Unavailable(Exception):
    """The request insists on a means of isolation that does not work here."""


class Limits(NamedTuple):
    """See cgroup.Limits. `pids` counts what bubblewrap adds."""

    cpu_milli: int
    cpu_ceiling: bool
    memory_bytes: int
    pids: int


def kind_for(request: Request, host: Host) -> str:
    """Return by what a task's namespaces are made: own, bwrap or none. Raises Unavailable."""
    asked = request.get("namespaces", "auto")
    if "image" in request:
        if why := host.missing.get("images"):
            raise Unavailable(f"images cannot be run here: {why}")
        return "own"
    if request.get("mounts") and "none" in (asked, host.namespaces if asked == "auto" else ""):
        raise Unavailable("datasets cannot be mounted without namespaces")
    if asked == "auto":
        return host.namespaces
    works = {"own": host.namespaces == "own", "bwrap": bool(host.bwrap), "none": True}
    if asked not in works:
        raise Unavailable(f"namespaces: {asked!r} is not one of auto, own, bwrap, none")
    if not works[asked]:
        raise Unavailable(
            f"namespaces by {asked!r} do not work here: {host.missing.get(asked)}"
        )
    return asked


def is_own(request: Request, host: Host) -> bool:
    """Whether the supervisor must be born in a PID namespace of its own."""
    try:
        return kind_for(request, host) == "own"
    except Unavailable:
        return False


class Surroundings:
    """One task's isolation. `kind` says by what its namespaces are made."""

    def __init__(self, request: Request, host: Host) -> None:
        self._request = request
        self._host = host
        self.kind = kind_for(request, host)
        self.user = _user(request)
        self.scratch = f"{host.scratch_root}/{request['key']}"
        self.pause_fd = -1
        self.group = self._group(host.reached)
        pids = request.get("pids", 0)
        self.limits = Limits(
            cpu_milli=request.get("cpu_milli", 0),
            cpu_ceiling=request.get("cpu_ceiling", False),
            memory_bytes=request.get("memory_bytes", 0),
            pids=pids + bwrap.PROCESSES if pids and self.kind == "bwrap" else pids,
        )

    def _group(self, hierarchy: Hierarchy) -> Group:
        request = self._request
        if request.get("cgroups", "auto") == "none":
            return Group()
        return hierarchy.group(request["key"], request.get("devices", []))

    def make(self) -> None:
        """Make scratch folder and groups. Raises OSError that names what failed."""
        uid, gid = (self.user.uid, self.user.gid) if self.user else (os.geteuid(), os.getegid())
        try:
            scratch.make(self._host.scratch, self._request["key"], uid, gid)
        except OSError as error:
            text = f"cannot make the scratch folder {self.scratch}: {error.strerror}"
            raise OSError(error.errno, text) from error
        with contextlib.suppress(OSError):  # Then it is frozen in the middle of a step.
            self._make_pause_file(uid, gid)
        self._make_room_for_image()
        self._group(self._host.hierarchy).create(self.limits)

    def _make_pause_file(self, uid: int, gid: int) -> None:
        folder = os.open(self._request["key"], _FOLDER, dir_fd=self._host.scratch)
        try:
            self.pause_fd = pausing.make(folder, uid, gid)
        finally:
            os.close(folder)

    def _make_room_for_image(self) -> None:
        """Hold the image from now to the end of this process, and make a place for writes."""
        if "image" in self._request:
            image_root.hold(self._host.home, self._request["image"])
            name = image_root.beside(self._request["key"])
            scratch.make(self._host.scratch, name, os.geteuid(), os.getegid())

    def enter_namespaces(self) -> None:
        """Go where the task will be, PID namespace apart: in that one we were born.

        Raises what keeps us from it, back in the host's files: what was made is there, and
        what bears such a name in an image is not ours.
        """
        host_mounts = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        libc.unshare(libc.CLONE_NEWNS | libc.CLONE_NEWIPC | libc.CLONE_NEWUTS)
        try:
            if "image" in self._request:
                self._enter_image(self._request["image"])
            else:
                mounts.build(self._view())
        except BaseException:
            libc.setns(host_mounts, libc.CLONE_NEWNS)
            raise
        finally:
            os.close(host_mounts)
            # Back to the state folder as the host mounts it: here it may be read-only.
            os.fchdir(self._host.home)

    def _enter_image(self, image: TaskImage) -> None:
        name = image_root.beside(self._request["key"])
        folder = os.open(name, _FOLDER, dir_fd=self._host.scratch)
        place = (f"{self._host.scratch_root}/{name}", folder)
        take_no_more_code()
        image_root.build(self._view(), image, self._request["cwd"], self._host.home, place)

    def remove(self) -> None:
        """Remove what was made."""
        self.group.remove()
        if "image" in self._request:
            image_root.remove(self._host.scratch, self._request["key"])
        elif self.kind == "own":
            self._unmount_scratch()
        # It is often all there is, and a folder that is empty goes at once.
        with contextlib.suppress(OSError):
            os.unlink(f"{self._request['key']}/{pausing.FILE}", dir_fd=self._host.scratch)
        removing.remove(self._host.scratch, self._request["key"])

    def disk_parts(self) -> tuple[str, ...]:
        """Name what counts as its scratch space, below the folder of scratch folders."""
        key = self._request["key"]
        return (key, image_root.written(key)) if "image" in self._request else (key,)

    def _unmount_scratch(self) -> None:
        """Where read-only data covered it, it is mounted, and so could not be removed."""
        if not mounts.under(self.scratch, self._host.state_dir):
            with contextlib.suppress(OSError):
                unmount(self.scratch)

    def describe(self) -> Isolation:
        return {
            "namespaces": self.kind,
            "cgroup": self.group.version,
            "controllers": self.group.controllers,
            "groups": self._group(self._host.hierarchy).dirs(),
        }

    def _view(self) -> mounts.View:
        request = self._request
        return mounts.View(
            hidden=self._host.state_dir,
            plain=self._host.devices,
            folders=self._host.folders,
            read_only=tuple(request.get("read_only", ())),
            writable=(*request.get("writable", ()), self.scratch),
            devices=tuple(request.get("devices", ())),
            user=self.user,
            mounts=tuple(
                DataPlace(each["source"], each["at"], each["write"])
                for each in request.get("mounts", ())
            ),
        )

    def env(self) -> dict[str, str]:
        return {
            **self._request["env"],
            "TMPDIR": self.scratch,
            "ALLOT_SCRATCH_DIR": self.scratch,
            "ALLOT_PAUSE_FILE": f"{self.scratch}/{pausing.FILE}",
        }

    def command(self, fds: tuple[tuple[int, int], ...]) -> Command:
        """Describe what is to be started, with bubblewrap around it if that is the way."""
        request = self._request
        argv = request["argv"]
        words = ["/bin/sh", "-c", argv] if isinstance(argv, str) else argv
        if self.kind == "bwrap":
            inner = bwrap.Inner(
                waits_at_barrier=request.get("hold_at_barrier", False),
                stays_on_failure=request.get("hold_on_failure_ms", 0) > 0,
            )
            view = self._view()
            shown = shown_anew(view.mounts)
            words = bwrap.command(self._host.bwrap, view, request["cwd"], words, inner, shown)
        return Command(
            argv=words,
            env=self.env(),
            cwd=request["cwd"],
            user=self.user,
            fds=fds,
            is_tied=self.kind != "own",
        )


def _user(request: Request) -> User | None:
    """Only root can become another; for ourselves there is nothing to do."""
    if "uid" not in request or "gid" not in request:
        return None
    if os.geteuid() != 0:
        if request["uid"] == os.geteuid():
            return None
        raise Unavailable(f"only a service that is root can run tasks as uid {request['uid']}")
    return User(request["uid"], request["gid"], tuple(request.get("groups", ())))
