"""Namespaces of one's own; without root's rights in a user namespace.

In it the user is mapped to itself alone, so files and `id` say what they say outside, and has
all rights there, over nobody's files but its own. A program that it executes has none of them.
"""

import errno
import os
import re
from typing import Final

from allotment.backends.local.runner import libc, procfs

_SETTINGS: Final = (
    ("kernel/unprivileged_userns_clone", "0", "1"),
    ("user/max_user_namespaces", "0", "a few thousand"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
)
"""Below /proc/sys: what keeps users from it by which value, and a value that lets them."""
_SINCE: Final = (5, 12)
"""Users may mount overlays since 5.11, and make copies of mounts read-only since this one."""


def unshare(flags: int) -> None:
    """Leave the shared namespaces; for PID it holds for the children only. Raises OSError."""
    if os.geteuid() == 0:
        libc.unshare(flags)
        return
    uid, gid = os.geteuid(), os.getegid()
    try:
        libc.unshare(libc.CLONE_NEWUSER | flags)
    except OSError as error:
        said = os.strerror(error.errno or 0)
        why = f"its user may not make namespaces here, as in a container: {said}"
        if error.errno == errno.ENOSPC:
            why = "its user has as many as it may have of user.max_user_namespaces"
        raise OSError(error.errno, why) from error
    # Without it no group could be mapped; those we are in count on.
    _write("setgroups", "deny")
    _write("uid_map", f"{uid} {uid} 1")
    _write("gid_map", f"{gid} {gid} 1")
    libc.no_new_privileges()


def _write(name: str, text: str) -> None:
    try:
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    except OSError as error:
        why = f"its user has no rights in its namespaces ({name}): {error.strerror}"
        raise OSError(error.errno, why) from error


def fork_first() -> int:
    """Fork the first process of a PID namespace without root's rights; it mounts its own.

    Nobody comes back from a user namespace: so a child goes there, and its child is adopted by
    us, who have to be a subreaper. Raises OSError.
    """
    told, tell = os.pipe()
    try:
        between = os.fork()
    except OSError:
        os.close(told)
        os.close(tell)
        raise
    if between:
        os.close(tell)
        said = os.read(told, 4000).decode(errors="replace")
        os.close(told)
        os.waitpid(between, 0)
        if not said.isdecimal():
            raise OSError(errno.EPERM, said or "it was killed")
        return int(said)
    said, pid = "", -1
    try:
        unshare(libc.CLONE_NEWPID | libc.CLONE_NEWNS)
        pid = os.fork()
        said = f"{pid}"
    except OSError as error:
        said = error.strerror or str(error)
    except BaseException as error:  # noqa: BLE001 - a forked child must not go on
        said = repr(error)
    if pid:
        os.write(tell, said.encode())
        os._exit(0)
    os.close(told)
    os.close(tell)
    return 0


def mount() -> None:
    """Try whether a user may mount at all. Raises OSError."""
    unshare(libc.CLONE_NEWNS)
    libc.mount("none", "/", "", libc.MS_REC | libc.MS_SLAVE)


def why_barred() -> str:
    """Return which setting keeps users from that, and what to do about it; '' for none."""
    for name, value, better in _SETTINGS:
        try:
            found = procfs.read(f"/proc/sys/{name}").strip()
        except OSError:
            continue
        if found == value:
            setting = name.replace("/", ".")
            return (
                f"users may not make user namespaces with rights in them ({setting} is "
                f"{value}); an administrator can set it to {better}, or run the service as root"
            )
    return ""


def too_old(release: str) -> str:
    """Return why a release of Linux does not let users mount images; '' where it does."""
    version = re.match(r"(\d+)\.(\d+)", release)
    if version is None or (int(version[1]), int(version[2])) >= _SINCE:
        return ""
    return (
        f"Linux {release} does not let users mount images, and 5.12 does; an administrator can "
        "install a newer one"
    )


def main() -> None:
    """Exit with 0 where a user may mount, with 1 where not."""
    try:
        mount()
    except OSError:
        os._exit(1)
