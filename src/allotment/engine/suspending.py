"""How a gang is suspended, task by task, and what that leaves it of its devices' memory.

It counts as keeping all that it asked for until a backend has measured that less is left.
"""

from collections.abc import Iterator, Sequence

from allotment.engine.records import AttemptRecord, JobRecord
from allotment.model import events as e
from allotment.model.ids import TaskIndex
from allotment.model.quantity import Resources
from allotment.model.reports import TaskReport
from allotment.model.suspension import Suspension


def heard_suspended(
    job: JobRecord, attempt: AttemptRecord, report: TaskReport
) -> Iterator[e.TaskSuspended]:
    """Note how a task of a suspended gang is suspended, the first time it is told."""
    how, index = report.suspension, report.key.index
    if how is None or how.no != attempt.suspensions or not _stands_still(attempt):
        return
    if attempt.stop is not None:
        return  # Nothing more is lent of what has to end.
    known = attempt.task(index).suspension
    if known is not None and known.no == how.no:
        return
    devices = len(attempt.slots[index].devices)
    if len(how.kept) != devices or any(mib < 0 for mib in how.kept):
        how = Suspension(how.no, how.grade)
    yield e.TaskSuspended(job.id, attempt.no, index, how)


def present_suspension(attempt: AttemptRecord, index: int) -> Suspension | None:
    """Return how a task is suspended now; None where it is not, or nobody said yet."""
    how = attempt.task(TaskIndex(index)).suspension
    is_present = how is not None and how.no == attempt.suspensions and _stands_still(attempt)
    return how if is_present else None


def kept_by(attempt: AttemptRecord, needs: Sequence[Resources]) -> tuple[int, ...]:
    """Return what each task keeps of each of its devices; empty where none gave any back."""
    found = [present_suspension(attempt, index) for index in range(len(needs))]
    if not any(how is not None and how.frees for how in found):
        return ()
    return tuple(
        need.gpu_memory if how is None else how.keeps(need.gpu_memory)
        for how, need in zip(found, needs, strict=True)
    )


def _stands_still(attempt: AttemptRecord) -> bool:
    """Whether an attempt is suspended, and does not run beside another."""
    return bool(attempt.suspended_at) and attempt.packing is None
