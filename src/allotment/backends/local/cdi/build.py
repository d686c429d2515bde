"""Makes the layer that drivers need above an image; a process of its own.

    python … build        (a Wish on stdin, one line of JSON on stdout: layer.py has both)

In a mount and a PID namespace of its own it mounts the image, goes there, and makes in it what
a vendor's hooks would. The linker's cache is made by the host's ldconfig, by root's as a user
that is nobody else, and without rights, since it reads files of anybody's making.

All that is imported is imported before the root changes, and nothing can be after it.
"""

import contextlib
import errno
import json
import os
import resource
import signal
import stat
import struct
import sys
from typing import Any, Final, NamedTuple

from allotment.backends.local.runner import image_root, libc, spawn, user_namespace
from allotment.backends.local.runner.mounts import User
from allotment.rights import paths
from allotment.rights.sealing import take_no_more_code

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_FULL, _UNFIT = "full", "unfit"
"""Why there is no layer, where that is known."""
_CACHE: Final = "/etc/ld.so.cache"
_CONF: Final = "/etc/ld.so.conf"
_ASIDE: Final = "/.allot-linker"
_MOST_CACHE: Final = 64 << 20
_MOST_MEMORY: Final = 1 << 30
_MOST_SECONDS: Final = 20
_NICE: Final = 10
_LOOK: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ELF64: Final = b"\x7fELF\x02\x01"


def main() -> None:
    """Make it in a child, which ends with this process, as this does with the service."""
    libc.die_with_parent(signal.SIGKILL)
    os.umask(0o022)  # That of the service lets nobody in.
    wish = json.loads(sys.stdin.buffer.read())
    user_namespace.unshare(libc.CLONE_NEWNS | libc.CLONE_NEWIPC | libc.CLONE_NEWPID)
    child = os.fork()
    if not child:
        libc.die_with_parent(signal.SIGKILL)
        _tell(_made(wish))
        os._exit(0)
    os.waitpid(child, 0)


def _tell(told: dict[str, Any]) -> None:
    os.write(1, json.dumps(told).encode())


def _made(wish: dict[str, Any]) -> dict[str, Any]:
    """Make the layer; tell what is doubtful in it, or why there is none."""
    try:
        drivers, ldconfig, proc = _enter(wish)
    except OSError as error:
        return {"trouble": _words(error), "why": _FULL if error.errno in _NO_ROOM else ""}
    try:
        image_root.make_plain_folder("/proc")
        image_root.attach(proc, "/proc", is_systems=True)
        return {"doubt": _fill(wish, drivers, ldconfig)}
    except OSError as error:
        # All is as on the host but for the image.
        return {"trouble": _words(error), "why": _FULL if error.errno in _NO_ROOM else _UNFIT}


