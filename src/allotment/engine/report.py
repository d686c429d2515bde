"""What a backend reports, turned into events. Late, repeated and stale reports say nothing."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from allotment.core.gang import Gang
from allotment.engine.completion import (
    GangEnd,
    Verdict,
    all_gone,
    conclude,
    first_failure,
    judge,
    scale_down,
    succeeded,
)
from allotment.engine.exit_codes import BY_STOP
from allotment.engine.records import AttemptRecord, JobRecord, TaskRecord
from allotment.engine.state import State
from allotment.engine.suspending import heard_suspended
from allotment.model import events as e
from allotment.model.cluster import BY_ENGINE, NodeState
from allotment.model.diagnosis import Diagnosis, Exit, Owner, RetryClass
from allotment.model.ids import JobId, NodeId, TaskIndex, TaskKey
from allotment.model.lifecycle import AttemptState, TaskState
from allotment.model.quantity import Instant, Millis
from allotment.model.reasons import StopCause
from allotment.model.reports import (
    CheckpointReport,
    GangReport,
    NodeReport,
    Seen,
    TaskReport,
    UseReport,
)

Emit = Iterator[e.AnyEvent]
STARTING, RUNNING, ENDED = AttemptState.STARTING, Seen.RUNNING, Seen.ENDED


def heard(state: State, report: TaskReport, now: Instant) -> Emit:
    """Return the events that follow from one report.

    A generator that expects each event to be applied before it is asked for the next.
    """
    found = _live(state, report.key)
    if found is None:
        return
    job, attempt = found
    task = attempt.task(report.key.index)
    if task.state is TaskState.ENDED:
        return
    match report.seen:
        case Seen.READY:
            yield from _ready(job, attempt, task, report)
        case Seen.RUNNING:
            yield from _running(job, attempt, task, report)
            yield from heard_suspended(state, job, attempt, report)
        case Seen.HOLDING:
            yield from _held(job, attempt, task, report)
        case Seen.ENDED:
            yield from _ended(state, job, attempt, task, report, now)
        case Seen.UNKNOWN:
            pass


def gang_heard(state: State, report: GangReport, now: Instant) -> Iterable[e.AnyEvent]:
    """Return the events that follow from one report on a whole gang."""
    job = state.jobs.get(report.job)
    attempt = job.attempt if job else None
    if job is None or attempt is None or attempt.no != report.attempt:
        return ()
    seen = report.seen
    if seen is RUNNING and attempt.state is STARTING:
        return (e.AttemptStarted(job.id, attempt.no),)
    if seen is not ENDED:
        return ()
    assert report.exit is not None, "an ended gang has an exit"
    if report.exit.ok and attempt.stop is None:
        return succeeded(job, now)  # So most of them end.
    end = GangEnd(report.exit.ok, report.diagnosis, report.lost_ms)
    return conclude(state, job, now, end)


def used(state: State, report: UseReport) -> Emit:
    """Note what is known of an ended task's devices only after its end, once."""
    key = report.key
    job = state.jobs.get(key.job)
    for attempt in job.attempts if job is not None else ():
        task = attempt.tasks.get(key.index) if attempt.no == key.attempt else None
        if task is None or task.state is not TaskState.ENDED or task.exit is None:
            continue
        if task.exit.usage.gpu is None:
            yield e.TaskMeasured(key.job, key.attempt, key.index, report.gpu)


def saved(state: State, report: CheckpointReport) -> Emit:
    """Note a checkpoint that a job reported, unless it is the one already known."""
    found = _live(state, report.key)
    if found is None:
        return
    job, attempt = found
    known = job.checkpoint
    if known and (known.path, known.step) == (report.path, report.step):
        return
    yield e.CheckpointSaved(job.id, attempt.no, report.path, report.step, report.progress_milli)


