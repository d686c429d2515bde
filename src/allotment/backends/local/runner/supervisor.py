"""One task's supervisor: forked by the launcher, lives as long as its task, tells the truth.

It waits in one poll() for output, lines of control, and the end of children. All it learns
goes to the task's status.json. Its own folder is the state folder, which it reaches by
relative names also where the task's view hides it.
"""

import contextlib
import fcntl
import os
import resource
import select
import signal
import time
from collections.abc import Callable
from typing import Final, NoReturn

from allotment.backends.local.runner import (
    control,
    layout,
    libc,
    lingering,
    procfs,
    record,
    spawn,
    verdict,
)
from allotment.backends.local.runner.book import Book
from allotment.backends.local.runner.bwrap import GO_FD, NOTE_FD, STATUS_FD
from allotment.backends.local.runner.claim import Claim
from allotment.backends.local.runner.course import Course
from allotment.backends.local.runner.host import Host
from allotment.backends.local.runner.logs import DEFAULT_CAP_BYTES, CappedLog
from allotment.backends.local.runner.schema import Request
from allotment.backends.local.runner.surroundings import Surroundings, Unavailable
from allotment.backends.local.runner.timers import Timers

_SLOW_START_S: Final = 0.1
_QUICK_EXEC_S: Final = 0.02
_SLOW_EXEC_S: Final = 0.25
_DRAIN_S: Final = 2.0
_LINGER_S: Final = 2.0
_LINGER_LOOK_S: Final = 10.0
_FIRST_WAIT_MS: Final = 10
_LONGEST_WAIT_MS: Final = 1000
_TOLD_S: Final = 1.0
_TOLD_LOOK_S: Final = 0.02
_HIGH_FD: Final = 10
_PIPE_BYTES: Final = 65536


def supervise(
    request: Request, host: Host, claim: Claim, is_told: Callable[[], bool]
) -> NoReturn:
    """Run one task to its end in this process, which was forked for it. Never returns.

    `is_told` says whether this process has got SIGTERM.
    """
    code = 70
    try:
        libc.set_name("allot-task")
        libc.become_subreaper()
        run(request, host, claim, is_told)
        code = 0
    except BaseException:  # noqa: BLE001 - nobody above us; the launcher reports it as lost
        record.note_fault()
    finally:
        os._exit(code)


def run(request: Request, host: Host, claim: Claim, is_told: Callable[[], bool]) -> None:
    """Run one task to its end and return."""
    timers = Timers()
    book = Book(request, host, timers)
    try:
        surroundings = Surroundings(request, host)
    except Unavailable as error:
        book.status["platform_error"] = str(error)
    else:
        Supervisor(request, host, book, surroundings, timers, is_told).run(claim.control)
    book.close(claim.lock)
    os.unlink(layout.live_file(request["key"]))
    book.tell_the_end()


