"""Events in, effects out: what the world is to be told.

There is no outbox. After a restart `pending_effects` derives from the state whatever may
not have been carried out; every effect is idempotent by task key (docs/adr/0003).
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from allotment.engine.records import AttemptRecord, JobRecord, Shrink
from allotment.engine.state import State
from allotment.model import effects as f
from allotment.model import events as e
from allotment.model.cluster import BY_ENGINE, NodeState
from allotment.model.ids import TaskIndex, TaskKey
from allotment.model.lifecycle import AttemptState, TaskState
from allotment.model.quantity import Instant, Millis


@lru_cache
def _all_of(tasks: int) -> tuple[TaskIndex, ...]:
    return tuple(map(TaskIndex, range(tasks)))


def _launch(state: State, event: e.AttemptPlaced) -> list[f.AnyEffect]:
    tasks = _all_of(len(event.slots))
    return [f.LaunchGang(event.job, event.attempt, tasks, at_barrier=len(tasks) > 1)]


def _pass(state: State, event: e.BarrierOpened) -> list[f.AnyEffect]:
    return [f.OpenBarrier(event.job, event.attempt)]


def _stop(state: State, event: e.StopRequested) -> list[f.AnyEffect]:
    alive = _alive(state.jobs[event.job])
    return [f.StopTask(key, event.signal, event.grace_ms, event.cause) for key in alive]


def _freeze(state: State, event: e.AttemptSuspended) -> list[f.AnyEffect]:
    return _frozen(state.jobs[event.job])


def _thaw(state: State, event: e.AttemptResumed) -> list[f.AnyEffect]:
    return [f.ThawTask(key) for key in _alive(state.jobs[event.job])]


def _go_beside(state: State, event: e.Packed) -> list[f.AnyEffect]:
    return [f.ThawTask(key) for key in _alive(state.jobs[event.job])]


def _part(state: State, event: e.Unpacked) -> list[f.AnyEffect]:
    job = state.jobs[event.job]
    waits = job.attempts[-1].state is AttemptState.SUSPENDED
    return _frozen(job) if waits else []


def _shrink(state: State, event: e.ShrinkRequested) -> list[f.AnyEffect]:
    """The tasks that stay know first, so that they can let the others go."""
    stop = [
        f.StopTask(key, event.signal, event.grace_ms)
        for key in _alive(state.jobs[event.job])
        if key.index >= event.tasks
    ]
    return [f.TellSize(event.job, event.attempt), *stop]


def _close(state: State, event: e.NodeDrained) -> list[f.AnyEffect]:
    ours = not event.reason.startswith(BY_ENGINE)
    return [f.CloseNode(event.node, event.reason)] if ours else []


def _open(state: State, event: e.NodeUndrained) -> list[f.AnyEffect]:
    return [f.OpenNode(event.node)]


REACT: dict[type[e.Event], Callable[[State, Any], list[f.AnyEffect]]] = {
    e.AttemptPlaced: _launch,
    e.BarrierOpened: _pass,
    e.StopRequested: _stop,
    e.ShrinkRequested: _shrink,
    e.AttemptSuspended: _freeze,
    e.AttemptResumed: _thaw,
    e.Packed: _go_beside,
    e.Unpacked: _part,
    e.NodeDrained: _close,
    e.NodeUndrained: _open,
}
"""Makes the effects of an event that was just applied; most have none."""


def pending_effects(state: State, now: Instant) -> Iterator[f.AnyEffect]:
    """Return, after a restart, every effect that may be missing in the world."""
    for node, (how, reason) in state.nodes.items():
        if how is NodeState.DRAINED and not reason.startswith(BY_ENGINE):
            yield f.CloseNode(node, reason)
        elif how is not NodeState.LOST:
            # Its engine may have told meanwhile of a drain that was ours, and is to end.
            yield f.OpenNode(node)
    for job in state.jobs.values():
        attempt = job.attempt
        if attempt is not None:
            yield from _missing(job, attempt, now)


def _missing(job: JobRecord, attempt: AttemptRecord, now: Instant) -> Iterator[f.AnyEffect]:
    if attempt.state is AttemptState.STARTING:
        placed = tuple(
            key.index
            for key in job.task_keys()
            if attempt.task(key.index).state is TaskState.PLACED
        )
        if placed:
            at_barrier = len(attempt.slots) > 1
            yield f.LaunchGang(job.id, attempt.no, placed, at_barrier=at_barrier)
        if attempt.barrier_at:
            yield f.OpenBarrier(job.id, attempt.no)
    elif attempt.state is AttemptState.STOPPING and attempt.stop is not None:
        left = max(0, attempt.stop.at + attempt.stop.grace_ms - now)
        for key in _alive(job):
            yield f.StopTask(key, attempt.stop.signal, Millis(left), attempt.stop.cause)
    elif attempt.state is AttemptState.SUSPENDED and attempt.packing is None:
        yield from _frozen(job)
    else:
        for key in _alive(job):
            yield f.ThawTask(key)
        yield from _missing_of(job, attempt.shrink, now)


def _missing_of(job: JobRecord, shrink: Shrink | None, now: Instant) -> Iterator[f.AnyEffect]:
    """Return what may be missing of an attempt that shrinks, if it does."""
    if shrink is None:
        return
    yield f.TellSize(job.id, job.attempts[-1].no)
    left = max(0, shrink.at + shrink.grace_ms - now)
    for key in _alive(job):
        if key.index >= shrink.tasks:
            yield f.StopTask(key, shrink.signal, Millis(left))


def _frozen(job: JobRecord) -> list[f.AnyEffect]:
    alive = tuple(_alive(job))
    return [f.FreezeGang(alive, job.attempts[-1].suspensions)] if alive else []


def _alive(job: JobRecord) -> list[TaskKey]:
    """Name the tasks of the attempt under way that have not ended."""
    attempt = job.attempts[-1]
    return [
        key for key in job.task_keys() if attempt.task(key.index).state is not TaskState.ENDED
    ]
