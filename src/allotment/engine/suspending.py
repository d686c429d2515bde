"""How a gang is suspended, task by task: what a backend tells of it."""

from collections.abc import Iterator

from allotment.core.trial import Trial
from allotment.engine.keeping import present_suspension, stands_still
from allotment.engine.records import AttemptRecord, JobRecord
from allotment.engine.state import State
from allotment.model import events as e
from allotment.model.ids import JobId, TaskIndex
from allotment.model.lifecycle import TaskState
from allotment.model.reports import OfferReport, TaskReport
from allotment.model.suspension import Suspension


def offered(state: State, report: OfferReport) -> Iterator[e.AnyEvent]:
    """Note once that an attempt gives its devices' memory back while it is suspended."""
    job = state.jobs.get(report.job)
    attempt = job.attempt if job is not None else None
    if attempt is not None and attempt.no == report.attempt and not attempt.offers:
        yield e.MemoryOffered(report.job, report.attempt)


def heard_suspended(
    state: State, job: JobRecord, attempt: AttemptRecord, report: TaskReport
) -> Iterator[e.AnyEvent]:
    """Note how a task of a suspended gang is suspended, the first time it is told.

    If the last task is heard of, and the job for which it was does not get its place by it,
    that is given up: the gang goes on.
    """
    how, index = report.suspension, report.key.index
    if how is None or how.no != attempt.suspensions or not stands_still(attempt):
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
    wanted_by = attempt.suspended_for
    if wanted_by is not None and _in_vain(state, wanted_by):
        yield e.ReservedPlaceDropped(wanted_by)


def _in_vain(state: State, job: JobId) -> bool:
    """Whether a reserved place is not there, though all that was awaited for it is known."""
    cluster = state.cluster
    place = cluster.reserved.get(job)
    if place is None:
        return False
    for other in cluster.placed.frozen:
        attempt = state.jobs[other].attempts[-1]
        if attempt.suspended_for == job and not _is_known(attempt):
            return False
    with Trial(cluster) as trial:
        for victim in place.victims:
            if victim not in cluster.placed.frozen:
                trial.drop(victim)
        return not cluster.ledger.settled(place.slots)


def _is_known(attempt: AttemptRecord) -> bool:
    """Whether it was told of each task that has not ended how it is suspended."""
    return all(
        present_suspension(attempt, index) is not None
        or attempt.task(TaskIndex(index)).state is TaskState.ENDED
        for index in range(len(attempt.slots))
    )