class Supervisor:
    """The life of one task from making its surroundings to removing them."""

    def __init__(
        self,
        request: Request,
        host: Host,
        book: Book,
        surroundings: Surroundings,
        timers: Timers,
        is_told: Callable[[], bool],
    ) -> None:
        self._request = request
        self._host = host
        self._folder = layout.task_dir(request["key"])
        self._timers = timers
        self._is_told = is_told
        self._book = book
        self._status = book.status
        self._surroundings = surroundings
        self._course = Course(request, host, book, surroundings, timers)
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._beginning: spawn.Beginning | None = None
        self._logs: dict[int, CappedLog] = {}
        self._ends: list[int] = []
        self._bwrap_status = -1
        self._notes = b""
        self._commands = b""
        self._lingers = False
        self._course.stopper.on_kill = self._on_kill

    def run(self, orders: int) -> None:
        """Prepare, start, watch, clear up. What fails of it ends in the status."""
        try:
            self._listen(orders, self._on_control)
            self._prepare()
            self._watch()
        except OSError as error:
            self._status["platform_error"] = verdict.text_of(error)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not lose the task's end
            record.note_fault()
            self._status["platform_error"] = verdict.text_of(error)
        self._conclude()

    # ── starting ────────────────────────────────────────────────────────────────────

    def _prepare(self) -> None:
        """Make everything; start the command, or wait for the word to do so."""
        self._wake, wake_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        self._listen(self._wake, self._on_child)
        self._timers.after(_SLOW_START_S, self._report_slow_start)
        self._book.begin("isolation")
        self._surroundings.make()
        self._status["scratch"] = self._surroundings.scratch
        self._status["isolation"] = self._surroundings.describe()
        self._output = (self._open_log("stdout"), self._open_log("stderr"))
        self._ends += self._output
        self._book.end()
        if self._surroundings.kind == "own":
            self._book.begin("mounts")
            self._surroundings.enter_namespaces()
            self._book.end()
        if self._request.get("hold_at_barrier", False) and self._surroundings.kind != "bwrap":
            self._course.go_on = self._pass_barrier
            self._course.wait_at_barrier()
        else:
            self._start()

    def _open_log(self, stream: str) -> int:
        """Open one log; give the end of its pipe that is the task's."""
        cap = self._request.get("log_bytes", DEFAULT_CAP_BYTES)
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        self._logs[read_end] = CappedLog(f"{self._folder}/{stream}.log", cap)
        self._listen(read_end, self._on_output)
        return write_end

    def _report_slow_start(self) -> None:
        if self._status["phase"] == "starting":
            self._book.publish()

    def _pass_barrier(self) -> None:
        self._course.go_on = lambda: None  # told again before it was heard that it runs
        self._book.end()
        self._start()

    def _start(self) -> None:
        self._book.begin("launch")
        fds = ((self._host.stdin, 0), (self._output[0], 1), (self._output[1], 2))
        if self._surroundings.kind == "bwrap":
            fds += self._open_bwrap_pipes()
        command = self._surroundings.command(fds)
        try:
            self._beginning = spawn.begin(command, self._surroundings.group)
        except spawn.NotStarted as problem:
            self._on_not_started(problem)
            return
        finally:
            self._close_ends()
        told = self._beginning.told
        self._listen(told, self._on_told)
        if self._surroundings.kind == "bwrap":
            self._course.stopper.pid = self._beginning.pid
        # Most often it is there at once; and until then each page we touch is copied.
        if select.select([told], [], [], _QUICK_EXEC_S)[0]:
            self._on_told(told)
        elif self._surroundings.kind != "bwrap":
            self._timers.after(_SLOW_EXEC_S, self._count_as_started)

    def _on_told(self, fd: int) -> None:
        """The command runs, or cannot be run."""
        self._ignore(fd)
        try:
            spawn.check(fd)
        except spawn.NotStarted as problem:
            self._on_not_started(problem)
        else:
            self._count_as_started()
        self._beginning = None

    def _count_as_started(self) -> None:
        """Begin to count its time: also when its user keeps the command from its first step.

        In bubblewrap the script inside says when.
        """
        beginning = self._beginning
        if beginning is None or self._course.stopper.pid:
            return
        self._course.stopper.pid = beginning.pid
        self._course.on_started()

    def _close_ends(self) -> None:
        """Close the task's ends of the pipes: only then do they end with the task."""
        for fd in self._ends:
            os.close(fd)
        self._ends.clear()

    def _open_bwrap_pipes(self) -> tuple[tuple[int, int], ...]:
        note, note_end = self._pipe()
        go_end, go = self._pipe()
        self._bwrap_status, status_end = self._pipe()
        self._listen(note, self._on_note)
        self._course.go_on = lambda: self._let_go(go)
        self._course.let_end = lambda: os.close(go)
        self._ends += [note_end, go_end, status_end]
        return ((note_end, NOTE_FD), (go_end, GO_FD), (status_end, STATUS_FD))

    def _pipe(self) -> tuple[int, int]:
        """Open a pipe away from the numbers that its ends will have in the command."""
        low = os.pipe()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH_FD) for fd in low]
        for fd in low:
            os.close(fd)
        return high[0], high[1]

    def _let_go(self, go: int) -> None:
        self._course.go_on = lambda: None  # told again before the script said `started`
        self._book.end()
        self._book.begin("launch")
        with contextlib.suppress(BrokenPipeError):  # it ended meanwhile, as we shall hear
            os.write(go, b"\n")

    def _on_not_started(self, problem: spawn.NotStarted) -> None:
        message = verdict.not_started(self._status, self._request, problem.stage, problem.error)
        if message:
            *_, stderr = self._logs.values()
            stderr.say(message)
        self._course.is_over = True

    # ── watching ────────────────────────────────────────────────────────────────────

    def _listen(self, fd: int, handler: Callable[[int], None]) -> None:
        self._poll.register(fd, select.POLLIN)
        self._handlers[fd] = handler

    def _ignore(self, fd: int) -> None:
        self._poll.unregister(fd)
        del self._handlers[fd]

    def _watch(self) -> None:
        while not self._course.is_over:
            self._turn(self._timers.wait_ms())

    def _turn(self, wait_ms: int | None) -> None:
        for fd, _ in self._poll.poll(wait_ms):
            if fd in self._handlers:  # the one before may have had the last word of it
                self._handlers[fd](fd)
        self._timers.run_due()

    def _on_output(self, fd: int) -> None:
        if not self._logs[fd].feed(fd):
            self._ignore(fd)

    def _on_note(self, fd: int) -> None:
        data = os.read(fd, _PIPE_BYTES)
        if not data:
            self._ignore(fd)
        *lines, self._notes = (self._notes + data).split(b"\n")
        for line in lines:
            self._course.on_note(line.decode(errors="replace"))

    def _on_control(self, fd: int) -> None:
        commands, self._commands = control.take(fd, self._commands)
        for command in commands:
            if not self._course.is_over:
                self._course.obey(command)

    def _on_child(self, fd: int) -> None:
        os.read(fd, _PIPE_BYTES)
        self._reap()

    def _reap(self) -> bool:
        """Collect what ended: the command, or orphans of it. False when nothing is left."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return True
                if self._beginning is not None and pid == self._beginning.pid:
                    self._on_told(self._beginning.told)
                if pid == self._course.stopper.pid:
                    self._course.on_ended(status)
        except ChildProcessError:
            return False

    # ── concluding ──────────────────────────────────────────────────────────────────

    def _conclude(self) -> None:
        """Clear up, then count: a final status means that nothing is held any more."""
        self._close_ends()
        self._course.is_over = True
        self._course.mark_end()
        # Whom it waits for now, and with whom a grace may end, did not end the task.
        self._status["ended_by"] = self._course.stopper.ended_by
        self._end_the_rest()
        self._judge()
        self._close_logs()
        self._surroundings.remove()
        if self._status["hold_until_ms"]:
            os.unlink(f"{self._folder}/{layout.ENVIRON}")

    def _end_the_rest(self) -> None:
        """Kill what outlived the command, and wait until it is gone, or dead at least.

        What the kernel does not let die, as for a file server that does not answer, has the
        task's devices for as long as that takes.
        """
        if not self._is_left():
            return
        self._course.stopper.kill()
        wait_ms = _FIRST_WAIT_MS
        while self._is_left():
            self._turn(wait_ms)
            wait_ms = min(2 * wait_ms, _LONGEST_WAIT_MS)

    def _is_left(self) -> bool:
        """Whether a process below us, or one that entered the task, may hold something."""
        below = procfs.children(os.getpid()) if self._reap() else []
        return any(map(procfs.holds, (*below, *self._surroundings.group.pids())))

    def _on_kill(self) -> None:
        if not self._lingers:
            self._lingers = True
            self._timers.after(_LINGER_S, self._tell_lingering)

    def _tell_lingering(self) -> None:
        """Note what does not die, while there is such, and kill what has entered since."""
        self._lingers = self._is_left()
        if not self._lingers:
            return
        words = lingering.words(self._status["supervisor_pid"], self._host.proc)
        if words != self._status.get("lingering"):
            self._status["lingering"] = words
            self._book.publish()
        self._timers.after(_LINGER_LOOK_S, self._tell_lingering)
        if self._course.is_over:
            self._course.stopper.kill()

    def _poll_for(self, fd: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.poll(max(0, int((deadline - time.monotonic()) * 1000)))

    def _judge(self) -> None:
        if self._bwrap_status >= 0 and not self._status["ended_by"]:
            os.set_blocking(self._bwrap_status, False)
            verdict.judge_bwrap(self._status, os.read(self._bwrap_status, _PIPE_BYTES))
        ceiling = self._request.get("cpu_ceiling", False)
        verdict.count(self._status, self._surroundings.group, has_ceiling=ceiling)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        verdict.note_usage(self._status, used.ru_utime, used.ru_stime, used.ru_maxrss)
        if self._is_end_of_all():
            verdict.lose(self._status)

    def _is_end_of_all(self) -> bool:
        """Whether the task failed as all that runs here was told to end, us perhaps last.

        So does Slurm with what holds a node, and a machine that goes down.
        """
        if self._status["ended_by"] or self._status["exit_code"] == 0:
            return False
        if verdict.is_terminated(self._status):
            deadline = time.monotonic() + _TOLD_S
            while not self._is_told() and time.monotonic() < deadline:
                time.sleep(_TOLD_LOOK_S)
        return self._is_told()

    def _close_logs(self) -> None:
        """Take the last output. A process that escaped may hold a pipe open: not for long."""
        deadline = time.monotonic() + _DRAIN_S
        for fd, log in self._logs.items():
            while not log.drain(fd) and time.monotonic() < deadline:
                self._poll_for(fd, deadline)
            log.finish()
            stream = log.path.rpartition("/")[2].removesuffix(".log")
            self._status["log_dropped"][stream] = log.dropped
            self._status["log_error"] = self._status["log_error"] or log.error
