"""Watches where running jobs report their checkpoints.

The contract: a job replaces the file $ALLOT_CHECKPOINT_FILE, as a whole, by
`{"path": …, "step": …, "progress": 0..1}` after each good checkpoint.
"""

from pathlib import Path

import msgspec

from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model.ids import JobId, TaskIndex, TaskKey
from allotment.model.lifecycle import AttemptState
from allotment.model.reports import CheckpointReport
from allotment.service.launch import Folders

MOST_BYTES = 64 * 1024


class Reported(msgspec.Struct, frozen=True):
    """What a job writes."""

    path: str
    step: int = 0
    progress: float = 0.0


class CheckpointWatch:
    """Looks at the files of running jobs; reads one only when it changed."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._seen: dict[JobId, int] = {}

    def look(self, state: State) -> list[CheckpointReport]:
        """Give what is new. O(running jobs), one stat each."""
        live = {job_id for job_id, gang in state.cluster.gangs.items() if not gang.suspended}
        for gone in self._seen.keys() - live:
            del self._seen[gone]
        found = (self.look_at(state.jobs[job_id]) for job_id in live)
        return [report for report in found if report is not None]

    def look_at(self, job: JobRecord) -> CheckpointReport | None:
        """Give a job's newest checkpoint if it was not seen yet and is readable."""
        attempt = job.attempt
        if attempt is None or attempt.state is AttemptState.STARTING:
            return None
        file = Path(self._folders.checkpoint_file(job.id, job.spec))
        try:
            found = file.stat()
            known = self._seen.get(job.id)
            if found.st_mtime_ns == known or found.st_mtime_ns < attempt.placed_at * 1_000_000:
                return None
            self._seen[job.id] = found.st_mtime_ns
            with file.open("rb") as content:
                data = content.read(MOST_BYTES)
            reported = msgspec.json.decode(data, type=Reported, strict=False)
        except (OSError, msgspec.DecodeError):
            return None
        progress = min(1000, max(0, round(reported.progress * 1000)))
        key = TaskKey(job.id, attempt.no, TaskIndex(0))
        return CheckpointReport(key, reported.path[:4096], reported.step, progress)
