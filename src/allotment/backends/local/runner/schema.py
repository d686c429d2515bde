"""The shapes that cross between the service and the runner, and their versions.

Both sides may be of different releases for as long as a task runs, so: new fields are
optional, old ones keep their meaning, and what breaks this raises the number.
"""

import os
import re
from typing import Final, Literal, NotRequired, TypedDict, cast

from allotment.rights.mount_points import trouble_of

PROTOCOL: Final = 2
"""Of the launcher's socket. `hello` and `retire` are understood by every version."""

STATUS_VERSION: Final = 1
"""Of status.json."""

PhaseName = Literal[
    "code",
    "environment",
    "pull",
    "unpack",
    "drivers",
    "isolation",
    "mounts",
    "launch",
    "barrier",
]
Stage = Literal["starting", "ready", "running", "holding", "ended"]
NamespaceChoice = Literal["auto", "own", "bwrap", "none"]
CgroupChoice = Literal["auto", "none"]


class PhaseSpan(TypedDict):
    """A named part of starting; `end_ms` is 0 while it lasts. Epoch milliseconds."""

    name: PhaseName
    start_ms: int
    end_ms: int


class TaskImage(TypedDict):
    """The image that a task brings, as it lies in the store below the state folder.

    `record` is the file that is locked while it is in use, `layers` are names of folders,
    topmost first; `passwd` and `group` the lines of its user, `home` the user's folder.
    `drivers` are files of the host for its devices, whose places a layer of it has.
    """

    record: str
    layers: list[str]
    passwd: str
    group: str
    home: str
    uid: int
    gid: int
    drivers: NotRequired[list["Dataset"]]


class Dataset(TypedDict):
    """A folder to be mounted for a task: read-only, unless it may `write`."""

    source: str
    at: str
    write: bool


class Request(TypedDict):
    """One task to run. Absent limits are no limits.

    `argv` is a list; a string is a line for /bin/sh. `env` is the whole environment.
    `read_only` and `writable` are host paths; `devices` device files to be seen in /dev.
    `phases` are parts of starting that came before. `log_bytes` is the cap of each of the two
    streams. Without `cpu_ceiling` the CPU amount is a weight only. `uid`, `gid` and
    `groups` need a launcher that is root.
    """

    key: str
    argv: list[str] | str
    env: dict[str, str]
    cwd: str
    uid: NotRequired[int]
    gid: NotRequired[int]
    groups: NotRequired[list[int]]
    read_only: NotRequired[list[str]]
    writable: NotRequired[list[str]]
    devices: NotRequired[list[str]]
    cpu_milli: NotRequired[int]
    cpu_ceiling: NotRequired[bool]
    memory_bytes: NotRequired[int]
    disk_bytes: NotRequired[int]
    pids: NotRequired[int]
    log_bytes: NotRequired[int]
    hold_at_barrier: NotRequired[bool]
    hold_on_failure_ms: NotRequired[int]
    namespaces: NotRequired[NamespaceChoice]
    cgroups: NotRequired[CgroupChoice]
    image: NotRequired[TaskImage]
    phases: NotRequired[list[PhaseSpan]]
    mounts: NotRequired[list[Dataset]]


class Usage(TypedDict):
    """What a task used. `max_rss_bytes` is its largest process, at least the size of
    its supervisor; `peak_memory_bytes` its cgroup's peak, 0 without one."""

    wall_ms: int
    cpu_user_ms: int
    cpu_system_ms: int
    cpu_throttled_ms: int
    max_rss_bytes: int
    peak_memory_bytes: int


class Isolation(TypedDict):
    """What surrounded the task in fact. `groups` are the folders of its control groups."""

    namespaces: str
    cgroup: str
    controllers: list[str]
    groups: list[str]


class PauseStatus(TypedDict):
    """How a task's ranks stand at a step boundary, as `pausing` has it.

    `heard` is the number of the order that this answers. `count` ranks say that their gang has
    `world`; `frees` is whether all can give memory back; `step` is where the first of them is;
    `devices` are the indexes of its devices.
    """

    heard: int
    state: str
    count: int
    world: int
    frees: bool
    step: int
    step_ns: int
    devices: str


class Status(TypedDict):
    """status.json: everything known of one task. Written as a whole, by rename.

    `pid` and `start_time` (clock ticks since boot) are the task's main process as the
    host counts. `exit_code` and `signal` are null until it ended, and at most one is then
    set. `cause` explains an end that the task did not choose; `platform_error` is set
    instead when it was never run properly. `ended_by` names who ended it: stop, kill,
    grace, memory, disk or pids. `log_dropped` counts lost bytes by stream. `lingering` names
    processes that were killed and do not die; with `ended_ms`, the end waits only for them.
    """

    version: int
    key: str
    phase: Stage
    boot_id: str
    supervisor_pid: int
    supervisor_start_time: int
    pid: int
    start_time: int
    uid: int
    gid: int
    groups: list[int]
    cwd: str
    scratch: str
    isolation: Isolation
    phases: list[PhaseSpan]
    frozen: bool
    exit_code: int | None
    signal: int | None
    oom: bool
    oom_kills: int
    pids_limit_hit: bool
    disk_limit_hit: bool
    platform_error: str
    cause: str
    ended_by: str
    lost: bool
    usage: Usage
    log_dropped: dict[str, int]
    log_error: str
    started_ms: int
    ended_ms: int
    hold_until_ms: int
    pause: NotRequired[PauseStatus]
    lingering: NotRequired[str]