def _words(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"[:500]


class _Driver(NamedTuple):
    """A file or folder of the host, copied to be mounted; and by what name it is linked."""

    at: str
    tree: int
    is_folder: bool
    soname: str


def _enter(wish: dict[str, Any]) -> tuple[list[_Driver], int, int]:
    """Make the image the root; return its drivers, ldconfig and /proc. Raises OSError."""
    libc.mount("none", "/", "", libc.MS_REC | libc.MS_SLAVE)
    drivers: list[_Driver] = []
    for bind in wish["binds"]:
        handle = paths.resolve(bind["source"], links=False)
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        tree = libc.clone_tree(handle)
        libc.make_tree_safe(tree, is_read_only=True)
        drivers.append(_Driver(bind["at"], tree, is_folder, _soname(handle)))
        os.close(handle)
    ldconfig = os.open(wish["ldconfig"], os.O_RDONLY) if wish["ldconfig"] else -1
    layers, folder = os.open(wish["store"], _LOOK), os.open(wish["folder"], _LOOK)
    take_no_more_code()
    os.mkdir("root", 0o755, dir_fd=folder)
    proc = image_root.own_proc()
    place = f"/proc/self/fd/{folder}"
    image_root.mount_layers(wish["layers"], layers, place, f"{place}/root")
    image_root.go_to_root(f"{place}/root")
    os.close(layers)
    os.close(folder)
    return drivers, ldconfig, proc


def _fill(wish: dict[str, Any], drivers: list[_Driver], ldconfig: int) -> str:
    """Make what the layer has; return what is doubtful. Raises OSError."""
    for driver in drivers:
        image_root.make_target(driver.at, is_folder=driver.is_folder)
        image_root.attach(driver.tree, driver.at)
    for target, link in wish["links"]:
        _link(target, link)
    for driver in drivers:
        above, name = os.path.split(driver.at)
        if driver.soname not in ("", name) and above in wish["folders"]:
            _link(name, f"{above}/{driver.soname}")
    return _make_cache(ldconfig, wish["folders"], wish["uid"]) if wish["folders"] else ""


def _link(target: str, link: str) -> None:
    """Make a link; a link that is there is replaced, and anything else stays."""
    try:
        os.makedirs(os.path.dirname(link), exist_ok=True)
        if os.path.islink(link):
            os.unlink(link)
        elif os.path.lexists(link):
            return
        os.symlink(target, link)
    except OSError as error:
        raise OSError(error.errno, f"in the image, {link}: {error.strerror}") from error


# ── the linker's cache ──────────────────────────────────────────────────────────────────


def _make_cache(ldconfig: int, folders: list[str], uid: int) -> str:
    if ldconfig < 0:
        return "the linker's cache is not made: the machine has no statically linked ldconfig"
    os.mkdir(_ASIDE, 0o700)
    os.chown(_ASIDE, uid, -1)
    try:
        if (status := _run(ldconfig, folders, uid)) != 0:
            return f"the linker's cache is not made: ldconfig ended with {status}"
        data = _cache()
        os.makedirs("/etc", exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_CACHE)
        fd = os.open(_CACHE, _NEW, 0o644)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
    finally:
        for name in os.listdir(_ASIDE):
            with contextlib.suppress(OSError):
                os.unlink(f"{_ASIDE}/{name}")
        with contextlib.suppress(OSError):
            os.rmdir(_ASIDE)
    return ""


def _cache() -> bytes:
    """Read what ldconfig wrote, if it is a file of reasonable size. Raises OSError."""
    fd = os.open(f"{_ASIDE}/cache", _READ)
    with os.fdopen(fd, "rb") as file:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode) or state.st_size > _MOST_CACHE:
            raise OSError(errno.EFBIG, "the linker's cache is not what it should be")
        return file.read(_MOST_CACHE)


def _run(ldconfig: int, folders: list[str], uid: int) -> int:
    """Run ldconfig over an image without any rights; return how it ended, 0 for well."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        for fd in (0, 1, 2):
            os.close(fd)
        if uid != os.geteuid():
            spawn.become(User(uid, uid, ()))
        libc.no_new_privileges()
        os.nice(_NICE)
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (_MOST_SECONDS, _MOST_SECONDS))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_CACHE, _MOST_CACHE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.set_inheritable(ldconfig, True)  # noqa: FBT003 - its only argument
        words = ["ldconfig", "-X", "-i", "-C", f"{_ASIDE}/cache", "-f", _CONF, *folders]
        os.execve(ldconfig, words, {})
    finally:
        os._exit(127)


# ── what a library is called by ─────────────────────────────────────────────────────────


def _soname(handle: int) -> str:
    """Return the name by which a library of the host is linked; '' where it has none."""
    try:
        fd = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(fd, "rb"):
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return ""
        try:
            return _soname_in(fd)
        except (struct.error, ValueError, OSError):
            return ""


def _soname_in(fd: int) -> str:
    """Read DT_SONAME of a 64-bit little-endian ELF file, by its program headers."""
    head = os.pread(fd, 64, 0)
    if not head.startswith(_ELF64):
        return ""
    (at,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    segments = [
        struct.unpack("<IIQQQQQQ", os.pread(fd, 56, at + number * size))
        for number in range(min(count, 64))
    ]
    dynamic = next((each for each in segments if each[0] == 2), None)
    if dynamic is None:
        return ""
    raw = os.pread(fd, min(dynamic[5], 1 << 16), dynamic[2])
    tags = dict(struct.iter_unpack("<QQ", raw[: len(raw) // 16 * 16]))
    if 14 not in tags or 5 not in tags:
        return ""
    text = _in_file(segments, tags[5])
    name = os.pread(fd, 256, text + tags[14]).partition(b"\0")[0].decode("ascii")
    return "" if "/" in name else name


def _in_file(segments: list[tuple[Any, ...]], address: int) -> int:
    """Return where in the file an address of memory is. Raises ValueError."""
    for kind, _, offset, start, _, size, _, _ in segments:
        if kind == 1 and start <= address < start + size:
            return offset + address - start
    raise ValueError("an address lies in no segment")