def _live(state: State, key: TaskKey) -> tuple[JobRecord, AttemptRecord] | None:
    """Find the attempt a report speaks of, if it is still under way."""
    job = state.jobs.get(key.job)
    attempt = job.attempt if job else None
    if job is None or attempt is None or attempt.no != key.attempt:
        return None
    return (job, attempt) if key.index < len(attempt.slots) else None


def _ready(
    job: JobRecord, attempt: AttemptRecord, task: TaskRecord, report: TaskReport
) -> Emit:
    if task.state is not TaskState.PLACED:
        return
    yield e.TaskReady(job.id, attempt.no, report.key.index, report.phases)
    if attempt.state is AttemptState.STARTING and _every_task(attempt, {TaskState.READY}):
        yield e.BarrierOpened(job.id, attempt.no)


def _running(
    job: JobRecord, attempt: AttemptRecord, task: TaskRecord, report: TaskReport
) -> Emit:
    if task.state in (TaskState.PLACED, TaskState.READY):
        yield e.TaskStarted(
            job.id, attempt.no, report.key.index, report.pid, report.phases,
            report.engine_job, report.devices,
        )  # fmt: skip
    if attempt.state is AttemptState.STARTING and _every_task(attempt, _BEGUN):
        yield e.AttemptStarted(job.id, attempt.no)


_BEGUN = {TaskState.RUNNING, TaskState.HOLDING, TaskState.ENDED}


def _held(job: JobRecord, attempt: AttemptRecord, task: TaskRecord, report: TaskReport) -> Emit:
    yield from _running(job, attempt, task, report)
    # The record is looked up anew: what was just emitted may have made it.
    if attempt.task(report.key.index).state is TaskState.RUNNING and report.exit:
        yield e.TaskHeld(job.id, attempt.no, report.key.index, report.exit)


def node_heard(state: State, report: NodeReport) -> Emit:
    """Note that a node went silent, or is back; its gangs end when it went.

    One that an administrator drained before is drained still.
    """
    node = report.node
    if node not in state.cluster.nodes:
        return
    lost = state.nodes.get(node, _READY)[0] is NodeState.LOST
    if report.alive and lost:
        drained = state.drains_kept.get(node)
        yield e.NodeRecovered(node)
        if drained is not None:
            yield e.NodeDrained(node, drained)
    elif not report.alive and not lost:
        yield e.NodeLost(node, report.reason)
        gangs = _on(state.cluster.gangs, node)
        for job_id in gangs:
            yield from _lose(state, state.jobs[job_id], report)
        for job_id in _on(state.cluster.placed.parting, node):
            if job_id not in gangs:
                job = state.jobs[job_id]
                yield from _lose_tasks(job, report.node, _node_lost(state, report))
    if report.alive:
        yield from _closed(state, report)


def _closed(state: State, report: NodeReport) -> Emit:
    """Drain a node that its engine closed; undrain it when the engine opens it again."""
    how, reason = state.nodes.get(report.node, _READY)
    wanted = BY_ENGINE + report.closed if report.closed else ""
    if wanted and (how is NodeState.READY or reason.startswith(BY_ENGINE)):
        if reason != wanted:
            yield e.NodeDrained(report.node, wanted)
    elif how is NodeState.DRAINED and not wanted and reason.startswith(BY_ENGINE):
        yield e.NodeUndrained(report.node)


def _on(gangs: Mapping[JobId, Gang], node: NodeId) -> list[JobId]:
    """Name the gangs that have a task on a node."""
    return sorted(
        gang.id for gang in gangs.values() if any(slot.node == node for slot in gang.slots)
    )


def _node_lost(state: State, report: NodeReport) -> Diagnosis:
    return Diagnosis(
        code="node_lost",
        cause=f"Node {state.cluster.nodes[report.node].name} was lost"
        + (f": {report.reason}" if report.reason else "")
        + ".",
        owner=Owner.HARDWARE,
        retry=RetryClass.PLATFORM,
        advice="Nothing to do: it is tried again elsewhere.",
    )