class BadRequest(Exception):
    """A launch request that cannot be carried out as written."""


_KINDS: Final[dict[str, type | tuple[type, ...]]] = {
    "key": str,
    "argv": (str, list),
    "env": dict,
    "cwd": str,
    "uid": int,
    "gid": int,
    "groups": list,
    "read_only": list,
    "writable": list,
    "devices": list,
    "cpu_milli": int,
    "cpu_ceiling": bool,
    "memory_bytes": int,
    "disk_bytes": int,
    "pids": int,
    "log_bytes": int,
    "hold_at_barrier": bool,
    "hold_on_failure_ms": int,
    "namespaces": str,
    "cgroups": str,
    "image": dict,
    "phases": list,
    "mounts": list,
}
_LARGEST_ID: Final = 2**32 - 2
_LONGEST_PATH: Final = 4095
_MOST_PARTS: Final = 150
"""Of a path: to make a folder takes a call for each."""
_PATHS: Final = ("read_only", "writable", "devices")


def request_from(value: object) -> Request:
    """Check what came over the socket. Raises BadRequest that names the field.

    Unknown fields are refused: a newer service must not believe that an older launcher
    enforces a limit it has never heard of.
    """
    if not isinstance(value, dict):
        raise BadRequest("the request is not an object")
    fields = cast("dict[str, object]", value)
    for name, field in fields.items():
        kind = _KINDS.get(name)
        if kind is None:
            raise BadRequest(f"unknown field {name!r}; is the launcher of an older version?")
        if not isinstance(field, kind) or (kind is int and isinstance(field, bool)):
            raise BadRequest(f"{name}: {type(field).__name__} is not what is expected")
        if isinstance(field, int) and field < 0:
            raise BadRequest(f"{name}: may not be negative")
    for name in ("key", "argv", "env", "cwd"):
        if name not in fields:
            raise BadRequest(f"{name}: missing")
    request = cast("Request", value)
    _check_contents(request)
    return request


def _check_contents(request: Request) -> None:
    if not request["argv"]:
        raise BadRequest("argv: empty")
    for name in _PATHS:
        for path in cast("list[object]", request.get(name, [])):
            _check_path(name, path)
    _check_path("cwd", request["cwd"])
    _check_user(request)
    _check_words(request)
    if "image" in request:
        _check_image(request["image"])
    for mount in request.get("mounts", []):
        _check_mount(mount)


def _check_user(request: Request) -> None:
    if "uid" in request and "gid" not in request:
        raise BadRequest("gid: missing beside uid")
    ids = (request.get("uid", 0), request.get("gid", 0), *request.get("groups", ()))
    for number in cast("tuple[object, ...]", ids):
        if not isinstance(number, int) or not 0 <= number <= _LARGEST_ID:
            raise BadRequest(
                f"uid, gid, groups: {number!r} is not the number of a user or group"
            )


def _check_mount(mount: Dataset) -> None:
    fields = cast("dict[str, object]", mount)
    is_whole = set(fields) == {"source", "at", "write"}
    if not is_whole or not isinstance(fields["write"], bool):
        raise BadRequest("mounts: source, at and write are expected of each")
    _check_path("mounts.source", mount["source"])
    _check_path("mounts.at", mount["at"])
    if trouble := trouble_of(mount["at"]):
        raise BadRequest(f"mounts: {mount['at'][:200]} {trouble}")


_OF_IMAGE: Final = {
    "record": str,
    "layers": list,
    "passwd": str,
    "group": str,
    "home": str,
    "uid": int,
    "gid": int,
}
_LAYER: Final = re.compile(r"[0-9a-f]{1,64}")


def _check_image(image: TaskImage) -> None:
    fields = cast("dict[str, object]", image)
    for name, kind in _OF_IMAGE.items():
        if not isinstance(fields.get(name), kind):
            raise BadRequest(f"image.{name}: missing, or not what is expected")
    layers = cast("list[object]", image["layers"])
    if not layers or not all(
        isinstance(name, str) and _LAYER.fullmatch(name) for name in layers
    ):
        raise BadRequest("image.layers: names of layers are expected")
    _check_path("image.home", image["home"])
    for bind in image.get("drivers", []):
        _check_path("image.drivers.source", bind["source"])
        _check_path("image.drivers.at", bind["at"])


def _check_words(request: Request) -> None:
    words = request["argv"] if isinstance(request["argv"], list) else [request["argv"]]
    for word in cast("list[object]", [*words, *request["env"], *request["env"].values()]):
        if not isinstance(word, str) or "\0" in word:
            raise BadRequest("argv, env: text without NUL bytes is expected")
    for name in request["env"]:
        if not name or "=" in name:
            raise BadRequest(f"env: {name!r} cannot be a variable's name")


def _check_path(name: str, path: object) -> None:
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
        raise BadRequest(f"{name}: {path!r} is not an absolute path")
    try:
        length = len(os.fsencode(path))
    except UnicodeEncodeError:
        raise BadRequest(f"{name}: {path!r} cannot be a path's name") from None
    if length > _LONGEST_PATH or path.count("/") > _MOST_PARTS:
        raise BadRequest(f"{name}: {path[:200]!r}… is too long for a path, or too deep")
