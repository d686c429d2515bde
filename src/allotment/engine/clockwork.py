"""What becomes due by the clock: time limits, and the end of back-offs."""

from collections.abc import Iterator

from allotment.engine.completion import finish
from allotment.engine.packing import try_over
from allotment.engine.records import JobRecord
from allotment.engine.report import grace_of
from allotment.engine.state import State
from allotment.engine.timers import start_deadline
from allotment.model import events as e
from allotment.model.diagnosis import Diagnosis, Owner, RetryClass
from allotment.model.ids import JobId, TaskIndex
from allotment.model.lifecycle import AttemptState, TaskState
from allotment.model.quantity import Instant, show_millis
from allotment.model.reasons import StopCause
from allotment.model.spec import NEVER

Emit = Iterator[e.AnyEvent]


def due(state: State, job_id: JobId, now: Instant) -> Emit:
    """Return what is due for one job now; nothing when the timer outlived its reason."""
    job = state.jobs.get(job_id)
    if job is None or job.state.finished:
        return
    if job.state.waiting:
        yield from _queue_limit(state, job, now)
        state.enqueue(job, now)
        return
    attempt = job.attempts[-1]
    if attempt.state is AttemptState.STARTING:
        yield from _start_limit(state, job, now)
    elif attempt.state is AttemptState.RUNNING and job.spec.max_run_ms != NEVER:
        yield from _run_limit(job, now)
    elif job.id in state.packed:
        yield from try_over(state, job.id, now)


def _queue_limit(state: State, job: JobRecord, now: Instant) -> Emit:
    limit = job.spec.max_queue_ms
    if limit == NEVER or now < job.queued_at + limit:
        return
    diagnosis = Diagnosis(
        code="queue_time",
        cause=f"It waited {show_millis(now - job.queued_at)}; its max_queue_time is "
        f"{show_millis(limit)}.",
        owner=Owner.USER,
        retry=RetryClass.NEVER,
        advice=f"Allow more: allot clone {job.id} --set max_queue_time=….",
    )
    yield from finish(state, job, e.JobTimedOut(job.id, diagnosis))


def _run_limit(job: JobRecord, now: Instant) -> Emit:
    attempt, limit = job.attempts[-1], job.spec.max_run_ms
    if attempt.ran_until(now) < limit:
        return
    diagnosis = Diagnosis(
        code="run_time",
        cause=f"It ran for {show_millis(limit)}, its max_run_time.",
        owner=Owner.USER,
        retry=RetryClass.NEVER,
        advice=f"Allow more: allot clone {job.id} --set max_run_time=….",
    )
    yield e.StopRequested(
        job.id,
        attempt.no,
        StopCause.RUN_TIME,
        signal=job.spec.checkpoint.signal if job.spec.checkpoint else "TERM",
        grace_ms=grace_of(job),
        diagnosis=diagnosis,
    )


def _start_limit(state: State, job: JobRecord, now: Instant) -> Emit:
    attempt, limits = job.attempts[-1], state.config.limits
    if now < start_deadline(job, limits):
        return
    late = [
        index
        for index in range(len(attempt.slots))
        if attempt.task(TaskIndex(index)).state in (TaskState.PLACED, TaskState.READY)
    ]
    at_barrier = [i for i in late if attempt.task(TaskIndex(i)).state is TaskState.READY]
    waited_for = [i for i in late if i not in at_barrier] or late
    names = ", ".join(_task_name(job, index) for index in waited_for[:5])
    phase = "barrier" if at_barrier and len(at_barrier) < len(late) else "launch"
    diagnosis = Diagnosis(
        code="start_time",
        cause=f"Starting took longer than {show_millis(now - attempt.placed_at)} "
        f"(phase {phase}); still not running: {names}.",
        owner=Owner.PLATFORM,
        retry=RetryClass.PLATFORM,
        advice="See `allot events JOB` for the phases and `allot doctor` for the machine.",
    )
    yield e.StopRequested(
        job.id, attempt.no, StopCause.START_TIME, signal="KILL", diagnosis=diagnosis
    )


def _task_name(job: JobRecord, index: int) -> str:
    role, place = job.spec.role_of(index)
    return f"{role.name}.{place}"
