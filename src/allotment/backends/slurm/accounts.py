"""What Slurm's accounts say of the devices that tasks used, some seconds after an end.

Slurm counts that from 23.02 on, where `AutoDetect` finds devices by NVML or RSMI and
`AccountingStorageTRES` has gres/gpu. Where it does not count, nobody is asked. What is yet to
be asked for is kept as files, so that a new start of the service goes on with it.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import monotonic

from allotment.backends.slurm.accounts_read import Accounted
from allotment.backends.slurm.calls import Calls
from allotment.model.diagnosis import GpuUse
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey
from allotment.model.reports import UseReport
from allotment.service.ports import Report

ASK_EVERY_S = 10.0
COUNTS_S = 600.0
"""How often Slurm is asked whether it counts, as long as it does not."""
MOST_AT_ONCE = 200
"""Jobs in one question."""
MOST_OPEN = 20_000
"""While slurmdbd is away, of no more tasks it is kept that they are to be asked for."""
NEVER = float("inf")
GIVEN_UP_S = 600.0
"""Accounts that answer, and have nothing of an ended job for so long, will have nothing."""


class GpuAccounts:
    """Asks for what ended tasks used. `folder` remembers of which that is not known yet."""

    def __init__(self, slurm: Calls, folder: Path, sink: Callable[[Report], None]) -> None:
        self._slurm, self._folder, self._sink = slurm, folder, sink
        self._open: dict[TaskKey, tuple[str, float]] = {}
        """The Slurm job of a task, and since when it is asked for and was not there."""
        self._counts = False
        self._looked = -COUNTS_S
        self._asked = 0.0

    def start(self) -> None:
        """Go on with what an earlier service was to ask for."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for path in self._folder.iterdir():
            with contextlib.suppress(OSError, ValueError):
                job, attempt, index = (int(part) for part in path.name.split("."))
                key = TaskKey(JobId(job), AttemptNo(attempt), TaskIndex(index))
                # One left empty by a loss of power would have the whole question refused.
                self._open[key] = (str(int(path.read_text())), NEVER)

    def ended(self, key: TaskKey, job: str) -> None:
        """Take note that a task with devices has ended."""
        if not self._counts or len(self._open) >= MOST_OPEN:
            return
        self._open[key] = (job, NEVER)
        with contextlib.suppress(OSError):  # A full disk: it is asked for, unless we end first.
            self._path(key).write_text(job)

    async def ask(self) -> None:
        """Ask for what is not known yet, if it is time to. Raises BackendError."""
        if not self._counts and monotonic() - self._looked >= COUNTS_S:
            self._looked = monotonic()
            self._counts = await self._slurm.counts_gpus()
        if not self._open or monotonic() - self._asked < ASK_EVERY_S:
            return
        self._asked = monotonic()
        jobs = list(dict.fromkeys(job for job, _ in self._open.values()))[:MOST_AT_ONCE]
        found, now = await self._slurm.accounted(jobs), monotonic()
        for key, use in known_of(self._open, found, now):
            if use is not None:
                self._sink(UseReport(key, use))
            self._open.pop(key)
            self._path(key).unlink(missing_ok=True)
        for key, (job, since) in self._open.items():
            if job in jobs:
                self._open[key] = (job, min(since, now))

    def _path(self, key: TaskKey) -> Path:
        return self._folder / f"{key.job}.{key.attempt}.{key.index}"


def known_of(
    asked: Mapping[TaskKey, tuple[str, float]], found: Mapping[str, Accounted], now: float
) -> Iterable[tuple[TaskKey, GpuUse | None]]:
    """Return of which tasks the accounts are closed, and what they say; None for nothing."""
    closed: list[tuple[TaskKey, GpuUse | None]] = []
    for key, (job, since) in asked.items():
        told = found.get(job)
        if told is not None and told.is_closed:
            closed.append((key, told.gpu))
        elif now - since > GIVEN_UP_S:
            closed.append((key, None))
    return closed
