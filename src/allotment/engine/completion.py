"""When an attempt is decided, and what follows: retry, give up, or be done.

A role decides its job when `min_failed` of its tasks failed, or when `min_succeeded` of
them, asked for by name, succeeded. Without such a decision a job is done when all its
tasks are. Retries go by cause: evictions never count; the platform's faults are retried up
to a cap of their own; what cannot help is never retried; the rest up to `retry`.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from allotment.core.preemption.eviction import eviction_mode
from allotment.engine.records import AttemptRecord, JobRecord
from allotment.engine.state import State
from allotment.model import events as e
from allotment.model.dependencies import alternatives
from allotment.model.diagnosis import Diagnosis, Owner, RetryClass
from allotment.model.ids import TaskIndex
from allotment.model.lifecycle import TaskState
from allotment.model.quantity import NO_TIME, Instant, Millis
from allotment.model.reasons import StopCause
from allotment.model.spec import EndKind, GiveWay

SUCCEEDED: Final = e.Outcome.SUCCEEDED


class Verdict(StrEnum):
    """What the tasks' ends say about the attempt."""

    OPEN = "open"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


def judge(job: JobRecord, attempt: AttemptRecord) -> Verdict:
    """Read the verdict off the tasks that ended. O(tasks)."""
    first = 0
    all_ended = True
    for role in job.running_as.roles:
        failed = succeeded = 0
        for index in range(first, first + role.count):
            task = attempt.tasks.get(TaskIndex(index))
            if task is None or task.state is not TaskState.ENDED or task.exit is None:
                all_ended = False
            elif task.exit.ok:
                succeeded += 1
            else:
                failed += 1
        first += role.count
        if 0 < role.completion.min_failed <= failed:
            return Verdict.FAILED
        wanted = role.completion.min_succeeded
        if wanted is not None and 0 < wanted <= succeeded:
            return Verdict.SUCCEEDED
    return Verdict.SUCCEEDED if all_ended else Verdict.OPEN


def all_gone(attempt: AttemptRecord) -> bool:
    """Whether no task of the attempt is left."""
    return len(attempt.tasks) == len(attempt.slots) and all(
        task.state is TaskState.ENDED for task in attempt.tasks.values()
    )


def scale_down(job: JobRecord, attempt: AttemptRecord) -> Iterator[e.AnyEvent]:
    """Note that a gang has shrunk, once the last of its surplus tasks is gone."""
    if attempt.shrink is None:
        return
    surplus = range(attempt.shrink.tasks, len(attempt.slots))
    if all(attempt.task(TaskIndex(i)).state is TaskState.ENDED for i in surplus):
        yield e.AttemptShrunk(job.id, attempt.no, attempt.shrink.tasks)


def first_failure(attempt: AttemptRecord) -> tuple[TaskIndex, Diagnosis] | None:
    """Find the failure that came first: later ones are often only its echo."""
    failures = [
        (task.held_at or task.ended_at, index, task.diagnosis)
        for index, task in attempt.tasks.items()
        if task.diagnosis is not None
        and task.exit is not None
        and not task.exit.ok
        and not attempt.is_surplus(index)
    ]
    if not failures:
        return None
    _, index, diagnosis = min(failures, key=lambda failure: failure[:2])
    return index, diagnosis


def held_failure(attempt: AttemptRecord) -> Diagnosis | None:
    """Find the failure that a task was kept for: it had come before anybody said stop."""
    failure = first_failure(attempt)
    if failure is None or not attempt.task(failure[0]).held_at:
        return None
    return failure[1]


class GangEnd(msgspec.Struct, frozen=True, gc=False):
    """How a gang ended that was watched as one."""

    ok: bool
    diagnosis: Diagnosis | None = None
    lost_ms: Millis | None = None


LET_GO = (StopCause.CANCELLED, StopCause.RUN_TIME)
"""A job told to stop for one of these that had failed is let go: it is not tried again."""


ITS_OWN = (None, StopCause.RUN_TIME)
"""Why an attempt ended that ended by itself."""


def asks_again(job: JobRecord, attempt: AttemptRecord) -> bool:
    """Whether a script ended with an exit code that asks for another attempt."""
    script = attempt.task(TaskIndex(0)).exit
    codes = job.spec.batch.requeue_on if job.spec.batch is not None else ()
    return script is not None and script.code in codes


def succeeded(job: JobRecord, now: Instant) -> tuple[e.AnyEvent, e.AnyEvent]:
    """End the attempt of a job that came to its end, and the job with it."""
    return _ended(job, SUCCEEDED, now), e.JobSucceeded(job.id)


