"""The first process inside a task's isolation: sets it up, starts the command, waits for it.

With namespaces of our own it is process 1 of the task's PID namespace: when it ends, the
kernel ends everything in there. Without, it adopts the task's orphans, so that they stay
below it. It dies with its supervisor in either case.

It speaks to its supervisor in lines over one pipe, and is spoken to over another:

    mounted FROM TO               the view of the file system stands (epoch ms)
    ready                         all but the start is done; waits for a byte
    started                       the command runs
    failed STAGE ERRNO TEXT       it could not be started
    ended code|signal N USER_MS SYSTEM_MS MAX_RSS_BYTES
"""

import errno
import fcntl
import os
import resource
import select
import signal
from typing import Final, NamedTuple, NoReturn

from allotment.backends.local.runner import bwrap, libc, mounts
from allotment.backends.local.runner.cgroup import Group
from allotment.backends.local.runner.record import now_ms

_NOTE: Final = 64
_GO: Final = 65
_STATUS: Final = 66
_KEPT: Final = (_NOTE, _GO, _STATUS)
_TOP: Final = 1 << 16
_RESET: Final = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGCHLD,
)
_DEFAULT_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


class User(NamedTuple):
    """Who the task runs as."""

    uid: int
    gid: int
    groups: tuple[int, ...]


class Pipes(NamedTuple):
    """The ends that init gets; -1 where there is none."""

    stdin: int
    stdout: int
    stderr: int
    note: int
    go: int
    bwrap_status: int


class Start(NamedTuple):
    """Everything init does. `view` is None where it makes no namespaces itself.

    `pids` is set when no control group limits their number. With bubblewrap, waiting at the
    barrier and staying after a failure are the command's own business: see bwrap.py.
    """

    argv: list[str]
    env: dict[str, str]
    cwd: str
    user: User | None
    view: mounts.View | None
    group: Group
    pids: int
    waits: bool
    stays: bool
    uses_bwrap: bool


class _NotStarted(Exception):
    """The command could not be started; the stage says where."""

    def __init__(self, stage: str, error: OSError) -> None:
        super().__init__(stage)
        self.stage = stage
        self.error = error


def main(start: Start, pipes: Pipes) -> NoReturn:
    """Run as init. Never returns, whatever happens."""
    code = 70
    try:
        _keep_only(pipes)
        code = _run(start)
    except _NotStarted as problem:
        text = str(problem.error.strerror or problem.error).replace("\n", " ")
        _note(f"failed {problem.stage} {problem.error.errno or 0} {text}")
    except BaseException as error:  # noqa: BLE001 - the last line before the process ends
        _note(f"failed init 0 {type(error).__name__}: {error}".replace("\n", " "))
    finally:
        os._exit(code)


def _keep_only(pipes: Pipes) -> None:
    """Move our descriptors to fixed places and close all others: they are not for the task."""
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _STATUS + 1) for fd in pipes if fd >= 0]
    named = iter(moved)
    targets = (0, 1, 2, *_KEPT)
    for target, fd in zip(targets, pipes, strict=True):
        if fd >= 0:
            os.dup2(next(named), target, inheritable=target <= 2)
    os.closerange(3, _NOTE)
    os.closerange(_STATUS + (pipes.bwrap_status >= 0), _TOP)


def _note(line: str) -> None:
    try:
        os.write(_NOTE, line.encode()[:4000] + b"\n")
    except OSError:
        return


def _run(start: Start) -> int:
    libc.set_name("allot-init")
    os.setsid()
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    if start.view is not None:
        _isolate(start.view)
    elif not start.uses_bwrap:
        libc.become_subreaper()
    _limit(start)
    if start.user is not None:
        _become(start.user)
    libc.die_with_parent(signal.SIGKILL)
    if _supervisor_is_gone():
        return 0
    _enter_folder(start.cwd)
    if start.waits:
        _note("ready")
        if not os.read(_GO, 1):
            return 0
    pid = _spawn(start)
    if not start.uses_bwrap:  # there the script inside says so
        _note("started")
    return _wait_for(pid, start)


