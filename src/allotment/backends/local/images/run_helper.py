"""Runs a user's credential helper, as that user, and ends with it all that it started.

    python … run_helper WISH       (the registry on stdin; prints one line of JSON)

WISH is JSON: `argv` and `env` of the helper, `user` (uid, gid, groups) or null for who we are,
`state`, the state folder, and `seconds`, how long it may take.

The helper is any program of a user. So it has that user's rights and no way to others, its
own session without a terminal, nothing of ours open, and the view and the control groups of a
small task: no state folder, no devices, no processes of others.
Process 1 of its PID namespace is ours and waits for it: when that ends, all of it is gone.
"""

import contextlib
import json
import os
import resource
import select
import signal
import sys
from typing import Any, Final, NamedTuple, NoReturn

from allotment.backends.local.runner import hierarchy, libc, mounts
from allotment.backends.local.runner.cgroup import Group
from allotment.backends.local.runner.enclosure import enclose, end_below, mount_own
from allotment.backends.local.runner.mounts import User
from allotment.backends.local.runner.spawn import Command, NotStarted, begin, check

MOST_SAID: Final = 64 << 10
"""Of what a helper prints; a token has a few KiB."""
_MOST_ERRORS: Final = 4 << 10
_PIECE: Final = 64 << 10
_LOOK_S: Final = 0.05
_INSTEAD: Final = {
    "memory": (resource.RLIMIT_AS, 8 << 30),
    "pids": (resource.RLIMIT_NPROC, 4096),
}
"""What bounds a process where no control group bounds them all."""


class _Limits(NamedTuple):
    cpu_milli: int = 1000
    cpu_ceiling: bool = True
    memory_bytes: int = 1 << 30
    pids: int = 128


class _Late(Exception):
    """The time is up."""


def main() -> None:
    """Run as a program. See the top of this file."""
    wish = json.loads(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o077)
    group = _group(wish["state"])
    has_walls = _enclosed()
    child = os.fork()
    if child == 0:
        _inside(wish, group, has_walls=has_walls)
    try:
        os.waitpid(child, 0)
    finally:
        group.remove()


def _group(state: str) -> Group:
    """Make control groups for the helper, as far as there can be some."""
    found = hierarchy.prepare(state).group(f"helper-{os.getpid()}", [])
    try:
        found.create(_Limits())
    except OSError:
        found.remove()
        found = Group()
    return found


def _enclosed() -> bool:
    try:
        return enclose()
    except OSError:  # Root without the right to, as in a container.
        libc.become_subreaper()
        return False


def _inside(wish: dict[str, Any], group: Group, *, has_walls: bool) -> NoReturn:
    """Wait for the helper, as process 1 of its namespace, and tell what came of it."""
    try:
        libc.die_with_parent(signal.SIGKILL)
        if has_walls:
            with contextlib.suppress(OSError):
                _narrow(wish)
        else:
            libc.become_subreaper()
        for controller, (kind, most) in _INSTEAD.items():
            if not group.has(controller):
                resource.setrlimit(kind, (most, most))
        told = json.dumps(_outcome(wish, group))
        if not has_walls:
            end_below()
        os.write(1, f"{told}\n".encode())
    finally:
        os._exit(0)


def _narrow(wish: dict[str, Any]) -> None:
    """See what a task without devices sees; without root's rights no other processes."""
    if os.geteuid():
        mount_own()
        return
    # What it puts into shared memory would stay for ever.
    libc.unshare(libc.CLONE_NEWNS | libc.CLONE_NEWIPC | libc.CLONE_NEWUTS)
    plain = mounts.plain_devices()
    mounts.build(mounts.View(os.path.realpath(wish["state"]), plain, (), (), (), ()))


def _outcome(wish: dict[str, Any], group: Group) -> dict[str, object]:
    for signum in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(signum, signal.SIG_DFL)  # ignored by Python, not by a helper
    signal.signal(signal.SIGALRM, _end)
    signal.alarm(wish["seconds"])
    said_at, errors_at = os.pipe(), os.pipe()
    user = User(*wish["user"]) if wish["user"] else None
    fds = ((0, 0), (said_at[1], 1), (errors_at[1], 2))
    try:
        helper = begin(Command(wish["argv"], wish["env"], "/", user, fds, is_tied=True), group)
        os.close(said_at[1])
        os.close(errors_at[1])
        check(helper.told)
        out, err, code = _heard(helper.pid, said_at[0], errors_at[0])
    except NotStarted as trouble:
        return {"fate": trouble.stage, "errno": trouble.error.errno}
    except _Late:
        return {"fate": "late"}
    if len(out) > MOST_SAID:
        return {"fate": "endless"}
    said, errors = (each.decode(errors="replace") for each in (out, err))
    return {"fate": "ended", "code": code, "out": said, "err": errors}


def _heard(pid: int, out: int, err: int) -> tuple[bytes, bytes, int]:
    """Return what a helper prints until its end, and how it ends, unless it prints too much.

    Others may have its pipes open for longer: what counts is that it has ended itself.
    """
    heard = {out: b"", err: b""}
    listening = [out, err]
    done, status = 0, 0
    while listening and len(heard[out]) <= MOST_SAID:
        ready = select.select(listening, [], [], 0 if done else _LOOK_S)[0]
        if done and out not in ready:
            break
        for fd in ready:
            piece = os.read(fd, _PIECE)
            if not piece:
                listening.remove(fd)
            elif fd == out or len(heard[err]) < _MOST_ERRORS:
                heard[fd] += piece
        if not done:
            done, status = os.waitpid(pid, os.WNOHANG)
    if not done and len(heard[out]) <= MOST_SAID:
        _, status = os.waitpid(pid, 0)
    return heard[out], heard[err][:_MOST_ERRORS], os.waitstatus_to_exitcode(status)


def _end(*_: object) -> NoReturn:
    raise _Late
