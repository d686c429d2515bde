"""What the service can read of a node's tasks without its runner.

Whether a runner is still at it is not to be seen from here: a lock taken on another machine
may not show. So a task runs, for us, until its last words say that it ended, or its pilot is
over.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from allotment.backends.local.backend import LocalBackend, stop_cause_in, task_name
from allotment.backends.local.output import read_output
from allotment.backends.local.runner import layout
from allotment.backends.status import report_of, status_from
from allotment.model.diagnosis import Exit
from allotment.model.ids import JobId, TaskKey
from allotment.model.reports import Seen, TaskReport
from allotment.rights.removing import remove
from allotment.service.ports import LogChunk

REPORT, FETCHED, FORGOTTEN, LIMIT = "report.json", "fetched", "forgotten", "limit"
SPARE = 1 << 20
"""Beyond the limit on an output: the line that says what is missing, and a piece begun."""
MOST_PIECES = 8
"""Of one output: where some of its middle is missing, it has two."""


class Book(Protocol):
    """What is known of the tasks of one node."""

    def has(self, key: TaskKey) -> bool:
        """Whether a task was ever launched there."""
        ...

    def ask(self, key: TaskKey, log_bytes: int) -> None:
        """Note that a task is about to be launched there, with a limit on each of its outputs.

        Raises OSError.
        """
        ...

    def unask(self, key: TaskKey) -> None:
        """Note that it was not."""
        ...

    def hear(self, report: TaskReport) -> None:
        """Note what the runner says."""
        ...

    def last_words(self, key: TaskKey) -> TaskReport | None:
        """Return a task's state when its runner last wrote; None before it first did."""
        ...

    async def of_a_lost_pilot(self, keys: Iterable[TaskKey]) -> Sequence[TaskReport]:
        """Return how tasks ended whose pilot is over."""
        ...

    async def read_log(self, key: TaskKey, stream: str, offset: int, size: int) -> LogChunk: ...

    async def forget(self, job: JobId) -> None: ...


class SharedFolder:
    """The node's folder itself, on a disk that the service sees: its runner writes there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def has(self, key: TaskKey) -> bool:
        return (self._of(key) / layout.CLAIM).exists()

    def ask(self, key: TaskKey, log_bytes: int) -> None:
        """The runner's claim says it."""

    def unask(self, key: TaskKey) -> None:
        """The runner's claim says it."""

    def hear(self, report: TaskReport) -> None:
        """The runner wrote it."""

    def last_words(self, key: TaskKey) -> TaskReport | None:
        try:
            status = status_from((self._of(key) / layout.STATUS).read_bytes())
        except OSError:
            return None
        report = report_of(key, status) if status is not None else None
        if report is None or report.seen is not Seen.ENDED:
            return report
        return msgspec.structs.replace(report, stopped_for=stop_cause_in(self._of(key)))

    async def of_a_lost_pilot(self, keys: Iterable[TaskKey]) -> Sequence[TaskReport]:
        return await LocalBackend(self._folder).observe(list(keys))

    async def read_log(self, key: TaskKey, stream: str, offset: int, size: int) -> LogChunk:
        return await LocalBackend(self._folder).read_log(key, stream, offset, size)

    async def forget(self, job: JobId) -> None:
        await LocalBackend(self._folder).forget(job)

    def _of(self, key: TaskKey) -> Path:
        return self._folder / layout.task_dir(task_name(key))


