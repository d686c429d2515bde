"""What happens to a task between its start and its end, and what follows from it.

No process is made or reaped here: the supervisor does that and tells.
"""

import os
import signal
import time
from collections.abc import Callable
from functools import partial

from allotment.backends.local.runner import layout, pausing, procfs, verdict, watch
from allotment.backends.local.runner.book import Book
from allotment.backends.local.runner.control import Instruction
from allotment.backends.local.runner.host import Host
from allotment.backends.local.runner.schema import Request
from allotment.backends.local.runner.stopping import Stopper
from allotment.backends.local.runner.surroundings import Surroundings
from allotment.backends.local.runner.timers import Timers


class Course:
    """Follows one task. `go_on` lets it pass the barrier; `is_over` ends the watch."""

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
        self._book = book
        self._status = book.status
        self._surroundings = surroundings
        self._timers = timers
        self.stopper = Stopper(surroundings, timers)
        self._pauser = pausing.Pauser(timers)
        self.stopper.on_dead = lambda: self.on_ended(signal.SIGKILL)
        self.go_on: Callable[[], None] = lambda: None
        self.let_end: Callable[[], None] = self._end
        self.is_over = False

    def _end(self) -> None:
        self.is_over = True

    # ── starting ────────────────────────────────────────────────────────────────────

    def wait_at_barrier(self) -> None:
        self._book.begin("barrier")
        self._book.enter("ready")

    def on_started(self) -> None:
        """Note that the command runs; `stopper.pid` is it, or bubblewrap around it."""
        self._book.end()
        self._status["started_ms"] = self._book.now_ms()
        if self._surroundings.kind == "bwrap":
            inner = procfs.only_child(self.stopper.pid, self._host.proc)
            self._status["pid"] = procfs.only_child(inner, self._host.proc)
        else:
            pid = self._status["supervisor_pid"]
            self._status["pid"] = procfs.only_child(pid, self._host.proc)
        self._status["start_time"] = procfs.start_time_in(self._status["pid"], self._host.proc)
        self._book.enter_soon("running")
        self._set_watches()

    def on_note(self, line: str) -> None:
        """Take a line of bubblewrap's inner script."""
        match line.split():
            case ["ready"]:
                self._book.end()
                self.wait_at_barrier()
            case ["started"]:
                self.on_started()
            case ["failed", code]:
                verdict.set_exit(self._status, "code", int(code), may_hide_signal=True)
                self._hold()
            case _:
                pass

    # ── ending ──────────────────────────────────────────────────────────────────────

    def on_ended(self, status: int) -> None:
        """Take the command's wait status."""
        in_bwrap = self._surroundings.kind == "bwrap"
        if self._status["exit_code"] is None and self._status["signal"] is None:
            if os.WIFSIGNALED(status):
                verdict.set_exit(self._status, "signal", os.WTERMSIG(status))
            else:
                code = os.WEXITSTATUS(status)
                verdict.set_exit(self._status, "code", code, may_hide_signal=in_bwrap)
        self.stopper.pid = 0
        self.mark_end()
        if in_bwrap or status == 0 or not self._hold():
            self._end()

    def mark_end(self) -> None:
        """Note when the command ended; a hold after it does not count."""
        if not self._status["ended_ms"]:
            self._status["ended_ms"] = self._book.now_ms()

    def _hold(self) -> bool:
        """Keep what surrounds a failed task for a while, if that was asked for."""
        hold_ms = self._request.get("hold_on_failure_ms", 0)
        if not hold_ms or self.stopper.ended_by:
            self.let_end()
            return False
        self.mark_end()
        self._status["hold_until_ms"] = self._status["ended_ms"] + hold_ms
        self._save_environ()
        self._timers.after(hold_ms / 1000, self.let_end)
        self._book.enter("holding")
        return True

    def _save_environ(self) -> None:
        """For enter.py; while the command runs, /proc has it. Secrets: 0600, and soon gone."""
        path = f"{layout.task_dir(self._request['key'])}/{layout.ENVIRON}"
        env = self._surroundings.env()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.write(fd, b"\0".join(os.fsencode(f"{name}={env[name]}") for name in env))
        os.close(fd)

    # ── orders ──────────────────────────────────────────────────────────────────────

    def obey(self, command: Instruction) -> None:
        """Carry out one line of the control pipe."""
        match command.verb:
            case "go" if self._status["phase"] == "ready":
                self.go_on()
            case "signal":
                self.stopper.signal(command.signum)
            case "stop" if self._status["phase"] == "running":
                self._stop(command)
            case "stop" | "kill":
                self._end_now(command)
            case "freeze":
                self._freeze()
            case "thaw":
                self.stopper.freeze(frozen=False, then=self._go_on)
            case "ask" | "suspend" | "stand" | "free" if self._status["phase"] == "running":
                self._pause(command)
            case _:
                pass

    # ── standing still ──────────────────────────────────────────────────────────────

    def _pause(self, command: Instruction) -> None:
        """Ask the ranks to stop at a step boundary; what they answer is told."""
        self._pauser.fd = self._surroundings.pause_fd
        tell = partial(self._tell_pause, command.number)
        match command.verb:
            case "stand" if not self._status["frozen"]:
                self._pauser.stand(command.step, tell)
            case "free" if not self._status["frozen"]:
                self._pauser.free(tell)
            case "suspend" if not pausing.is_wanted(self._pauser.ranks()):
                self._freeze()
            case _:
                tell()

    def _tell_pause(self, number: int) -> None:
        ranks = self._pauser.ranks()
        self._status["pause"] = {
            "heard": number,
            "state": self._pauser.state,
            "count": ranks.number,
            "world": ranks.world,
            "frees": pausing.can_free(ranks),
            "step": ranks.step,
            "step_ns": ranks.step_ns,
            "devices": self._request["env"].get("ALLOT_DEVICES", ""),
        }
        self._book.publish()

    def _freeze(self) -> None:
        self._pauser.hold()
        self.stopper.freeze(frozen=True, then=lambda: self._set_frozen(True))

    def _go_on(self) -> None:
        self._pauser.go_on()
        self._set_frozen(False)

    def _stop(self, command: Instruction) -> None:
        """Ask it to end. What gave memory back does not get it again: others may have it."""
        if self._pauser.state != "freed":
            self._pauser.go_on()
            self.stopper.stop(command.signum, command.grace_ms)
        elif self._pauser.can_save():
            self.stopper.stop(command.signum, command.grace_ms, tells=False)
            self._pauser.save()
        else:
            self.stopper.stop(command.signum, command.grace_ms)
            self._pauser.save()

    def _end_now(self, command: Instruction) -> None:
        """Before it runs, and after it failed, there is nobody to ask."""
        self.stopper.ended_by = self.stopper.ended_by or command.verb
        self.stopper.kill()
        if not self.stopper.pid:
            if self._status["phase"] != "holding":
                self._status["signal"] = command.signum or signal.SIGKILL
            self._end()

    def _set_frozen(self, frozen: bool) -> None:
        self._status["frozen"] = frozen
        if "pause" in self._status:
            self._status["pause"]["state"] = self._pauser.state
        self._book.publish()

    # ── limits that nothing else enforces ───────────────────────────────────────────

    def _set_watches(self) -> None:
        limits, group, root = self._surroundings.limits, self._surroundings.group, os.getpid()
        if limits.memory_bytes and not group.has("memory"):
            self._watch(lambda: watch.memory(root, limits.memory_bytes), watch.PERIOD_S)
        if limits.pids and not group.has("pids"):
            self._watch(lambda: watch.pids(root, limits.pids), watch.PERIOD_S)
        if disk_bytes := self._request.get("disk_bytes", 0):
            place, parts = self._host.scratch, self._surroundings.disk_parts()
            self._watch(lambda: watch.disk(place, parts, disk_bytes), watch.DISK_PERIOD_S)

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
        self.stopper.ended_by = finding.limit
        self.stopper.kill()