def _lose(state: State, job: JobRecord, report: NodeReport) -> Emit:
    """End the tasks of a gang that were on a lost node; stop those elsewhere."""
    attempt = job.attempts[-1]
    diagnosis = _node_lost(state, report)
    if attempt.stop is None:
        yield e.StopRequested(
            job.id,
            attempt.no,
            StopCause.NODE_LOST,
            signal="TERM",
            grace_ms=grace_of(job),
            diagnosis=diagnosis,
        )
    yield from _lose_tasks(job, report.node, diagnosis)
    if all_gone(attempt):
        yield from conclude(state, job, state.at)


def _lose_tasks(job: JobRecord, node: NodeId, diagnosis: Diagnosis) -> Emit:
    """End the tasks of a gang that were on a lost node."""
    attempt = job.attempts[-1]
    for index, slot in enumerate(attempt.slots):
        task = attempt.task(TaskIndex(index))
        if slot.node == node and task.state is not TaskState.ENDED:
            gone = Exit(lost=True)
            yield e.TaskEnded(job.id, attempt.no, TaskIndex(index), gone, diagnosis)
    yield from scale_down(job, attempt)


_READY = (NodeState.READY, "")


TOLD_AGAIN: Final = (StopCause.CANCELLED, StopCause.EVICTED, StopCause.RUN_TIME)
"""Orders that the books may have lost, with their end or to a backup; the task knows."""


def _ended(
    state: State,
    job: JobRecord,
    attempt: AttemptRecord,
    task: TaskRecord,
    report: TaskReport,
    now: Instant,
) -> Emit:
    key = report.key
    assert report.exit is not None, "an ended task has an exit"
    is_short = _is_short(attempt, task, report)
    if report.pid:
        yield from _running(job, attempt, task, report)
    cause = report.stopped_for
    # What failed and was kept for a look is a failure, whatever ended the look.
    is_news = attempt.stop is None and not task.held_at
    if is_news and cause is not None and cause in TOLD_AGAIN:
        yield e.StopRequested(job.id, attempt.no, cause, diagnosis=BY_STOP[cause])
    yield e.TaskEnded(job.id, attempt.no, key.index, report.exit, report.diagnosis)
    yield from scale_down(job, attempt)
    if all_gone(attempt):
        yield from conclude(state, job, now)
        return
    if attempt.stop is not None:
        return
    verdict = Verdict.FAILED if is_short else judge(job, attempt)
    if verdict is not Verdict.OPEN:
        yield stop_rest(job, attempt, verdict)


def _is_short(attempt: AttemptRecord, task: TaskRecord, report: TaskReport) -> bool:
    """Whether a gang can't begin any more: it lost a task before its barrier opened.

    However many failures its job allows, those that wait there would wait for nothing.
    """
    waits = attempt.state is STARTING and not attempt.barrier_at and len(attempt.slots) > 1
    return waits and not report.pid and task.state in (TaskState.PLACED, TaskState.READY)


def stop_rest(job: JobRecord, attempt: AttemptRecord, verdict: Verdict) -> e.StopRequested:
    """Stop the tasks that are left once the attempt is decided: it ends as one."""
    cause = StopCause.ROLE_FAILED if verdict is Verdict.FAILED else StopCause.ROLES_SUCCEEDED
    failure = first_failure(attempt)
    return e.StopRequested(
        job.id,
        attempt.no,
        cause,
        signal="TERM",
        grace_ms=grace_of(job),
        diagnosis=failure[1] if failure and verdict is Verdict.FAILED else None,
    )


def grace_of(job: JobRecord) -> Millis:
    """Return the time a job has to end by itself after a warning."""
    return job.spec.checkpoint.grace_ms if job.spec.checkpoint else Millis(5_000)


def _every_task(attempt: AttemptRecord, states: set[TaskState]) -> bool:
    return all(
        attempt.task(TaskIndex(index)).state in states for index in range(len(attempt.slots))
    )
