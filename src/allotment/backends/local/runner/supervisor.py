"""One task's supervisor: forked by the launcher, lives as long as its task, tells the truth.

It waits in one poll() for four things: output, lines from init, lines of control, and the
end of init. All it learns goes to the task's status.json.
"""

import os
import resource
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import Final, NoReturn

from allotment.backends.local.runner import control, init, layout, libc, procfs, record, verdict
from allotment.backends.local.runner.book import Book
from allotment.backends.local.runner.course import Course
from allotment.backends.local.runner.host import Host
from allotment.backends.local.runner.logs import DEFAULT_CAP_BYTES, CappedLog
from allotment.backends.local.runner.schema import Request
from allotment.backends.local.runner.stopping import Stopper
from allotment.backends.local.runner.surroundings import Surroundings, Unavailable
from allotment.backends.local.runner.timers import Timers

_SLOW_START_S: Final = 0.1
_DRAIN_S: Final = 2.0
_PIPE_BYTES: Final = 65536


def supervise(request: Request, host: Host, claim: int) -> NoReturn:
    """Run one task to its end in this process, which was forked for it. Never returns."""
    try:
        _run(request, host, claim)
    except BaseException:  # noqa: BLE001 - nobody above us; the launcher reports it as lost
        traceback.print_exc()
        os._exit(70)
    os._exit(0)


