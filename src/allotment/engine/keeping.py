"""What a suspended gang keeps of its devices' memory, task by task.

It counts as keeping all that it asked for until a backend has measured that less is left.
"""

from collections.abc import Sequence

from allotment.engine.records import AttemptRecord
from allotment.model.ids import TaskIndex
from allotment.model.quantity import Resources
from allotment.model.suspension import Suspension


def present_suspension(attempt: AttemptRecord, index: int) -> Suspension | None:
    """Return how a task is suspended now; None where it is not, or where no report came yet."""
    how = attempt.task(TaskIndex(index)).suspension
    is_present = how is not None and how.no == attempt.suspensions and stands_still(attempt)
    return how if is_present else None


def kept_by(attempt: AttemptRecord, needs: Sequence[Resources]) -> tuple[int, ...]:
    """Return what each task keeps of each of its devices; empty where none gave any back.

    Of a gang that runs, what it is expected to keep: what it kept when it was suspended last.
    """
    if not attempt.suspended_at:
        return _expected(attempt, needs)
    found = [present_suspension(attempt, index) for index in range(len(needs))]
    if not any(how is not None and how.frees for how in found):
        return ()
    return tuple(
        need.gpu_memory if how is None else how.keeps(need.gpu_memory)
        for how, need in zip(found, needs, strict=True)
    )


def _expected(attempt: AttemptRecord, needs: Sequence[Resources]) -> tuple[int, ...]:
    """Return what a gang that runs would keep: nothing if it offers that, and was not tried."""
    before = [attempt.task(TaskIndex(index)).suspension for index in range(len(needs))]
    known = any(how is not None for how in before)
    if not any(how is not None and how.frees for how in before) and (
        known or not attempt.offers
    ):
        return ()
    return tuple(
        (need.gpu_memory if known else 0) if how is None else how.keeps(need.gpu_memory)
        for how, need in zip(before, needs, strict=True)
    )


def stands_still(attempt: AttemptRecord) -> bool:
    """Whether an attempt is suspended, and does not run beside another."""
    return bool(attempt.suspended_at) and attempt.packing is None
