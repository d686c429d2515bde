"""Starts a task's command: in its groups, as its user, in its folder.

A child of the supervisor does it. From the moment it is the user's, its user may stop, kill
or trace it, and a path it opens may keep it waiting for ever. None of that touches us: a pipe
tells what came of it, and meanwhile we listen on.

Our own ids never change, not for an instant: the kernel lets a process be signalled by whom
its real or saved id names, and slowed down (sched_setscheduler) by whom its effective one does.
"""

import errno
import fcntl
import os
import signal
from typing import Final, NamedTuple, NoReturn

from allotment.backends.local.runner import libc
from allotment.backends.local.runner.cgroup import JOIN, Group
from allotment.backends.local.runner.mounts import User

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
"""What shells give for a command that is not there, or that cannot be run."""
_DEFAULT_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_HIGH_FD: Final = 10
_LONGEST_WORDS: Final = 4000


class Command(NamedTuple):
    """What to start. `fds` are pairs: ours, and the command's.

    `is_tied` is for a command that nothing else ends when we are killed.
    """

    argv: list[str]
    env: dict[str, str]
    cwd: str
    user: User | None
    fds: tuple[tuple[int, int], ...]
    is_tied: bool


class Beginning(NamedTuple):
    """A child on its way to its command; `told` ends when it has become it, or is gone."""

    pid: int
    told: int


class NotStarted(Exception):
    """The command could not be started; `stage` is fork, limits, user, cwd or exec."""

    def __init__(self, stage: str, error: OSError) -> None:
        super().__init__(stage)
        self.stage = stage
        self.error = error


def begin(command: Command, group: Group) -> Beginning:
    """Fork the child that becomes the command. Raises NotStarted.

    Each line that the child runs costs it a copy of the pages that Python touches. So what
    can be done before is done here. Its signals need no care: what we catch is not caught
    any more after exec.
    """
    parent = os.getpid()
    doors = _open_doors(group)
    told, tell = _pipe()
    try:
        if command.user is not None and command.user.uid != 0:
            libc.no_new_privileges()  # for us too, who need none
        pid = os.fork()
    except OSError as error:
        os.close(told)
        raise NotStarted("fork", error) from error
    else:
        if pid == 0:
            _become(command, doors, parent, tell)
    finally:
        for fd in (tell, *doors):
            os.close(fd)
    return Beginning(pid, told)


def _open_doors(group: Group) -> list[int]:
    try:
        return group.open_doors()
    except OSError as error:
        raise NotStarted("limits", error) from error


def _pipe() -> tuple[int, int]:
    """Open a pipe, its end for writing away from the numbers that are the command's."""
    told, low = os.pipe()
    tell = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD)
    os.close(low)
    return told, tell


def check(told: int) -> None:
    """Take what came through the pipe, and close it. Raises NotStarted if anything did."""
    words = os.read(told, _LONGEST_WORDS).decode(errors="replace")
    os.close(told)
    if words:
        stage, number, text = words.split(" ", 2)
        raise NotStarted(stage, OSError(int(number), text))


def _become(command: Command, doors: list[int], parent: int, tell: int) -> NoReturn:
    """Become the command. Only errors come back, through the pipe, which exec closes."""
    stage = "limits"
    try:
        os.setsid()
        for door in doors:
            os.write(door, JOIN)
        for ours, theirs in command.fds:
            os.dup2(ours, theirs)
        stage = "user"
        if command.user is not None:
            become(command.user)
        if command.is_tied:
            libc.die_with_parent(signal.SIGKILL)  # which a change of user would forget
            if os.getppid() != parent:
                os._exit(70)
        stage = "cwd"
        os.chdir(command.cwd)
        stage = "exec"
        execute(command.argv, command.env)
    except OSError as error:
        _say(tell, stage, error.errno or 0, error.strerror or str(error))
    except BaseException as error:  # noqa: BLE001 - a bug of ours, and no exit code of its
        _say(tell, "fork", 0, repr(error))
    finally:
        os._exit(70)


def _say(tell: int, stage: str, number: int, text: str) -> None:
    os.write(tell, f"{stage} {number} {text}".encode(errors="replace")[:_LONGEST_WORDS])


def become(user: User) -> None:
    """Become a user, by real, effective and saved id, with no keys but its own.

    Raises OSError.
    """
    libc.leave_keys()  # Of us, and of others that we started. The user may have few keyrings.
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    libc.reach_own_keys()


def execute(argv: list[str], env: dict[str, str]) -> NoReturn:
    """Become a program; a script without `#!` is the shell's. Raises OSError."""
    path = find(argv[0], env)
    try:
        os.execve(path, argv, env)
    except OSError as error:
        if error.errno == errno.ENOEXEC:
            os.execve("/bin/sh", ["sh", path, *argv[1:]], env)
        raise


def find(name: str, env: dict[str, str]) -> str:
    """Look up a command as execvp does. Raises OSError as the exec would."""
    if "/" in name:
        return name
    problem = errno.ENOENT
    for folder in env.get("PATH", _DEFAULT_PATH).split(":"):
        path = f"{folder or '.'}/{name}"
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
        if os.access(path, os.F_OK):
            problem = errno.EACCES
    raise OSError(problem, os.strerror(problem))
