"""What keeps the processes of a fence together: a PID namespace, or that they are adopted.

Root makes the namespace as it is; an ordinary user in a user namespace, where its machine
lets it. Standard library and the runner's own modules only.
"""

import os
import signal

from allotment.backends.local.runner import libc, procfs, tree, user_namespace

_PROC = libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC


def enclose() -> bool:
    """Have our children born in a PID namespace; return whether the machine lets us.

    If not, what our descendants leave behind comes to us.
    """
    if os.geteuid() == 0 or _is_allowed():
        user_namespace.unshare(libc.CLONE_NEWPID)
        return True
    libc.become_subreaper()
    return False


def mount_own() -> None:
    """Make a mount namespace that shows the processes of our PID namespace alone."""
    libc.unshare(libc.CLONE_NEWNS)
    libc.mount("none", "/", "", libc.MS_REC | libc.MS_SLAVE)
    libc.mount("proc", "/proc", "proc", _PROC)


def end_below() -> None:
    """Kill all that is below us, and what it leaves to us; nothing frozen dies of it."""
    tree.kill_below(os.getpid())
    while _reap():
        pass


def end_at_once(number: int, _: object) -> None:
    """Handle a signal by taking everything below us along."""
    end_below()
    os._exit(128 + number)


def _reap() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def _is_allowed() -> bool:
    """Try all of it in a child: some systems give the namespace, and no right in it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            user_namespace.unshare(libc.CLONE_NEWPID)
            inner = os.fork()
            if inner == 0:
                mount_own()
                os._exit(0 if procfs.own_pid(os.open("/proc", os.O_RDONLY)) == 1 else 1)
            code = os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
        finally:
            os._exit(abs(code))
    return os.waitpid(pid, 0)[1] == 0


def die_with_the_fence(*, has_walls: bool) -> None:
    """Die when our parent does: without walls not before all that is below us."""
    if has_walls:
        libc.die_with_parent(signal.SIGKILL)
    else:
        libc.become_subreaper()
        signal.signal(signal.SIGTERM, end_at_once)
        libc.die_with_parent(signal.SIGTERM)
