"""The few system calls that the standard library has no name for.

Every function raises OSError with the call's errno.
"""

import ctypes
import errno
import os
from typing import Final

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000

MS_RDONLY: Final = 1
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_REMOUNT: Final = 32
MS_BIND: Final = 4096
MS_MOVE: Final = 8192
MS_REC: Final = 16384
MS_SLAVE: Final = 1 << 19

CAP_CHOWN: Final = 0
CAP_DAC_OVERRIDE: Final = 1
CAP_FOWNER: Final = 3
CAP_SYS_ADMIN: Final = 21

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_CAPABILITY_VERSION_3: Final = 0x20080522
_MOST_CAPABILITIES: Final = 64

_SYS_PIVOT_ROOT: Final = {"x86_64": 155, "ppc64le": 203, "s390x": 217}.get(
    os.uname().machine, 41
)
_SYS_KEYCTL: Final = {"x86_64": 250, "ppc64le": 271, "s390x": 280}.get(os.uname().machine, 219)
_KEYCTL_JOIN_SESSION: Final = 1
_KEYCTL_LINK: Final = 8
_KEYS_OF_SESSION: Final = -3
_KEYS_OF_USER: Final = -4
_SYS_OPEN_TREE: Final = 428
_SYS_MOVE_MOUNT: Final = 429
_SYS_MOUNT_SETATTR: Final = 442
_AT_EMPTY_PATH: Final = 0x1000
_AT_RECURSIVE: Final = 0x8000
_OPEN_TREE_CLONE: Final = 1
_MOVE_MOUNT_EMPTY_PATHS: Final = 0x04 | 0x40
_MOUNT_ATTR_RDONLY: Final = 1
_MOUNT_ATTR_NOSUID: Final = 2
_MOUNT_ATTR_NODEV: Final = 4

_libc: Final = ctypes.CDLL(None, use_errno=True)
_syscall: Final = _libc.syscall
"""Looked up here, once, and not in every supervisor."""


_libc.mount.argtypes = (
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_ulong,
    ctypes.c_char_p,
)


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


_SIZE_OF_ATTRIBUTES: Final = ctypes.c_size_t(ctypes.sizeof(_MountAttr))


def _check(result: int, what: str) -> None:
    if result != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{what}: {os.strerror(errno)}")


def set_name(name: str) -> None:
    """Set what `ps` shows as the command; at most 15 bytes count."""
    _check(_libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0), "prctl name")


def become_subreaper() -> None:
    """Adopt the orphans below this process, and reap them instead of PID 1."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl subreaper")


def die_with_parent(signum: int) -> None:
    """Have this signal sent when the parent dies. A change of user forgets it: set it after."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0), "prctl pdeathsig")


def no_new_privileges() -> None:
    """Let no set-uid program below this process gain rights."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl no_new_privs")


def leave_keys() -> None:
    """Let go of the kernel's keys of our session, and keep new ones apart from all others.

    Does nothing where there are none for us, or no more: in a user namespace root has few.
    """
    result = _syscall(_SYS_KEYCTL, _KEYCTL_JOIN_SESSION, None)
    if ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM, errno.EDQUOT):
        _check(min(result, 0), "keyctl join_session")


def reach_own_keys() -> None:
    """Have a session find the keys of its user, where it may."""
    _syscall(_SYS_KEYCTL, _KEYCTL_LINK, _KEYS_OF_USER, _KEYS_OF_SESSION)


def keep_capabilities(kept: tuple[int, ...]) -> None:
    """Let go of all capabilities but these, for good: no program that is run gets one back."""
    for number in range(_MOST_CAPABILITIES):
        if number not in kept and _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) != 0:
            if ctypes.get_errno() == errno.EINVAL:
                break  # the kernel knows no more of them
            _check(-1, "prctl capbset_drop")
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    # Effective, permitted and inheritable, of numbers below 32, then above.
    sets = (ctypes.c_uint32 * 6)()
    _check(_libc.capget(header, sets), "capget")
    mask = sum(1 << number for number in kept)
    permitted = (sets[1] | sets[4] << 32) & mask
    low, high = permitted & 0xFFFFFFFF, permitted >> 32
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)), "capset")
    no_new_privileges()


def unshare(flags: int) -> None:
    """Leave the shared namespaces; for PID it holds for the children only."""
    _check(_libc.unshare(flags), "unshare")


def setns(fd: int, flags: int = 0) -> None:
    """Join the namespace behind this file descriptor."""
    _check(_libc.setns(fd, flags), "setns")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount as mount(2) does. The error names the target."""
    result = _libc.mount(
        os.fsencode(source), os.fsencode(target), kind.encode(), flags, options.encode()
    )
    _check(result, f"mount {target}")


def pivot_root(new: str, old: str) -> None:
    """Make a mounted folder the root of the mount namespace, as pivot_root(2) does."""
    _check(min(_syscall(_SYS_PIVOT_ROOT, os.fsencode(new), os.fsencode(old)), 0), "pivot_root")


def clone_tree(handle: int) -> int:
    """Copy what is mounted at a descriptor and below it; what comes is mounted nowhere yet.

    Linux 5.2 has it.
    """
    flags = _OPEN_TREE_CLONE | _AT_RECURSIVE | _AT_EMPTY_PATH | os.O_CLOEXEC
    tree = _syscall(_SYS_OPEN_TREE, handle, b"", flags)
    _check(min(tree, 0), "open_tree")
    return tree


def make_tree_read_only(tree: int) -> None:
    """Make a copy of mounts read-only, all of it. Linux 5.12 has it."""
    _set_attributes(tree, _MOUNT_ATTR_RDONLY)


def make_tree_safe(tree: int, *, is_read_only: bool) -> None:
    """Take set-uid rights and devices from all files in a copy of mounts."""
    attributes = _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV
    attributes |= _MOUNT_ATTR_RDONLY if is_read_only else 0
    _set_attributes(tree, attributes)


def _set_attributes(tree: int, attributes: int) -> None:
    asked = ctypes.byref(_MountAttr(attributes, 0, 0, 0))
    flags = _AT_RECURSIVE | _AT_EMPTY_PATH
    result = _syscall(_SYS_MOUNT_SETATTR, tree, b"", flags, asked, _SIZE_OF_ATTRIBUTES)
    _check(result, "mount_setattr")


def move_tree(tree: int, target: int) -> None:
    """Mount a copy of mounts on a descriptor. Linux 5.2 has it."""
    result = _syscall(_SYS_MOVE_MOUNT, tree, b"", target, b"", _MOVE_MOUNT_EMPTY_PATHS)
    _check(result, "move_mount")


def make_read_only(path: str) -> None:
    """Make the mount at `path` read-only; mounts below it stay as they are."""
    # With its other flags: a plain remount would drop nosuid and nodev.
    flags = os.statvfs(path).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("none", path, "", MS_REMOUNT | MS_BIND | MS_RDONLY | flags)