def conclude(
    state: State, job: JobRecord, now: Instant, end: GangEnd | None = None
) -> Iterator[e.AnyEvent]:
    """End the attempt whose last task is gone, and say what becomes of the job.

    What its tasks say counts, unless the gang was watched as one: then `end` does.
    """
    attempt = job.attempts[-1]
    stop = attempt.stop
    cause = stop.cause if stop else None
    if cause is None and end is not None and end.ok:
        yield from succeeded(job, now)
    elif cause in LET_GO and (failed := held_failure(attempt)) is not None:
        yield _ended(job, e.Outcome.FAILED, now, failed, end)
        yield from finish(state, job, e.JobFailed(job.id, failed))
    elif cause is StopCause.CANCELLED:
        yield _ended(job, e.Outcome.CANCELLED, now, end=end)
        yield from finish(state, job, e.JobCancelled(job.id, by=stop.by if stop else ""))
    elif cause in ITS_OWN and asks_again(job, attempt):
        failure = first_failure(attempt)
        yield _ended(job, e.Outcome.FAILED, now, failure[1] if failure else None, end)
        wait = state.config.limits.backoff_first_ms
        yield e.JobRequeued(job.id, cause="asked", not_before=Instant(now + wait))
    elif cause is StopCause.RUN_TIME and stop and stop.diagnosis:
        yield _ended(job, e.Outcome.TIMED_OUT, now, stop.diagnosis, end)
        yield from finish(state, job, e.JobTimedOut(job.id, stop.diagnosis))
    elif cause is StopCause.EVICTED:
        yield from _evicted(state, job, now, end)
    elif cause in (StopCause.START_TIME, StopCause.NODE_LOST) and stop and stop.diagnosis:
        yield from _failed(state, job, stop.diagnosis, now, end)
    elif cause is StopCause.ROLES_SUCCEEDED or (
        cause is None and end is None and judge(job, attempt) is Verdict.SUCCEEDED
    ):
        yield from succeeded(job, now)
    elif end is not None:
        yield from _failed(state, job, end.diagnosis or UNEXPLAINED, now, end)
    else:
        failure = first_failure(attempt)
        yield from _failed(state, job, failure[1] if failure else UNEXPLAINED, now)


def _evicted(
    state: State, job: JobRecord, now: Instant, end: GangEnd | None
) -> Iterator[e.AnyEvent]:
    """Let an evicted job wait again, unless it would rather be over."""
    way = eviction_mode(state.cluster, state.cluster.gangs[job.id])
    yield _ended(job, e.Outcome.EVICTED, now, end=end)
    if way is GiveWay.CANCEL:
        yield from finish(state, job, e.JobCancelled(job.id, by="eviction"))
    else:
        yield e.JobRequeued(job.id, cause="evicted")


UNEXPLAINED = Diagnosis(
    code="unexplained",
    cause="A task failed and left no trace of why.",
    owner=Owner.USER,
    retry=RetryClass.UNKNOWN,
    advice="Look at its output: allot logs JOB.",
)


def _failed(
    state: State,
    job: JobRecord,
    diagnosis: Diagnosis,
    now: Instant,
    end: GangEnd | None = None,
) -> Iterator[e.AnyEvent]:
    yield _ended(job, e.Outcome.FAILED, now, diagnosis, end)
    limits = state.config.limits
    tried, allowed, cause = job.used_retries, _retries(job), "retry"
    if diagnosis.retry is RetryClass.PLATFORM:
        tried, allowed, cause = job.platform_retries, limits.platform_retries, "platform"
    if diagnosis.retry is RetryClass.NEVER or tried >= allowed:
        yield from finish(state, job, e.JobFailed(job.id, diagnosis))
        return
    wait = min(limits.backoff_most_ms, limits.backoff_first_ms << min(tried, 40))
    yield e.JobRequeued(job.id, cause=cause, not_before=Instant(now + wait))


def _retries(job: JobRecord) -> int:
    """Return the retries allowed: the failed role's own number, or the job's."""
    failure = first_failure(job.attempts[-1])
    if failure is not None:
        role, _ = job.spec.role_of(failure[0])
        if role.retry is not None:
            return role.retry
    return job.spec.retry


def _ended(
    job: JobRecord,
    outcome: e.Outcome,
    now: Instant,
    diagnosis: Diagnosis | None = None,
    end: GangEnd | None = None,
) -> e.AttemptEnded:
    attempt = job.attempts[-1]
    lost = NO_TIME
    if end is not None and end.lost_ms is not None:
        # No job loses more than was done: one that never got to run, nothing.
        lost = Millis(min(end.lost_ms, attempt.ran_until(now)))
    elif outcome is not SUCCEEDED and attempt.started_at:
        lost = Millis(max(0, min(attempt.ran_until(now), now - attempt.saved_at)))
    return e.AttemptEnded(job.id, attempt.no, outcome, diagnosis, lost)


def finish(state: State, job: JobRecord, event: e.AnyEvent) -> Iterator[e.AnyEvent]:
    """End a job without success, and with it those that needed that and will not see it."""
    yield event
    # A list, not recursion: a chain of jobs may be long.
    todo = _needing(state, job)
    while todo:
        other, missed = todo.pop()
        if other.state.waiting:
            yield e.JobFailed(other.id, _missed(other, missed))
            todo += _needing(state, other)


def _needing(state: State, job: JobRecord) -> list[tuple[JobRecord, JobRecord]]:
    """Return the jobs that need the success of one, the first last, each with that one."""
    dependents = (state.jobs[other] for other in state.dependents.get(job.id, ()))
    found = [
        other
        for other in dependents
        if any(
            need.job == job.id
            and need.end is EndKind.SUCCESS
            and all(map(state.is_lost, alternatives(other.spec.depends_on, need)))
            for need in other.spec.depends_on
        )
    ]
    return [(other, job) for other in sorted(found, key=lambda other: -other.id)]


def _missed(job: JobRecord, missed: JobRecord) -> Diagnosis:
    return Diagnosis(
        code="dependency_failed",
        cause=f"It was to start after job {missed.id} succeeded, which did not happen.",
        owner=Owner.USER,
        retry=RetryClass.NEVER,
        advice=f"See `allot show {missed.id}`; then `allot clone {job.id}`.",
    )
