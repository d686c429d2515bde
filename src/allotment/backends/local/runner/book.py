"""What a supervisor knows of its task, and telling it: status.json and the datagram."""

import time
from typing import Final

from allotment.backends.local.runner import procfs, record
from allotment.backends.local.runner.host import Host
from allotment.backends.local.runner.schema import PhaseName, Request, Stage
from allotment.backends.local.runner.timers import Timers

_SOON_S: Final = 0.004
_AGAIN_S: Final = 0.02
_LAST_REPORTS: Final = 50
_WRITE_AGAIN_S: Final = 1.0


def _uptime_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Book:
    """Holds the status. Nothing is known outside before `publish`."""

    def __init__(self, request: Request, host: Host, timers: Timers) -> None:
        self.status = record.new_status(request, host.boot_id)
        self._epoch_ms = record.now_ms() - _uptime_ms()
        # As the host counts: we may be process 1 of a namespace.
        pid = procfs.own_pid(host.proc)
        self.status["supervisor_pid"] = pid
        self.status["supervisor_start_time"] = procfs.start_time_in(pid, host.proc)
        self._reporter = record.Reporter(request["key"])
        self._timers = timers
        self._report_is_due = False

    def now_ms(self) -> int:
        """Return the time since the epoch, by the wall clock of when the task came to us.

        Whoever sets that clock meanwhile changes no length of time.
        """
        return self._epoch_ms + _uptime_ms()

    def enter(self, phase: Stage) -> None:
        self.status["phase"] = phase
        self.publish()

    def begin(self, name: PhaseName, at_ms: int = 0) -> None:
        """Begin a named phase of starting."""
        phases = self.status["phases"]
        phases.append({"name": name, "start_ms": at_ms or self.now_ms(), "end_ms": 0})

    def end(self, at_ms: int = 0) -> None:
        """End the phase that was begun last."""
        self.status["phases"][-1]["end_ms"] = at_ms or self.now_ms()

    def enter_soon(self, phase: Stage) -> None:
        """Enter a phase, but tell a little later: most short tasks are over by then.

        For them one write and one datagram are enough.
        """
        self.status["phase"] = phase
        self._timers.after(_SOON_S, self._publish_unless_over)

    def _publish_unless_over(self) -> None:
        if not self.status["ended_ms"]:
            self.publish()

    def publish(self) -> None:
        """Write the status and tell. A full disk is no reason to stop: the next may fit."""
        try:
            record.write_status(self.status)
        except OSError as error:
            self.status["log_error"] = self.status["log_error"] or str(error)
        self._tell()

    def _tell(self) -> None:
        if not self._reporter.send() and not self._report_is_due:
            self._report_is_due = True
            self._timers.after(_AGAIN_S, self._tell_again)

    def _tell_again(self) -> None:
        self._report_is_due = False
        self._tell()

    def close(self, claim: int) -> None:
        """Write the final status, however long it takes, and tell, for a second at most.

        Until it is written somewhere the claim stays locked: the task counts as running.
        """
        self.status["phase"] = "ended"
        self.status["frozen"] = False
        self.status.pop("lingering", None)
        self.status["ended_ms"] = self.status["ended_ms"] or self.now_ms()
        while not record.write_final(self.status, claim):
            time.sleep(_WRITE_AGAIN_S)

    def tell_the_end(self) -> None:
        for _ in range(_LAST_REPORTS):
            if self._reporter.send():
                return
            time.sleep(_AGAIN_S)
