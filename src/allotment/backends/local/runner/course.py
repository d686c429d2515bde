"""What happens to a task between its start and its end, told line by line by its init."""

import os
import time
from collections.abc import Callable

from allotment.backends.local.runner import layout, procfs, record, tree, verdict, watch
from allotment.backends.local.runner.book import Book
from allotment.backends.local.runner.logs import CappedLog
from allotment.backends.local.runner.schema import Request
from allotment.backends.local.runner.stopping import Stopper
from allotment.backends.local.runner.surroundings import Surroundings
from allotment.backends.local.runner.timers import Timers


class Course:
    """Follows init's lines, holds a failed task's surroundings, and looks after limits.

    `go` is the pipe by which init, or bubblewrap's inner script, is told to go on.
    """

    def __init__(
        self,
        request: Request,
        book: Book,
        surroundings: Surroundings,
        stopper: Stopper,
        timers: Timers,
    ) -> None:
        self._request = request
        self._book = book
        self._status = book.status
        self._surroundings = surroundings
        self._stopper = stopper
        self._timers = timers
        self._pending = b""
        self.go = -1
        self.stderr: CappedLog | None = None

    def take(self, data: bytes) -> None:
        """Take what came from init: whole lines, or parts of them."""
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            self._take_line(line.decode(errors="replace"))

    def _take_line(self, line: str) -> None:
        match line.split(" "):
            case ["mounted", began, ended]:
                self._book.insert("mounts", int(began), int(ended))
            case ["ready"]:
                self._book.end()
                self._book.begin("barrier")
                self._book.enter("ready")
            case ["started"]:
                self._on_started()
            case ["failed-with", code]:
                verdict.set_exit(self._status, "code", int(code), may_hide_signal=True)
                self._on_failure()
            case ["failed", stage, number, *words]:
                self._on_not_started([stage, number, " ".join(words)])
            case ["ended", *words]:
                in_bwrap = self._surroundings.kind == "bwrap"
                verdict.ended(self._status, words, in_bwrap=in_bwrap)
                if self._status["exit_code"] != 0 and not in_bwrap:
                    self._on_failure()
            case _:
                pass

    def _on_started(self) -> None:
        self._book.end()
        self._status["started_ms"] = record.now_ms()
        main_pid = tree.main_process(self._stopper.init_pid)
        self._status["pid"] = main_pid
        self._status["start_time"] = procfs.start_time(main_pid) if main_pid else 0
        self._book.enter("running")
        self._set_watches()

    def _on_not_started(self, words: list[str]) -> None:
        message = verdict.failed(self._status, self._request, words)
        if self.stderr is not None:
            self.stderr.say(message)

    # ── the barrier, and a hold after a failure ─────────────────────────────────────

    def open_barrier(self) -> None:
        if self._status["phase"] == "ready":
            os.write(self.go, b"\n")

    def _on_failure(self) -> None:
        if not self._surroundings.stays or self._status["hold_until_ms"]:
            return
        if self._stopper.ended_by:
            self.release()
            return
        hold_ms = self._request.get("hold_on_failure_ms", 0)
        self.mark_end()
        self._status["hold_until_ms"] = record.now_ms() + hold_ms
        self._save_environ()
        self._timers.after(hold_ms / 1000, self.release)
        self._book.enter("holding")

    def _save_environ(self) -> None:
        """For enter.py; while the command runs, /proc has it. Secrets: 0600, and soon gone."""
        path = f"{layout.task_dir(self._request['key'])}/{layout.ENVIRON}"
        env = self._surroundings.start().env
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.write(fd, b"\0".join(os.fsencode(f"{name}={env[name]}") for name in env))
        os.close(fd)

    def release(self) -> None:
        """Let whoever waits for a word from us see the end of the pipe."""
        if self.go >= 0:
            os.close(self.go)
            self.go = -1

    def mark_end(self) -> None:
        """Note when the command ended; a hold after it does not count."""
        if not self._status["ended_ms"]:
            self._status["ended_ms"] = record.now_ms()

    # ── limits that nothing else enforces ───────────────────────────────────────────

    def _set_watches(self) -> None:
        limits, group = self._surroundings.limits, self._surroundings.group
        init_pid = self._stopper.init_pid
        if limits.memory_bytes and not group.has("memory"):
            self._watch(lambda: watch.memory(init_pid, limits.memory_bytes), watch.PERIOD_S)
        if limits.pids and not group.has("pids"):
            self._watch(lambda: watch.pids(init_pid, limits.pids), watch.PERIOD_S)
        if disk_bytes := self._request.get("disk_bytes", 0):
            path = self._surroundings.scratch
            self._watch(lambda: watch.disk(path, disk_bytes), watch.DISK_PERIOD_S)

    def _watch(self, look: Callable[[], watch.Finding | None], period_s: float) -> None:
        if self._status["ended_ms"]:
            return
        began = time.monotonic()
        finding = look()
        if finding is not None:
            self._act_on(finding)
            return
        wait_s = watch.next_period_s(period_s, time.monotonic() - began)
        self._timers.after(wait_s, lambda: self._watch(look, period_s))

    def _act_on(self, finding: watch.Finding) -> None:
        self._status["cause"] = finding.cause
        self._status["oom"] |= finding.limit == "memory"
        self._status["disk_limit_hit"] |= finding.limit == "disk"
        self._status["pids_limit_hit"] |= finding.limit == "pids"
        self._stopper.ended_by = finding.limit
        self._stopper.kill()
