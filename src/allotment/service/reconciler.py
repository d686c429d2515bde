"""What the backend says at the start vs what the ledger says.

Tasks that ran on while the service was away are adopted; ends that nobody heard are heard
now; what the ledger thinks started but the backend never saw is launched (again), or given
up as lost when it ought to have been seen.
"""

import structlog

from allotment.engine.react import pending_effects
from allotment.engine.state import State
from allotment.model.diagnosis import Exit
from allotment.model.ids import TaskKey
from allotment.model.lifecycle import AttemptState, TaskState
from allotment.model.reports import Seen, TaskReport
from allotment.service.pipeline import Pipeline
from allotment.service.ports import Backend

log = structlog.get_logger("allot.service")


async def reconcile(pipeline: Pipeline, backend: Backend) -> None:
    """Make the state agree with the backend, then carry out whatever is missing."""
    state = pipeline.state
    keys = [key for job in state.jobs.values() for key in job.task_keys()]
    reports = {report.key: report for report in await backend.observe(keys)}
    for key in keys:
        report = reports.get(key)
        if report is None and _should_be_known(state, key):
            report = TaskReport(key, Seen.ENDED, exit=Exit(lost=True, platform_error=""))
        if report is None:
            continue
        try:
            pipeline.hear(report)
        except Exception:
            # Better one job that an administrator has to cancel than no service.
            log.exception("what became of a task is not understood", task=str(key))
    pipeline.flush()
    pipeline.dispatcher.send(pending_effects(state, pipeline.clock.now()))


def _should_be_known(state: State, key: TaskKey) -> bool:
    """Whether a task the backend does not know is lost, rather than not yet launched."""
    job = state.jobs.get(key.job)
    attempt = job.attempt if job else None
    if attempt is None or attempt.no != key.attempt:
        return False
    task = attempt.task(key.index)
    if task.state is TaskState.ENDED:
        return False
    return task.state is not TaskState.PLACED or attempt.state is AttemptState.STOPPING
