"""Runs a command inside a task's isolation, on the terminal it is itself started on.

    python -m allotment.backends.local.runner.enter TASK_DIR -- COMMAND…

The command gets the task's groups, namespaces, user, environment and folder; while a failed
task is held, those it had. It ends with the task. Gives the command's exit code, 128 + the
signal that ended it, or 125 when the task cannot be entered.

As root one process waits for the command, outside of all that is the task's: with ids, groups
and memory of its own, and deaf to what the keys of the terminal send.
"""

import fcntl
import json
import os
import signal
import sys
from typing import Final, NamedTuple, NoReturn, cast

from allotment.backends.local.runner import layout, libc, procfs, spawn
from allotment.backends.local.runner.cgroup import JOIN
from allotment.backends.local.runner.mounts import User
from allotment.backends.local.runner.schema import Status
from allotment.rights.sealing import take_no_more_code

CANNOT_ENTER: Final = 125
_ENTERABLE: Final = ("ready", "running", "holding")
_NAMESPACES: Final = ("ipc", "uts", "pid", "mnt")
_NS_GET_USERNS: Final = 0xB701
_NS_GET_NSTYPE: Final = 0xB703
_SIGNAL_BASE: Final = 128
_OF_THE_TERMINAL: Final = (
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
)
"""What keys send to all in front, us among them; the last three would stop us."""


class CannotEnter(Exception):
    """The task is not there to be entered."""


class Entry(NamedTuple):
    """What to run, and in which task. `doors` lead into the task's groups."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    doors: list[int]
    status: Status


def main() -> NoReturn:
    """Enter and run. See the top of this file."""
    if len(sys.argv) < 4 or sys.argv[2] != "--":
        sys.exit(f"usage: {sys.argv[0]} TASK_DIR -- COMMAND…")
    for signum in _OF_THE_TERMINAL:
        signal.signal(signum, signal.SIG_IGN)
    try:
        pid = _enter_and_fork(sys.argv[1], sys.argv[3:])
    except (CannotEnter, OSError) as error:
        print(f"allotment: cannot enter the task: {error}", file=sys.stderr)
        sys.exit(CANNOT_ENTER)
    sys.exit(_wait_for(pid))


def _wait_for(pid: int) -> int:
    """Wait for a child, handing on what we are sent; give its code as a shell would."""
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, lambda number, _: os.kill(pid, number))
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return _SIGNAL_BASE + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


def read_status(folder: str) -> Status:
    """Read the status of a task that can be entered. Raises CannotEnter that says why not."""
    try:
        status = cast("Status", json.loads(procfs.read(f"{folder}/{layout.STATUS}")))
    except (OSError, ValueError):
        raise CannotEnter("it was not started") from None
    if status["phase"] not in _ENTERABLE:
        raise CannotEnter(f"it is {status['phase']}")
    if procfs.start_time(status["supervisor_pid"]) != status["supervisor_start_time"]:
        raise CannotEnter("its supervisor is gone")
    return status


def _enter_and_fork(folder: str, argv: list[str]) -> int:
    """Fork the command into the task. Raises CannotEnter or OSError."""
    status = read_status(folder)
    # Opened before anything changes: as another user, or elsewhere, we could not.
    doors = _open_doors(status)
    entry = Entry(argv, _environ(folder, status), _folder(status), doors, status)
    namespaces = _open_namespaces(status)
    if os.geteuid() != 0 and namespaces:
        # Only inside its user namespace may we join the others, and nobody comes back.
        pid = os.fork()
        if pid == 0:
            os._exit(_go_between(entry, namespaces))
        return pid
    for handle in namespaces:
        if _is_for_children(handle):
            libc.setns(handle)
    return _fork(entry, [handle for handle in namespaces if not _is_for_children(handle)])


def _go_between(entry: Entry, namespaces: list[int]) -> int:
    libc.die_with_parent(signal.SIGKILL)
    libc.no_new_privileges()
    take_no_more_code()
    try:
        for handle in namespaces:
            libc.setns(handle)
        return _wait_for(_fork(entry, []))
    except OSError as error:
        print(f"allotment: cannot enter the task: {error}", file=sys.stderr, flush=True)
        return CANNOT_ENTER


def _is_for_children(namespace: int) -> bool:
    """Whether joining moves not the caller, but the children it makes then."""
    return fcntl.ioctl(namespace, _NS_GET_NSTYPE) == libc.CLONE_NEWPID


def _fork(entry: Entry, namespaces: list[int]) -> int:
    pid = os.fork()
    if pid == 0:
        _run(entry, namespaces)
    return pid


def _environ(folder: str, status: Status) -> dict[str, str]:
    """Return the environment that the task's command was started with."""
    held = f"{folder}/{layout.ENVIRON}"
    path = held if status["phase"] == "holding" else f"/proc/{status['pid']}/environ"
    try:
        with open(path, "rb") as file:
            words = os.fsdecode(file.read()).split("\0")
    except OSError:
        words = []
    env = dict(word.split("=", 1) for word in words if "=" in word)
    env.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    terminal = os.environ.get("TERM")
    if terminal:
        env.setdefault("TERM", terminal)
    return env