class KeptFolder:
    """What the service keeps of a node whose disk it does not see: reports, and output.

    Output of a task that ended is fetched, so that it is there when the node is not.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def has(self, key: TaskKey) -> bool:
        return self._of(key).exists()

    def ask(self, key: TaskKey, log_bytes: int) -> None:
        folder = self._of(key)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / LIMIT).write_text(f"{log_bytes}")

    def expect(self, job: JobId) -> None:
        """Note that the node may have files of a job. Raises OSError."""
        path = self._folder / layout.TASKS / str(job)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def has_room(self, key: TaskKey, stream: str) -> bool:
        """Whether less is here of an output than its node may have. Raises OSError."""
        folder = self._of(key)
        limit = int((folder / LIMIT).read_text() or 64 << 20) + SPARE
        pieces = [path.stat().st_size for path in folder.glob(f"{stream}.*")]
        return len(pieces) <= MOST_PIECES and sum(pieces) <= limit

    def unask(self, key: TaskKey) -> None:
        remove(None, str(self._of(key)))

    def hear(self, report: TaskReport) -> None:
        path = self._of(report.key) / REPORT
        part = path.with_suffix(".part")
        part.write_bytes(msgspec.json.encode(report))
        part.rename(path)

    def last_words(self, key: TaskKey) -> TaskReport | None:
        try:
            return msgspec.json.decode((self._of(key) / REPORT).read_bytes(), type=TaskReport)
        except (OSError, msgspec.DecodeError):
            return None

    async def of_a_lost_pilot(self, keys: Iterable[TaskKey]) -> Sequence[TaskReport]:
        return [self._end(key) for key in keys if self.has(key)]

    def _end(self, key: TaskKey) -> TaskReport:
        last = self.last_words(key)
        if last is not None and last.seen is Seen.ENDED:
            return last
        return TaskReport(key, Seen.ENDED, last.pid if last else 0, exit=Exit(lost=True))

    async def read_log(self, key: TaskKey, stream: str, offset: int, size: int) -> LogChunk:
        return read_output(self._of(key), stream, offset, size)

    def is_fetched(self, key: TaskKey) -> bool:
        """Whether all output of a task is here."""
        return (self._of(key) / FETCHED).exists()

    def unfetched(self) -> list[TaskKey]:
        """Return the tasks that ended, and whose output is not all here."""
        found: list[TaskKey] = []
        for path in (self._folder / layout.TASKS).glob(f"*/*/*/{REPORT}"):
            if (path.parent / FETCHED).exists():
                continue
            try:
                report = msgspec.json.decode(path.read_bytes(), type=TaskReport)
            except (OSError, msgspec.DecodeError):
                continue
            if report.seen is Seen.ENDED:
                found.append(report.key)
        return found

    def keep_output(self, key: TaskKey, stream: str, data: bytes, start: int) -> None:
        """Add a piece of output, in a file of its own where some before it is missing."""
        folder = self._of(key)
        for path in (folder / f"{stream}.log", *folder.glob(f"{stream}.tail.*")):
            begins = int(path.suffix[1:]) if path.suffix != ".log" else 0
            if (begins + path.stat().st_size if path.exists() else 0) == start:
                break
        else:
            path = folder / f"{stream}.tail.{start}"
        with path.open("ab") as file:
            file.write(data)

    def set_fetched(self, key: TaskKey) -> None:
        """Note that all output of a task is here."""
        (self._of(key) / FETCHED).touch()

    async def forget(self, job: JobId) -> None:
        """Remove what is here of a job, and note that the node is to do so."""
        note = self._folder / FORGOTTEN / str(job)
        note.parent.mkdir(mode=0o700, exist_ok=True)
        note.touch()  # First: what is here says that there may be something on the node.
        remove(None, str(self._folder / layout.TASKS / str(job)))

    def forgotten(self) -> tuple[JobId, ...]:
        """Return the jobs of which the node may still have files."""
        folder = self._folder / FORGOTTEN
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return tuple(JobId(int(name)) for name in sorted(names) if name.isdecimal())

    def set_gone(self, jobs: Iterable[JobId]) -> None:
        """Note that the node has no file of these any more."""
        for job in jobs:
            (self._folder / FORGOTTEN / str(job)).unlink(missing_ok=True)

    def _of(self, key: TaskKey) -> Path:
        return self._folder / layout.task_dir(task_name(key))
