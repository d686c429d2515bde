"""Turns a path into a descriptor, once. What is done afterwards is done to the descriptor.

Links are followed: users have good ones (/data, which root laid to /mnt/x), and whoever
resolves with the user's rights (user.py) gets nowhere that the user would not. Two kinds of
names are not followed: the links of /proc, which need no such rights, and any link below a
folder that is to be stayed in.

openat2 is from Linux 5.6; before it, and where a sandbox forbids it, the same is done by hand.
"""

import ctypes
import errno
import os
import stat
import sys
from typing import Final

_syscall: Final = ctypes.CDLL(None, use_errno=True).syscall
_SYS_OPENAT2: Final = 437
_AT_FDCWD: Final = -100

_NO_MAGICLINKS: Final = 0x02
_NO_SYMLINKS: Final = 0x04
_BENEATH: Final = 0x08

_LOOK: Final = os.O_PATH | os.O_CLOEXEC
_PASS: Final = _LOOK | os.O_NOFOLLOW
_MOST_LINKS: Final = 40
_TRIES: Final = 32
_NOT_THERE: Final = (errno.ENOSYS, errno.EPERM)
"""How a kernel, or a sandbox, says that it has no such call."""


_SIZE_OF_HOW: Final = ctypes.c_size_t(24)
"""Of what the call is asked: flags, mode, and how to resolve."""


def resolve(path: str, *, links: bool = True) -> int:
    """Resolve an absolute path to a descriptor for looking (O_PATH). Raises OSError.

    Without `links` a link anywhere in it is an error.
    """
    how = _NO_MAGICLINKS if links else _NO_SYMLINKS
    try:
        try:
            # As a folder first: only then is what mounts itself on demand mounted.
            return _openat2(_AT_FDCWD, path, _LOOK | os.O_DIRECTORY, how)
        except NotADirectoryError:
            return _openat2(_AT_FDCWD, path, _LOOK, how)
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
    return by_hand(path, links=links)


def open_file(path: str, flags: int) -> int:
    """Open what lies at an absolute path, resolved so, and is no link. Raises OSError."""
    try:
        return _openat2(_AT_FDCWD, path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, _NO_MAGICLINKS)
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
    above, _, name = path.rpartition("/")
    folder = by_hand(above)
    try:
        return below_by_hand(folder, name, flags)
    finally:
        os.close(folder)


def open_below(folder: int, path: str, flags: int) -> int:
    """Open what lies below a folder that is open, following no link. Raises OSError."""
    try:
        return _openat2(folder, path, flags | os.O_CLOEXEC, _BENEATH | _NO_SYMLINKS)
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
    return below_by_hand(folder, path, flags)


def is_same(one: int, other: int) -> bool:
    """Whether two descriptors are of the same file or folder."""
    return os.path.samestat(os.fstat(one), os.fstat(other))


def _openat2(folder: int, path: str, flags: int, how: int) -> int:
    # EAGAIN: somebody renamed something on the way, and the kernel will not vouch for it.
    asked, why = b"".join(n.to_bytes(8, sys.byteorder) for n in (flags, 0, how)), 0
    for _ in range(_TRIES):
        fd = _syscall(_SYS_OPENAT2, folder, os.fsencode(path), asked, _SIZE_OF_HOW)
        if fd >= 0:
            return fd
        why = ctypes.get_errno()
        if why not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(why, os.strerror(why), path)


def by_hand(path: str, *, links: bool = True) -> int:
    """Resolve as `resolve` does, name by name."""
    names = path.split("/")[::-1]
    most = _MOST_LINKS if links else 0
    at = os.open("/", _LOOK)
    while names:
        try:
            found, target = _step(at, names.pop())
        except OSError as error:
            os.close(at)
            raise OSError(error.errno, error.strerror, path) from error
        if target:
            most -= 1
            names += target.split("/")[::-1]
        if found != at:
            os.close(at)
            at = found
        if most < 0:
            os.close(at)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return at


def _step(at: int, name: str) -> tuple[int, str]:
    """Go to a name in a folder; where it is a link, stay, and tell where it leads."""
    if name in ("", "."):
        return at, ""
    found = os.open(name, _PASS, dir_fd=at)
    state = os.fstat(found)
    if not stat.S_ISLNK(state.st_mode):
        return found, ""
    target = os.readlink("", dir_fd=found)
    os.close(found)
    if state.st_dev == os.stat("/proc").st_dev:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return (os.open("/", _LOOK) if target.startswith("/") else at), target


def below_by_hand(folder: int, path: str, flags: int) -> int:
    """Open as `open_below` does, name by name."""
    *above, last = path.split("/")
    at = os.dup(folder)
    try:
        for name in (*above, last):
            if name in ("", "..") or name.startswith("/"):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
        for name in above:
            found = os.open(name, _PASS | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = found
        return os.open(last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    finally:
        os.close(at)
