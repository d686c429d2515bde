"""How a job ended: the exit code it stands for, and the words for a person."""

from allotment.cli.show_attempts import advice_for
from allotment.cli.words import plain
from allotment.model.diagnosis import Exit
from allotment.model.lifecycle import JobState
from allotment.model.quantity import show_millis
from allotment.service.views import JobView

FAILED = 1


def exit_code(job: JobView) -> int:
    """Return the exit code that stands for a finished job, as a shell would.

    0 for success; for a failed one that of the task that failed first: its exit code, or
    128 + the signal that ended it; 1 for everything else.
    """
    if job.state is JobState.SUCCEEDED:
        return 0
    if job.state is not JobState.FAILED or not job.attempts:
        return FAILED
    failed = [
        (task.ended_at, task.index, task.exit)
        for task in job.attempts[-1].tasks
        if task.exit is not None and not task.exit.ok
    ]
    return _code(min(failed, key=lambda found: found[:2])[2]) if failed else FAILED


def _code(ended: Exit) -> int:
    if ended.signal is not None:
        return 128 + ended.signal
    return ended.code or FAILED


def ending(job: JobView) -> list[str]:
    """Return how a finished job ended, and what to do about it."""
    row = job.row
    head = f"job {row.id} ({row.name}) {plain(row.state)}"
    if row.started_at:
        head += f" after {show_millis(row.ran_ms)}"
    lines = [head]
    if job.diagnosis is not None and row.state is not JobState.SUCCEEDED:
        lines[0] += f": {job.diagnosis.cause}"
        if job.diagnosis.advice:
            lines.append(advice_for(job.diagnosis, row.id))
        lines.append(f"More: allot show {row.id}")
    if row.state is JobState.SUCCEEDED and (save := job.spec.get("save")):
        waits = f"its outputs become a version of {save} now: allot show {row.id}"
        trouble = job.unsaved and f"its outputs are not saved: {job.unsaved}"
        lines.append(trouble or (f"saved {job.saved}" if job.saved else waits))
    return lines
