"""Starts a task's command: in its groups, as its user, in its folder, without our memory.

posix_spawn copies nothing of us, but has no hooks for any of that. So the supervisor takes
on group, user and folder itself for the moment of the start, and then goes back: the saved
user id stays root's, and an exec gives the command the effective one in its place.
"""

import errno
import os
import signal
from typing import Final, NamedTuple, NoReturn

from allotment.backends.local.runner import libc
from allotment.backends.local.runner.cgroup import Group
from allotment.backends.local.runner.mounts import User

_RESET: Final = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGCHLD,
)
NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
"""What shells give for a command that is not there, or that cannot be run."""
_DEFAULT_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_DUP2: Final = os.POSIX_SPAWN_DUP2


class Command(NamedTuple):
    """What to start. `fds` are pairs: ours, and the command's.

    `must_fork` is for a command that nothing else ties to our life: it is started by a
    copy of us that asks to die with us.
    """

    argv: list[str]
    env: dict[str, str]
    cwd: str
    user: User | None
    fds: tuple[tuple[int, int], ...]
    must_fork: bool


class NotStarted(Exception):
    """The command could not be started; `stage` is limits, user, cwd or exec."""

    def __init__(self, stage: str, error: OSError) -> None:
        super().__init__(stage)
        self.stage = stage
        self.error = error


def start(command: Command, group: Group, home: int) -> int:
    """Start the command and give its pid; `home` is our own folder. Raises NotStarted."""
    try:
        group.join()
    except OSError as error:
        raise NotStarted("limits", error) from error
    try:
        return _start_as_user(command, home)
    finally:
        group.leave()


def _start_as_user(command: Command, home: int) -> int:
    if command.user is None:
        return _start_in_folder(command, home)
    before = os.getgroups()
    try:
        _become(command.user)
        return _start_in_folder(command, home)
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(before)


def _become(user: User) -> None:
    try:
        os.setgroups(user.groups)
        os.setresgid(user.gid, user.gid, 0)
        os.setresuid(user.uid, user.uid, 0)
        if user.uid != 0:
            libc.no_new_privileges()
    except OSError as error:
        raise NotStarted("user", error) from error


def _start_in_folder(command: Command, home: int) -> int:
    try:
        os.chdir(command.cwd)
    except OSError as error:
        raise NotStarted("cwd", error) from error
    try:
        path = find(command.argv[0], command.env)
        if command.must_fork:
            return _fork_and_exec(path, command)
        return _posix_spawn(path, command)
    except OSError as error:
        raise NotStarted("exec", error) from error
    finally:
        os.fchdir(home)


def find(name: str, env: dict[str, str]) -> str:
    """Look a command up as execvp does. Raises OSError as the exec would."""
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


def _posix_spawn(path: str, command: Command) -> int:
    """Start it; a script without `#!` is the shell's."""
    actions = [(_DUP2, ours, theirs) for ours, theirs in command.fds]
    argv = command.argv
    try:
        return os.posix_spawn(
            path, argv, command.env, setsid=True, setsigdef=_RESET, file_actions=actions
        )
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    argv = ["sh", path, *argv[1:]]
    return os.posix_spawn(
        "/bin/sh", argv, command.env, setsid=True, setsigdef=_RESET, file_actions=actions
    )


def _fork_and_exec(path: str, command: Command) -> int:
    parent = os.getpid()
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _exec(path, command, parent, write_end)
    os.close(write_end)
    failure = os.read(read_end, 16)
    os.close(read_end)
    if failure:
        os.waitpid(pid, 0)
        raise OSError(int(failure), os.strerror(int(failure)))
    return pid


def _exec(path: str, command: Command, parent: int, write_end: int) -> NoReturn:
    """Become the command. Only errors come back, through the pipe, which exec closes."""
    try:
        os.setsid()
        libc.die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(70)
        signal.set_wakeup_fd(-1)
        for signum in _RESET:
            signal.signal(signum, signal.SIG_DFL)
        for ours, theirs in command.fds:
            os.dup2(ours, theirs)
        try:
            os.execve(path, command.argv, command.env)
        except OSError as error:
            if error.errno == errno.ENOEXEC:
                os.execve("/bin/sh", ["sh", path, *command.argv[1:]], command.env)
            raise
    except OSError as error:
        os.write(write_end, str(error.errno).encode())
    finally:
        os._exit(70)
