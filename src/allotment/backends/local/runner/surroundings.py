"""What is made around one task, and removed after it: scratch folder, groups, namespaces."""

import os
from typing import Final, NamedTuple

from allotment.backends.local.runner import bwrap, init, mounts, scratch
from allotment.backends.local.runner.host import Host
from allotment.backends.local.runner.schema import Isolation, Request

_OWN_PROCESSES: Final = {"own": 1, "bwrap": 4, "none": 1}
"""Processes of ours in the task's groups: init, and with bubblewrap its two and a shell."""


class Unavailable(Exception):
    """The request insists on a means of isolation that does not work here."""


class Limits(NamedTuple):
    """See cgroup.Limits."""

    cpu_milli: int
    cpu_ceiling: bool
    memory_bytes: int
    pids: int


class Surroundings:
    """One task's isolation. `kind` says by what its namespaces are made."""

    def __init__(self, request: Request, host: Host) -> None:
        self._request = request
        self._host = host
        self.kind = _choose_namespaces(request, host)
        self.scratch = f"{host.scratch_root}/{request['key']}"
        self.group = (
            host.hierarchy._replace(version="none")
            if request.get("cgroups", "auto") == "none"
            else host.hierarchy
        ).group(request["key"], request.get("devices", []))
        pids = request.get("pids", 0)
        self.limits = Limits(
            cpu_milli=request.get("cpu_milli", 0),
            cpu_ceiling=request.get("cpu_ceiling", False),
            memory_bytes=request.get("memory_bytes", 0),
            pids=pids + _OWN_PROCESSES[self.kind] if pids else 0,
        )

    def make(self) -> None:
        """Make scratch folder and groups. Raises OSError that names what failed."""
        request = self._request
        uid, gid = request.get("uid", os.geteuid()), request.get("gid", os.getegid())
        try:
            scratch.make(self.scratch, uid, gid)
        except OSError as error:
            text = f"cannot make the scratch folder {self.scratch}: {error.strerror}"
            raise OSError(error.errno, text) from error
        self.group.create(self.limits)

    def remove(self) -> None:
        self.group.remove()
        scratch.remove(self.scratch)

    def describe(self) -> Isolation:
        return {
            "namespaces": self.kind,
            "cgroup": self.group.version,
            "controllers": self.group.controllers,
        }

    @property
    def stays(self) -> bool:
        """Tell whether the isolation is kept for a while when the command fails."""
        return self._request.get("hold_on_failure_ms", 0) > 0

    @property
    def waits(self) -> bool:
        return self._request.get("hold_at_barrier", False)

    def start(self) -> init.Start:
        """Describe to init what it has to do."""
        request = self._request
        argv = request["argv"]
        words = ["/bin/sh", "-c", argv] if isinstance(argv, str) else argv
        view = mounts.View(
            hidden=self._host.state_dir,
            read_only=tuple(request.get("read_only", ())),
            writable=(*request.get("writable", ()), self.scratch),
            devices=tuple(request.get("devices", ())),
        )
        uses_bwrap = self.kind == "bwrap"
        if uses_bwrap:
            inner = bwrap.Inner(self.waits, self.stays)
            words = bwrap.command(self._host.bwrap, view, request["cwd"], words, inner)
        return init.Start(
            argv=words,
            env={**request["env"], "TMPDIR": self.scratch, "ALLOT_SCRATCH_DIR": self.scratch},
            cwd=request["cwd"],
            user=_user(request),
            view=view if self.kind == "own" else None,
            group=self.group,
            pids=0 if self.group.has("pids") else self.limits.pids,
            waits=self.waits and not uses_bwrap,
            stays=self.stays and not uses_bwrap,
            uses_bwrap=uses_bwrap,
        )


def _choose_namespaces(request: Request, host: Host) -> str:
    asked = request.get("namespaces", "auto")
    if asked == "auto":
        return host.namespaces
    works = {"own": host.namespaces == "own", "bwrap": bool(host.bwrap), "none": True}
    if asked not in works:
        raise Unavailable(f"namespaces: {asked!r} is not one of auto, own, bwrap, none")
    if not works[asked]:
        raise Unavailable(f"namespaces by {asked!r} do not work here: {host.missing.get(asked)}")
    return asked


def _user(request: Request) -> init.User | None:
    """Only root can become another; for ourselves there is nothing to do."""
    if "uid" not in request or "gid" not in request:
        return None
    if os.geteuid() != 0:
        if request["uid"] == os.geteuid():
            return None
        raise Unavailable(f"only a service that is root can run tasks as uid {request['uid']}")
    return init.User(request["uid"], request["gid"], tuple(request.get("groups", ())))
