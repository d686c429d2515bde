"""What nodes do with tasks that were given to their engines and have not begun."""

import msgspec

from allotment.model.ids import AttemptNo, TaskIndex, TaskKey
from allotment.model.lifecycle import TaskState
from allotment.service.ports import Backend, Preparing
from allotment.service.views import JobView, TaskView

YET_TO_BEGIN = frozenset({TaskState.PLACED, TaskState.READY})


def with_preparing(job: JobView, backend: Backend) -> JobView:
    """Return a job with what its nodes do before its tasks begin."""
    if not isinstance(backend, Preparing) or not job.attempts or job.attempts[-1].ended_at:
        return job
    last = job.attempts[-1]

    def told(task: TaskView) -> TaskView:
        key = TaskKey(job.id, AttemptNo(last.no), TaskIndex(task.index))
        return msgspec.structs.replace(task, preparing=backend.preparing(key))

    tasks = tuple(told(task) if task.state in YET_TO_BEGIN else task for task in last.tasks)
    last = msgspec.structs.replace(last, tasks=tasks)
    return msgspec.structs.replace(job, attempts=(*job.attempts[:-1], last))
