"""What a supervisor knows of its task, and telling it: status.json and the datagram."""

import os
import time
from typing import Final

from allotment.backends.local.runner import procfs, record
from allotment.backends.local.runner.schema import PhaseName, Request, Stage
from allotment.backends.local.runner.timers import Timers

_AGAIN_S: Final = 0.02
_LAST_REPORTS: Final = 50
_WRITE_AGAIN_S: Final = 1.0


class Book:
    """Holds the status. Nothing is known outside before `publish`."""

    def __init__(self, request: Request, boot_id: str, timers: Timers) -> None:
        self.status = record.new_status(request, boot_id)
        self.status["supervisor_pid"] = os.getpid()
        self.status["supervisor_start_time"] = procfs.start_time("self")
        self._reporter = record.Reporter(request["key"])
        self._timers = timers
        self._report_is_due = False

    def enter(self, phase: Stage) -> None:
        self.status["phase"] = phase
        self.publish()

    def begin(self, name: PhaseName, at_ms: int = 0) -> None:
        """Begin a named phase of starting."""
        phases = self.status["phases"]
        phases.append({"name": name, "start_ms": at_ms or record.now_ms(), "end_ms": 0})

    def end(self, at_ms: int = 0) -> None:
        """End the phase that was begun last."""
        self.status["phases"][-1]["end_ms"] = at_ms or record.now_ms()

    def insert(self, name: PhaseName, start_ms: int, end_ms: int) -> None:
        """Note a phase that is over, before the one that was begun last."""
        phases = self.status["phases"]
        phases.insert(len(phases) - 1, {"name": name, "start_ms": start_ms, "end_ms": end_ms})
        phases[-1]["start_ms"] = end_ms

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
        while not record.write_final(self.status, claim):
            time.sleep(_WRITE_AGAIN_S)

    def tell_the_end(self) -> None:
        for _ in range(_LAST_REPORTS):
            if self._reporter.send():
                return
            time.sleep(_AGAIN_S)