def _folder(status: Status) -> str:
    try:
        return os.readlink(f"/proc/{status['pid']}/cwd")
    except OSError:
        return status["cwd"]


def _open_namespaces(status: Status) -> list[int]:
    """Open those namespaces of the task that are not ours, in the order to join them.

    First the user namespace that owns the others, which gives the right to join them; last
    the one the task is in: bubblewrap, when it is not root, makes one inside the other.
    """
    kind = status["isolation"]["namespaces"]
    if kind == "none":
        return []
    pid = status["supervisor_pid"] if kind == "own" else status["pid"]
    found = [_open_namespace(pid, name) for name in _NAMESPACES]
    owner = fcntl.ioctl(found[-1], _NS_GET_USERNS)
    own_user, user = _open_namespace("self", "user"), _open_namespace(pid, "user")
    first = [] if os.path.sameopenfile(owner, own_user) else [owner]
    last = [] if os.path.sameopenfile(user, owner) else [user]
    return [*first, *found, *last]


def _open_namespace(pid: int | str, name: str) -> int:
    return os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)


def _open_doors(status: Status) -> list[int]:
    file = "tasks" if status["isolation"]["cgroup"] == "v1" else "cgroup.procs"
    groups = status["isolation"]["groups"]
    return [os.open(f"{group}/{file}", os.O_WRONLY | os.O_CLOEXEC) for group in groups]


def _run(entry: Entry, namespaces: list[int]) -> NoReturn:
    """Become the command, in the child."""
    code = CANNOT_ENTER
    status = entry.status
    try:
        for door in entry.doors:
            os.write(door, JOIN)
        in_bwrap = status["isolation"]["namespaces"] == "bwrap"
        if in_bwrap:
            _become_user(status)  # whose namespaces they are
        take_no_more_code()
        for handle in namespaces:
            libc.setns(handle)
        if not in_bwrap:
            _become_user(status)
        libc.die_with_parent(signal.SIGKILL)
        for signum in (*_OF_THE_TERMINAL, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(signum, signal.SIG_DFL)  # ignored by us or Python, not by a command
        _go_to(entry.cwd)
        code = spawn.NOT_EXECUTABLE
        spawn.execute(entry.argv, entry.env)
    except FileNotFoundError as error:
        code = spawn.NOT_FOUND
        print(f"allotment: cannot run {entry.argv[0]}: {error.strerror}", file=sys.stderr)
    except OSError as error:
        what = f"run {entry.argv[0]}" if code != CANNOT_ENTER else "enter the task"
        print(f"allotment: cannot {what}: {error.strerror or error}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(code)


def _become_user(status: Status) -> None:
    if os.geteuid() == 0 and status["uid"] != 0:
        spawn.become(User(status["uid"], status["gid"], tuple(status["groups"])))
        libc.no_new_privileges()


def _go_to(path: str) -> None:
    try:
        os.chdir(path)
    except OSError:
        os.chdir("/")


if __name__ == "__main__":
    main()