def _run(request: Request, host: Host, claim: int) -> None:
    libc.set_name("allot-task")
    libc.become_subreaper()
    timers = Timers()
    book = Book(request, host.boot_id, timers)
    try:
        surroundings = Surroundings(request, host)
    except Unavailable as error:
        book.status["platform_error"] = str(error)
    else:
        Supervisor(request, host, book, surroundings, timers).run()
    now = record.now_ms()
    book.status["ended_ms"] = book.status["ended_ms"] or now
    book.close(claim)
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
    ) -> None:
        self._request = request
        self._host = host
        self._folder = layout.task_dir(request["key"])
        self._timers = timers
        self._book = book
        self._status = book.status
        self._surroundings = surroundings
        self._stopper = Stopper(surroundings, timers)
        self._course = Course(request, book, surroundings, self._stopper, timers)
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._logs: dict[int, CappedLog] = {}
        self._note = -1
        self._bwrap_status = -1
        self._commands = b""

    def run(self) -> None:
        """Prepare, start, watch, clear up. What fails of it ends in the status."""
        try:
            self._prepare()
            self._start()
            self._watch()
        except OSError as error:
            self._status["platform_error"] = verdict.text_of(error)
            self._stopper.kill()
        self._conclude()

    # ── starting ────────────────────────────────────────────────────────────────────

    def _prepare(self) -> None:
        self._book.begin("isolation")
        self._surroundings.make()
        self._status["scratch"] = self._surroundings.scratch
        self._status["isolation"] = self._surroundings.describe()
        self._listen(control.open_fifo(f"{self._folder}/{layout.CONTROL}"), self._on_control)
        self._book.end()

    def _start(self) -> None:
        """Fork init, which shares nothing with us but pipes."""
        start = self._surroundings.start()
        out_end, err_end = self._open_log("stdout"), self._open_log("stderr")
        self._note, note_end = os.pipe()
        go_end, self._course.go = os.pipe()
        bwrap_end = -1
        if start.uses_bwrap:
            self._bwrap_status, bwrap_end = os.pipe()
        if start.view is not None:
            libc.unshare(libc.CLONE_NEWPID)
        self._book.begin("launch")
        pid = os.fork()
        if pid == 0:
            ends = init.Pipes(self._host.stdin, out_end, err_end, note_end, go_end, bwrap_end)
            init.main(start, ends)
        self._stopper.init_pid = self._status["init_pid"] = pid
        for fd in (out_end, err_end, note_end, go_end, bwrap_end):
            if fd >= 0:
                os.close(fd)
        os.set_blocking(self._note, False)
        self._listen(self._note, self._on_note)
        self._timers.after(_SLOW_START_S, self._report_slow_start)

    def _open_log(self, stream: str) -> int:
        """Open one log; give the end of its pipe that is the task's."""
        cap = self._request.get("log_bytes", DEFAULT_CAP_BYTES)
        log = CappedLog(f"{self._folder}/{stream}.log", cap)
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        self._logs[read_end] = log
        self._course.stderr = log
        self._listen(read_end, self._on_output)
        return write_end

    def _report_slow_start(self) -> None:
        if self._status["phase"] == "starting":
            self._book.publish()

    # ── watching ────────────────────────────────────────────────────────────────────

    def _listen(self, fd: int, handler: Callable[[int], None]) -> None:
        self._poll.register(fd, select.POLLIN)
        self._handlers[fd] = handler

    def _ignore(self, fd: int) -> None:
        self._poll.unregister(fd)
        del self._handlers[fd]

    def _watch(self) -> None:
        """Handle what comes until init is gone."""
        pidfd = os.pidfd_open(self._stopper.init_pid)
        self._poll.register(pidfd, select.POLLIN)
        is_gone = False
        while not is_gone:
            for fd, _ in self._poll.poll(self._timers.wait_ms()):
                if fd == pidfd:
                    is_gone = True
                else:
                    self._handlers[fd](fd)
            self._timers.run_due()

    def _on_output(self, fd: int) -> None:
        if not self._logs[fd].feed(fd):
            self._ignore(fd)

    def _on_note(self, fd: int) -> None:
        data = self._read_note(fd)
        if not data:
            self._ignore(fd)
        self._course.take(data)

    def _read_note(self, fd: int) -> bytes:
        try:
            return os.read(fd, _PIPE_BYTES)
        except BlockingIOError:
            return b""

    def _on_control(self, fd: int) -> None:
        commands, self._commands = control.take(fd, self._commands)
        for command in commands:
            self._obey(command)

    def _obey(self, command: control.Command) -> None:
        match command.verb:
            case "go":
                self._course.open_barrier()
            case "signal":
                self._stopper.signal(command.signum)
            case "stop" if self._status["phase"] == "running":
                self._stopper.stop(command.signum, command.grace_ms)
            case "stop" | "kill":
                # Before it runs, and after it failed, there is nothing to ask.
                self._stopper.ended_by = self._stopper.ended_by or command.verb
                self._stopper.kill()
            case "freeze" | "thaw":
                frozen = command.verb == "freeze"
                self._stopper.freeze(frozen=frozen, then=lambda: self._set_frozen(frozen))
            case _:
                pass

    def _set_frozen(self, frozen: bool) -> None:
        self._status["frozen"] = frozen
        self._book.publish()

    # ── concluding ──────────────────────────────────────────────────────────────────

    def _conclude(self) -> None:
        """Clear up, then count: a final status means that nothing is held any more."""
        if self._note >= 0:
            self._course.take(self._read_note(self._note))
        if self._stopper.init_pid:
            self._stopper.clear_up()
            self._judge()
        self._close_logs()
        self._surroundings.remove()
        for name in (layout.CONTROL, layout.ENVIRON):
            _remove(f"{self._folder}/{name}")

    def _judge(self) -> None:
        self._course.mark_end()
        verdict.vanished(self._status, self._stopper.ended_by, signal.SIGKILL)
        self._status["ended_by"] = self._stopper.ended_by
        if self._bwrap_status >= 0 and not self._stopper.ended_by:
            self._judge_bwrap()
        ceiling = self._request.get("cpu_ceiling", False)
        verdict.count(self._status, self._surroundings.group, has_ceiling=ceiling)
        usage = self._status["usage"]
        if not usage["max_rss_bytes"]:  # init could not tell: it was killed
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            usage["cpu_user_ms"] = round(used.ru_utime * 1000)
            usage["cpu_system_ms"] = round(used.ru_stime * 1000)
            usage["max_rss_bytes"] = used.ru_maxrss * 1024
        if self._status["started_ms"]:
            usage["wall_ms"] = self._status["ended_ms"] - self._status["started_ms"]

    def _judge_bwrap(self) -> None:
        os.set_blocking(self._bwrap_status, False)
        told = self._read_note(self._bwrap_status).decode(errors="replace")
        if verdict.bwrap_failed(told) and not self._status["platform_error"]:
            self._status["exit_code"] = self._status["signal"] = None
            self._status["platform_error"] = "bubblewrap could not set up the isolation; see stderr"

    def _close_logs(self) -> None:
        """Take the last output. A process that escaped may hold a pipe open: not for long."""
        deadline = time.monotonic() + _DRAIN_S
        for fd, log in self._logs.items():
            while not log.drain(fd) and time.monotonic() < deadline:
                poll = select.poll()
                poll.register(fd, select.POLLIN)
                poll.poll(max(0, int((deadline - time.monotonic()) * 1000)))
            log.finish()
            stream = log.path.rpartition("/")[2].removesuffix(".log")
            self._status["logs"][stream] = {
                "total": log.total,
                "dropped": log.dropped,
                "head": log.head,
            }
            self._status["log_error"] = self._status["log_error"] or log.error


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
