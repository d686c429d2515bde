"""The launcher: a small process that outlives the service and forks a supervisor per task.

    python -m allotment.backends.local.runner.launcher STATE_DIR

returns when the launcher listens: 0, or 3 when another one serves this state folder.
It goes to the background, in a session of its own, with an empty environment. It adopts
what its supervisors leave behind. If it dies its supervisors live on, and the next
launcher clears up after those that did not.
"""

import fcntl
import gc
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Final, NoReturn

from allotment.backends.local.runner import (
    hierarchy,
    layout,
    libc,
    procfs,
    record,
    salvage,
    scratch,
    supervisor,
    timers,
    tree,
    user_namespace,
    warmup,
    watchdog,
)
from allotment.backends.local.runner import host as host_facts
from allotment.backends.local.runner.claim import Claim
from allotment.backends.local.runner.protocol import LONGEST_LINE_BYTES, Server, live_keys
from allotment.backends.local.runner.schema import Request
from allotment.backends.local.runner.surroundings import is_own

ALREADY_SERVED: Final = 3
NAME: Final = "allotment.backends.local.runner.launcher"
_BOOT: Final = (
    f"import sys; sys.path.insert(0, sys.argv[1]); from {NAME} import start; start(sys.argv[3])"
)
_ENVIRON: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
_READ_BYTES: Final = 1 << 18
_BACKLOG: Final = 128
_SEND_TIMEOUT: Final = struct.pack("ll", 2, 0)
_CLEARED_S: Final = 5.0
_LOOK_S: Final = 0.01


