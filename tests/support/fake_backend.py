"""A backend without processes: its tasks do what a script says, at the loop's own pace.

It passes the contract suite of all backends, and a service of tests runs on it. A task's
command is its script: `fake 0.2 exit 3` runs for 0.2 s and ends with code 3, `fake refused` is
not taken; anything else ends at once with 0. Nothing survives the service.
"""

import asyncio
import re
from collections.abc import Callable, Sequence

from allotment.model.diagnosis import Exit
from allotment.model.engines import Ability
from allotment.model.ids import JobId, TaskKey
from allotment.model.quantity import Millis
from allotment.model.reasons import StopCause
from allotment.model.reports import Seen, TaskReport
from allotment.service.ports import GangLaunch, LogChunk, Refused, Report, TaskLaunch

SCRIPT = re.compile(r"fake(?: (?P<seconds>[0-9.]+|forever))?(?: exit (?P<code>\d+))?")
REFUSED = "fake refused"
SIGNALS = {"TERM": 15, "KILL": 9, "INT": 2, "USR1": 10, "USR2": 12, "HUP": 1}


class FakeTask:
    """One task's life."""

    def __init__(
        self, task: TaskLaunch, sink: Callable[[Report], None], *, at_barrier: bool
    ) -> None:
        self.task = task
        self._at_barrier = at_barrier
        self._sink = sink
        found = SCRIPT.fullmatch(task.argv[-1])
        script = found.groupdict() if found else {}
        seconds = script.get("seconds") or "0"
        self._left: float | None = None if seconds == "forever" else float(seconds)
        self._code = int(script.get("code") or 0)
        self._timer: asyncio.TimerHandle | None = None
        self._began = 0.0
        self.report = TaskReport(task.key, Seen.READY)

    def begin(self) -> None:
        """Start: stop at the barrier, or run at once."""
        if self._at_barrier:
            self._say(TaskReport(self.task.key, Seen.READY))
        else:
            self.go()

    def go(self) -> None:
        """Pass the barrier."""
        if self.report.seen is Seen.READY:
            self._say(TaskReport(self.task.key, Seen.RUNNING, pid=1))
            self.thaw()

    def thaw(self) -> None:
        if self.report.seen is Seen.RUNNING and self._timer is None and self._left is not None:
            loop = asyncio.get_running_loop()
            self._began = loop.time()
            self._timer = loop.call_later(self._left, self._end, Exit(code=self._code))

    def freeze(self) -> None:
        if self._timer is not None and self._left is not None:
            self._timer.cancel()
            self._timer = None
            self._left -= asyncio.get_running_loop().time() - self._began

    def stop(self, signal: str, cause: StopCause | None) -> None:
        """End by a signal."""
        if self._timer is not None:
            self._timer.cancel()
        self._end(Exit(signal=SIGNALS.get(signal, 15)), cause)

    def _end(self, exit_: Exit, cause: StopCause | None = None) -> None:
        if self.report.seen is not Seen.ENDED:
            key, pid = self.task.key, self.report.pid
            self._say(TaskReport(key, Seen.ENDED, pid, exit=exit_, stopped_for=cause))

    def _say(self, report: TaskReport) -> None:
        self.report = report
        asyncio.get_running_loop().call_soon(self._sink, report)


class FakeBackend:
    """Runs scripts in memory."""

    name = "fake"
    abilities = frozenset({Ability.SUSPENDS, Ability.DIVIDES, Ability.PINS})

    def __init__(self) -> None:
        self.tasks: dict[TaskKey, FakeTask] = {}
        self._sink: Callable[[Report], None] = lambda report: None

    async def start(self, sink: Callable[[Report], None]) -> None:
        self._sink = sink

    def _hear(self, report: Report) -> None:
        """Hand a report to whoever listens now: a task may outlive its first listener."""
        self._sink(report)

    async def launch(self, gang: GangLaunch) -> Refused:
        refused: dict[TaskKey, str] = {}
        for each in gang.tasks:
            if each.argv[-1] == REFUSED:
                refused[each.key] = f"{each.binding.node} does not take it"
            elif each.key not in self.tasks:
                task = FakeTask(each, self._hear, at_barrier=gang.at_barrier)
                self.tasks[each.key] = task
                task.begin()
        return refused

    async def open_barrier(self, keys: Sequence[TaskKey]) -> None:
        for key in keys:
            if key in self.tasks:
                self.tasks[key].go()

    async def stop(
        self, key: TaskKey, signal: str, grace_ms: Millis, cause: StopCause | None = None
    ) -> None:
        if key in self.tasks:
            self.tasks[key].stop(signal, cause)

    async def freeze(self, keys: Sequence[TaskKey], no: int) -> None:
        for key in keys:
            if key in self.tasks:
                self.tasks[key].freeze()

    async def thaw(self, key: TaskKey) -> None:
        if key in self.tasks:
            self.tasks[key].thaw()

    async def highest_job(self) -> JobId:
        return max((key.job for key in self.tasks), default=JobId(0))

    async def observe(self, keys: Sequence[TaskKey]) -> Sequence[TaskReport]:
        return [self.tasks[key].report for key in keys if key in self.tasks]

    async def read_log(self, key: TaskKey, stream: str, offset: int, size: int) -> LogChunk:
        return LogChunk(b"", max(0, offset))

    async def forget(self, job: JobId) -> None:
        for key in [key for key in self.tasks if key.job == job]:
            del self.tasks[key]

    async def close(self) -> None:
        self._sink = lambda report: None
