"""Watches where running jobs report their checkpoints.

The contract: a job replaces the file $ALLOT_CHECKPOINT_FILE, as a whole, by
`{"path": …, "step": …, "progress": 0..1}` after each good checkpoint. It may hold numbers
nobody can keep: what cannot be kept is as good as not there (and see `job_reports.py`).
"""

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model.quantity import Instant, WallTime
from allotment.model.reports import CheckpointReport
from allotment.service.job_files import JobFiles
from allotment.service.launch import Folders
from allotment.service.workspace import Changed
from allotment.service.workspaces import Workspaces

MOST_BYTES = 64 * 1024


class Reported(msgspec.Struct, frozen=True):
    """The file that a job writes. Steps are in the range that every store can keep."""

    path: Annotated[str, Meta(pattern=r"\A[^\x00]*\Z")]
    step: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    progress: float = 0.0


class CheckpointWatch:
    """Looks at the files of running jobs; reads one only when it changed."""

    def __init__(self, workspaces: Workspaces, wall: Callable[[Instant], WallTime]) -> None:
        def file_of(folders: Folders, job: JobRecord) -> str:
            return folders.checkpoint_file(job.id, job.spec)

        self._files = JobFiles(workspaces, file_of, MOST_BYTES, wall)

    async def look(self, state: State) -> list[CheckpointReport]:
        """Return the checkpoints that are new. O(running jobs), one stat each."""
        return _reports(await self._files.look(state))

    def look_now(self, job: JobRecord) -> list[CheckpointReport] | None:
        """Return a job's newest checkpoint, if it was not seen yet; None if that takes long."""
        changed = self._files.look_now(job)
        return None if changed is None else _reports(changed)

    async def last_of(self, job: JobRecord) -> list[CheckpointReport]:
        """Return the newest checkpoint of a job that ends, if it was not seen yet."""
        return _reports(await self._files.last_of(job))

    def close(self) -> None:
        """Stop looking, without waiting for folders that do not answer."""
        self._files.close()


def _reports(found: Sequence[Changed]) -> list[CheckpointReport]:
    return [report for changed in found if (report := _report(changed)) is not None]


def _report(changed: Changed) -> CheckpointReport | None:
    try:
        reported = msgspec.json.decode(changed.data, type=Reported, strict=False)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    progress = round(min(1.0, max(0.0, reported.progress)) * 1000)
    return CheckpointReport(changed.key, reported.path[:4096], reported.step, progress)