def _supervisor_is_gone() -> bool:
    """It may have died before we asked to be told; getppid() is always 0 in a namespace."""
    poll = select.poll()
    poll.register(_GO, 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


def _isolate(view: mounts.View) -> None:
    began = now_ms()
    try:
        libc.unshare(libc.CLONE_NEWNS | libc.CLONE_NEWIPC | libc.CLONE_NEWUTS)
        mounts.build(view)
    except OSError as error:
        raise _NotStarted("mounts", error) from error
    _note(f"mounted {began} {now_ms()}")


def _limit(start: Start) -> None:
    try:
        start.group.join()
        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
        if start.pids:
            _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
            most = start.pids if hard == resource.RLIM_INFINITY else min(start.pids, hard)
            resource.setrlimit(resource.RLIMIT_NPROC, (most, hard))
    except OSError as error:
        raise _NotStarted("limits", error) from error


def _become(user: User) -> None:
    try:
        os.setgroups(user.groups)
        os.setresgid(user.gid, user.gid, user.gid)
        os.setresuid(user.uid, user.uid, user.uid)
        if user.uid != 0:
            libc.no_new_privileges()
    except OSError as error:
        raise _NotStarted("user", error) from error


def _enter_folder(path: str) -> None:
    try:
        os.chdir(path)
    except OSError as error:
        raise _NotStarted("cwd", error) from error


def _spawn(start: Start) -> int:
    try:
        if start.view is None and not start.uses_bwrap:
            return _fork_and_exec(start)
        return _posix_spawn(_find(start.argv[0], start.env), start)
    except OSError as error:
        raise _NotStarted("exec", error) from error


def _find(name: str, env: dict[str, str]) -> str:
    """Look a command up as execvp does. Raises OSError as the exec would."""
    if "/" in name:
        return name
    problem = errno.ENOENT
    for folder in env.get("PATH", _DEFAULT_PATH).split(":"):
        path = f"{folder or '.'}/{name}"
        if os.access(path, os.X_OK) and not os.path.isdir(path):  # noqa: PTH112 - no pathlib here
            return path
        if os.access(path, os.F_OK):
            problem = errno.EACCES
    raise OSError(problem, os.strerror(problem))


def _posix_spawn(path: str, start: Start) -> int:
    """Start without copying our memory. A script without `#!` is the shell's."""
    actions: list[tuple[int, int, int]] = []
    if start.uses_bwrap:
        inherited = ((_NOTE, bwrap.NOTE_FD), (_GO, bwrap.GO_FD), (_STATUS, bwrap.STATUS_FD))
        actions = [(os.POSIX_SPAWN_DUP2, ours, theirs) for ours, theirs in inherited]
    options = {"setsid": True, "setsigdef": _RESET, "setsigmask": (), "file_actions": actions}
    try:
        return os.posix_spawn(path, start.argv, start.env, **options)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        return os.posix_spawn("/bin/sh", ["sh", path, *start.argv[1:]], start.env, **options)


def _fork_and_exec(start: Start) -> int:
    """Start a child that dies with us, which posix_spawn has no option for."""
    path = _find(start.argv[0], start.env)
    parent = os.getpid()
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _exec(path, start, parent, write_end)
    os.close(write_end)
    failure = os.read(read_end, 16)
    os.close(read_end)
    if failure:
        os.waitpid(pid, 0)
        raise OSError(int(failure), os.strerror(int(failure)))
    return pid


def _exec(path: str, start: Start, parent: int, write_end: int) -> NoReturn:
    try:
        os.setsid()
        libc.die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(70)
        for signum in _RESET:
            signal.signal(signum, signal.SIG_DFL)
        try:
            os.execve(path, start.argv, start.env)
        except OSError as error:
            if error.errno == errno.ENOEXEC:
                os.execve("/bin/sh", ["sh", path, *start.argv[1:]], start.env)
            raise
    except OSError as error:
        os.write(write_end, str(error.errno).encode())
    finally:
        os._exit(70)


def _wait_for(main_pid: int, start: Start) -> int:
    """Reap all that ends until the command does; say how."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == main_pid:
            break
    if os.WIFSIGNALED(status):
        how, value = "signal", os.WTERMSIG(status)
    else:
        how, value = "code", os.WEXITSTATUS(status)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    user_ms, system_ms = round(used.ru_utime * 1000), round(used.ru_stime * 1000)
    _note(f"ended {how} {value} {user_ms} {system_ms} {used.ru_maxrss * 1024}")
    if status != 0 and start.stays:
        # Its namespaces, and what else runs in them, stay for somebody to look at.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        os.read(_GO, 1)
    return 0