def _forget_signals() -> None:
    """Undo what `nohup` or a shell's `&` left: tasks are to be stopped as they expect."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for signum in range(1, signal.SIGSYS + 1):
        if signum not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(signum, signal.SIG_DFL)


def main() -> NoReturn:
    """Begin anew, clean: no environment, no open files, no site-packages.

    Whoever starts us may have secrets in the first two; the third would be copied into
    every supervisor. The words of the command line stay what they were.
    """
    if len(sys.argv) != 2:
        sys.exit(f"usage: python -m {NAME} STATE_DIR")
    root = os.path.abspath(__file__)
    for _ in NAME.split("."):
        root = os.path.dirname(root)
    os.closerange(3, 1 << 16)
    _forget_signals()
    argv = [sys.executable, "-I", "-S", "-c", _BOOT, root, NAME, sys.argv[1]]
    os.execve(sys.executable, argv, _ENVIRON)


def start(path: str) -> NoReturn:
    """Start a launcher in the background, and return when it listens."""
    state_dir = os.path.realpath(path)
    try:
        lock = _take_folder(state_dir)
    except BlockingIOError:
        sys.exit(ALREADY_SERVED)
    except OSError as error:
        sys.exit(f"the state folder {state_dir} cannot be used: {error}")
    ready, told = os.pipe()
    if os.fork():
        os.close(told)
        problem = os.read(ready, 4000).decode(errors="replace")
        sys.exit(problem.removeprefix("ready") or 0)
    os.close(ready)
    os.setsid()
    if os.fork():
        os._exit(0)
    _serve(state_dir, lock, told)


def _take_folder(state_dir: str) -> int:
    """Go to the state folder and lock it. Raises BlockingIOError when another has."""
    os.chdir(state_dir)
    os.umask(0o077)
    for folder in (layout.LIVE, layout.TASKS):
        os.makedirs(folder, exist_ok=True)
    os.umask(0o022)
    lock = os.open(layout.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + _CLEARED_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # One that has no socket any more just clears away.
            if os.path.lexists(layout.SOCKET) or time.monotonic() >= until:
                raise
            time.sleep(_LOOK_S)
        else:
            return lock


def _has_no_other() -> bool:
    """Whether no other launcher is in our folder, nor comes to it before we have ended."""
    try:
        lock = os.open(layout.LOCK, os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return True  # The folder is gone.
    return True


def _serve(state_dir: str, lock: int, told: int) -> NoReturn:
    try:
        _redirect()
        launcher = Launcher(state_dir, lock)
        os.write(told, b"ready")
        os.close(told)
    except BaseException as error:  # noqa: BLE001 - told to whoever started us
        os.write(told, f"the launcher cannot start: {error}".encode()[:4000])
        os._exit(1)
    try:
        launcher.run()
        launcher.clear_away()
    except BaseException:  # noqa: BLE001 - the last line before the process ends
        record.note_fault()
        os._exit(1)
    os._exit(0)


def _redirect() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(layout.LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(null)
    os.close(log)


class Launcher:
    """Listens, forks, reaps. One thread, one poll."""

    def __init__(self, state_dir: str, lock: int) -> None:
        libc.set_name("allot-launcher")
        libc.become_subreaper()
        # Caught, not ignored: what is ignored stays so in the commands of tasks.
        for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(signum, _do_nothing)
        self._lock = lock
        _limit_core_dumps()
        self._came_from = procfs.read("/proc/self/cgroup")
        self._host = host_facts.look(state_dir)
        self._host.hierarchy.group("", []).leave()
        self._server = Server(self._host, self._launch)
        self._keys: dict[int, str] = {}
        self._salvagers: set[int] = set()
        self._watchdog = watchdog.Watchdog(self._salvage)
        self._timers = timers.Timers()
        self._buffers: dict[socket.socket, bytes] = {}
        self._connections: dict[int, socket.socket] = {}
        signal.signal(signal.SIGCHLD, _do_nothing)
        signal.signal(signal.SIGTERM, self._on_terminate)
        self._is_terminated = False
        self._pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._poll = select.poll()
        self._listener: socket.socket | None = self._listen()
        warmup.warm_up(self._host)
        self._wake, self._wake_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wake_end, warn_on_full_buffer=False)
        self._poll.register(self._wake, select.POLLIN)
        for key in live_keys():
            self._salvage(key)
        gc.disable()
        gc.collect()
        gc.freeze()

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.setblocking(False)
        if os.path.lexists(layout.SOCKET):
            os.unlink(layout.SOCKET)  # left by one that was killed: we hold the lock
        umask = os.umask(0o177)
        listener.bind(layout.SOCKET)
        os.umask(umask)
        listener.listen(_BACKLOG)
        self._poll.register(listener, select.POLLIN)
        return listener

    def run(self) -> None:
        """Serve until told to end; after retiring, until the last of our children has ended."""
        self._look()
        while not self._is_terminated and (
            self._listener is not None or self._keys or self._salvagers
        ):
            for fd, _ in self._poll.poll(self._timers.wait_ms()):
                if fd == self._wake:
                    self._reap()
                elif self._listener is not None and fd == self._listener.fileno():
                    self._accept(self._listener)
                else:
                    self._read(self._connections[fd])
            self._timers.run_due()
            if self._server.is_retiring and self._listener is not None:
                self._retire(self._listener)

    def _on_terminate(self, *_: object) -> None:
        self._is_terminated = True

    def _retire(self, listener: socket.socket) -> None:
        """Make room for another launcher: the name of the socket and the lock are free."""
        self._poll.unregister(listener)
        listener.close()
        self._listener = None
        os.unlink(layout.SOCKET)
        os.close(self._lock)

    def clear_away(self) -> None:
        """Remove our control groups, unless a task or another launcher uses them.

        And the folder of scratch folders, which may be where all users make folders.
        """
        if self._listener is not None or _has_no_other():
            hierarchy.give_back(self._host.hierarchy, self._came_from)
            scratch.give_back(self._host.scratch_root, self._host.scratch)

    # ── requests ────────────────────────────────────────────────────────────────────

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        # Who asks and does not read the answer may not block us for long.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)
        self._connections[connection.fileno()] = connection
        self._buffers[connection] = b""
        self._poll.register(connection, select.POLLIN)

    def _read(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(_READ_BYTES)
        except OSError:
            data = b""
        *lines, rest = (self._buffers[connection] + data).split(b"\n")
        if not data or len(rest) > LONGEST_LINE_BYTES:
            self._drop(connection)
            return
        self._buffers[connection] = rest
        answers = b"".join(self._server.answer(line) for line in lines)
        try:
            connection.sendall(answers)
        except OSError:
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        self._poll.unregister(connection)
        del self._connections[connection.fileno()]
        del self._buffers[connection]
        connection.close()

    # ── children ────────────────────────────────────────────────────────────────────

    def _launch(self, request: Request, claim: Claim) -> None:
        pid = self._fork_first() if is_own(request, self._host) else os.fork()
        if pid == 0:
            self._leave_behind()
            supervisor.supervise(request, self._host, claim, lambda: self._is_terminated)
        self._keys[pid] = request["key"]

    def _fork_first(self) -> int:
        """Fork the first process of a PID namespace. Raises OSError."""
        if os.geteuid() != 0:
            return user_namespace.fork_first()
        libc.unshare(libc.CLONE_NEWPID)
        pid = -1
        try:
            pid = os.fork()
        finally:
            if pid:
                libc.setns(self._pid_namespace, libc.CLONE_NEWPID)
        return pid

    def _leave_behind(self) -> None:
        """Become another process: keep the host's facts, close what is the launcher's.

        Its signal handlers stay: they do nothing, which is what is wanted, and to change
        them through enums would cost more than all the rest here.
        """
        signal.set_wakeup_fd(-1)
        self._is_terminated = False
        os.setsid()
        os.close(self._wake)
        os.close(self._wake_end)
        if self._listener is not None:
            self._listener.close()
            os.close(self._lock)
        for connection in self._buffers:
            connection.close()

    def _look(self) -> None:
        """Look after all supervisors, also those of earlier launchers, while we listen."""
        self._timers.after(watchdog.LOOK_EVERY_S, self._look)
        if self._listener is None:
            return
        ours = {key: pid for pid, key in self._keys.items()}
        for key in self._watchdog.look(live_keys(), ours):
            # Before its supervisor, which a file server may hold from dying, is gone.
            self._in_child(self._host.hierarchy.group(key, ["any"]).kill)

    def _salvage(self, key: str) -> None:
        cause = self._watchdog.causes.get(key, "")
        self._in_child(lambda: salvage.salvage(key, self._host, cause))

    def _in_child(self, action: Callable[[], None]) -> None:
        """Do what may take a while."""
        pid = os.fork()
        if pid == 0:
            try:
                action()
            except BaseException:  # noqa: BLE001 - a forked child must not go on
                record.note_fault()
            finally:
                os._exit(0)
        self._salvagers.add(pid)

    def _reap(self) -> None:
        os.read(self._wake, 4096)
        has_orphans = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            key = self._keys.pop(pid, None)
            if key is not None and status != 0:
                self._salvage(key)
            if key is None or status != 0:
                has_orphans |= pid not in self._salvagers
                self._salvagers.discard(pid)
        if has_orphans:
            self._kill_orphans()

    def _kill_orphans(self) -> None:
        """Kill whatever is our child and neither supervisor nor salvager.

        It was left by a supervisor that was killed, and nobody watches it any more. Its
        own children become ours when it ends, and their turn comes then.
        """
        for pid in procfs.children(os.getpid()):
            if pid not in self._keys and pid not in self._salvagers:
                tree.send(pid, signal.SIGKILL)


def _limit_core_dumps() -> None:
    """No core files by default: a crashed training job writes its whole memory."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def _do_nothing(*_: object) -> None:
    """Be there: only a signal with a handler is written to the wake-up pipe."""


if __name__ == "__main__":
    main()
