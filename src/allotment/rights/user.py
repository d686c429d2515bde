"""Takes on a user's rights to files: in the calling thread, and only for a while.

What changes are the ids that the kernel goes by when files are used, and the groups. With the
file user goes every right that overrides permissions (capabilities(7): CAP_DAC_OVERRIDE and
its kin). The real, effective and saved ids stay: the user may neither signal, trace nor slow
down a process that touches his files for him.

The other rights stay too. One of them opens the links of /proc, which lead past all closed
folders: paths.py follows none of these.
"""

import ctypes
import errno
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

_libc: Final = ctypes.CDLL(None, use_errno=True)
_syscall: Final = _libc.syscall
_libc.setfsuid.argtypes = (ctypes.c_uint32,)
_libc.setfsgid.argtypes = (ctypes.c_uint32,)

_SETGROUPS: Final = {"x86_64": 116, "ppc64le": 81, "s390x": 206}.get(os.uname().machine, 159)
"""The number of the call: glibc's own would change the groups of every thread."""

_NOBODY: Final = 2**32 - 1
"""No user at all: asked to become it, the kernel tells who one is."""


class User(Protocol):
    """Whose rights to take on."""

    @property
    def uid(self) -> int: ...

    @property
    def gid(self) -> int: ...

    @property
    def groups(self) -> Sequence[int]: ...


@contextmanager
def rights_of(user: User | None) -> Generator[None]:
    """Use files as this user does, and as nobody else; None is who we are.

    For the calling thread alone, and for what it starts meanwhile: start nothing. Raises
    OSError when we may not.
    """
    if user is None:
        yield
        return
    before = os.getgroups()
    _set_groups(user.groups)
    try:
        _set_file_user(user.uid, user.gid)
        yield
    finally:
        _set_file_user(os.geteuid(), os.getegid())
        _set_groups(before)


def _set_file_user(uid: int, gid: int) -> None:
    """Set whom files are used as. The calls tell no errors: ask afterwards."""
    _libc.setfsgid(gid)
    _libc.setfsuid(uid)
    if _libc.setfsuid(_NOBODY) & _NOBODY != uid or _libc.setfsgid(_NOBODY) & _NOBODY != gid:
        raise PermissionError(errno.EPERM, f"cannot use files as uid {uid}, gid {gid}")


def _set_groups(groups: Sequence[int]) -> None:
    # Not an array of ctypes: to make its type costs more than all the rest here.
    listed = b"".join(group.to_bytes(4, sys.byteorder) for group in groups)
    if _syscall(_SETGROUPS, ctypes.c_size_t(len(groups)), listed):
        why = ctypes.get_errno()
        raise OSError(why, f"cannot take on groups {list(groups)}: {os.strerror(why)}")
