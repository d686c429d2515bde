"""`apply`: the only writer of the state. One small function an event.

Applying is deterministic and needs nothing but the state and the record. An event that a
lifecycle does not allow is a bug of ours: InvariantViolated, and the state is not to be
trusted any more.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from allotment.engine.datasets import after
from allotment.engine.gauges import MOST_BAD_MOVES, came_to_nothing, gauge_of, packs
from allotment.engine.keeping import kept_by
from allotment.engine.others import choose_anew, set_others
from allotment.engine.records import (
    ENDED,
    AttemptRecord,
    CheckpointRecord,
    JobRecord,
    Shrink,
    Stop,
    TaskRecord,
)
from allotment.engine.state import SavedPlace, State
from allotment.engine.sweeps import (
    attempt_over,
    measured,
    proposed,
    reached,
    submitted,
    sweep_stopped,
    trial_over,
    trial_stopped,
)
from allotment.model import events as e
from allotment.model.cluster import BY_ENGINE, NodeState
from allotment.model.content import Content, Held
from allotment.model.errors import InvariantViolated
from allotment.model.gains import Measured, Pace, Packing
from allotment.model.health import WHOLE, Condition
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import ATTEMPT, HELD, JOB, QUEUED, TASK
from allotment.model.port_layout import port_count
from allotment.model.quantity import NOT_YET, Instant, Millis


def apply(state: State, record: e.Record) -> None:
    """Fold the next event of a log into the state. Raises InvariantViolated where it is not."""
    if record.seq != state.seq + 1:
        raise InvariantViolated(f"event {record.seq} after {state.seq}")
    if record.at < state.at:
        raise InvariantViolated(f"event {record.seq} goes back in time")
    fold(state, record)


def fold(state: State, record: e.Record) -> None:
    """Fold an event into the state. Raises InvariantViolated on a wrong turn."""
    at, event = record.at, record.event
    state.seq, state.at = record.seq, at
    if state.cluster.claimants is not None:
        state.cluster.claimants.now = at
    _APPLY[type(event)](state, record, event)
    if state.budgets.exist and isinstance(event, e.AttemptEvent):
        state.budgets.follow(event.job, state.cluster, at)


# ── the cluster ─────────────────────────────────────────────────────────────────────────


def _config_applied(state: State, record: e.Record, event: e.ConfigApplied) -> None:
    state.configure(event.config)
    choose_anew(state)


def _clock_stepped(state: State, record: e.Record, event: e.ClockStepped) -> None:
    state.set_clock(event.by_ms, record.at)


_READY = (NodeState.READY, "")


def _set_node(state: State, node: NodeId, at: Instant, how: NodeState, why: str = "") -> None:
    state.nodes[node] = (how, why)
    if how is NodeState.READY:
        state.shut_since.pop(node, None)
    else:
        state.shut_since.setdefault(node, at)
    state.mark(node)


def _is_lost(state: State, node: NodeId) -> bool:
    return state.nodes.get(node, _READY)[0] is NodeState.LOST


def _drained(state: State, record: e.Record, event: e.NodeDrained) -> None:
    if _is_lost(state, event.node):
        state.drains_kept[event.node] = event.reason
    else:
        _set_node(state, event.node, record.at, NodeState.DRAINED, event.reason)


def _undrained(state: State, record: e.Record, event: e.NodeUndrained) -> None:
    state.drains_kept.pop(event.node, None)
    if not _is_lost(state, event.node):
        _set_node(state, event.node, record.at, NodeState.READY)


def _node_lost(state: State, record: e.Record, event: e.NodeLost) -> None:
    how, why = state.nodes.get(event.node, _READY)
    if how is NodeState.DRAINED and not why.startswith(BY_ENGINE):
        state.drains_kept[event.node] = why
    _set_node(state, event.node, record.at, NodeState.LOST, event.reason)


def _recovered(state: State, record: e.Record, event: e.NodeRecovered) -> None:
    state.drains_kept.pop(event.node, None)
    _set_node(state, event.node, record.at, NodeState.READY)


def _health_changed(state: State, record: e.Record, event: e.HealthChanged) -> None:
    part = (event.node, WHOLE if event.device is None else event.device)
    before = state.condition(part)
    condition = Condition(
        node=event.node,
        health=event.now,
        by=event.by,
        changed_at=record.at,
        since=event.since,
        device=event.device,
        code=event.code,
        words=event.words,
        who=event.who,
        final=event.final,
        held_back=event.held_back,
    )
    if condition.is_suspicion and not (before is not None and before.is_suspicion):
        state.suspicions.add(part, record.at)
    state.set_condition(part, condition)
    state.mark(event.node)


def _others_seen(state: State, record: e.Record, event: e.OthersSeen) -> None:
    set_others(state, event.node, event.use)


def _content_seen(state: State, record: e.Record, event: e.ContentSeen) -> None:
    state.content.note(Content(event.kind, event.name), Held(event.nodes, event.bytes))


def _reservation_set(state: State, record: e.Record, event: e.ReservationSet) -> None:
    state.reservations[event.reservation.name] = event.reservation
    state.timers.arm_reservation(event.reservation.moved(-state.wall_ms))
    state.reservations_changed()


def _reservation_ended(state: State, record: e.Record, event: e.ReservationEnded) -> None:
    del state.reservations[event.name]
    state.reservations_changed()


def _dataset_created(state: State, record: e.Record, event: e.DatasetCreated) -> None:
    state.datasets[event.dataset.tenant, event.dataset.name] = event.dataset


def _dataset_changed(state: State, record: e.Record, event: e.DatasetEvent) -> None:
    key = event.tenant, event.name
    changed = after(state.datasets[key], event)
    if changed is None:
        del state.datasets[key]
    else:
        state.datasets[key] = changed


def _ids_skipped(state: State, record: e.Record, event: e.JobIdsSkipped) -> None:
    state.next_job = max(state.next_job, event.next_job)


# ── jobs ────────────────────────────────────────────────────────────────────────────────


def _submitted(state: State, record: e.Record, event: e.JobSubmitted) -> None:
    state_now = HELD if event.held else QUEUED
    job = JobRecord(
        event.job, event.spec, record.actor, record.at, state_now, record.at,
        event.key, event.warnings,
    )  # fmt: skip
    if event.job != state.next_job:
        raise InvariantViolated(f"job {event.job} where {state.next_job} is next")
    state.next_job = JobId(event.job + 1)
    state.jobs[job.id] = job
    if event.key:
        state.keys[record.actor.user, event.key] = job.id
    state.count(job, 1)
    if job.spec.depends_on:
        state.watch(job)
    if state.foretelling.on:
        state.foretelling.came(job)
    state.enqueue(job, record.at)
    state.timers.arm_job(job, state.config.limits)


def _edited(state: State, record: e.Record, event: e.JobEdited) -> None:
    job = state.jobs[event.job]
    state.unwatch(job)
    overtaking = state.cluster.overtaking
    if overtaking is not None and (counted := overtaking.of(job.id)) is not None:
        overtaking.recall({job.id: counted[0]})
    state.dequeue(job, record.at)
    state.foretelling.gone(job)
    state.count(job, -1)
    job.spec = event.spec
    state.count(job, 1)
    state.foretelling.came(job)
    state.watch(job)
    state.enqueue(job, record.at)
    if overtaking is not None:
        overtaking.recall({})
    state.timers.arm_job(job, state.config.limits)


def _held(state: State, record: e.Record, event: e.JobHeld) -> None:
    job = _step(state, event)
    state.dequeue(job, record.at)
    state.cluster.let_up()


def _released(state: State, record: e.Record, event: e.JobReleased) -> None:
    job = _step(state, event)
    state.enqueue(job, record.at)


def _reserved(state: State, record: e.Record, event: e.Reserved) -> None:
    # It was waiting: that its back-off ended is no event.
    state.enqueue(state.jobs[event.job], record.at)
    _overtakes(state, event.job)
    place = SavedPlace(event.job, event.slots, event.entitlement, event.victims, event.quota)
    state.cluster.reserve(state.reserved_place(place))


def _overtakes(state: State, job: JobId) -> None:
    """Count that a job got a place, or a reserved one, before others of its queue."""
    cluster = state.cluster
    if cluster.overtaking is not None:
        cluster.overtaking.passes(job)
        if cluster.queues.is_counted and cluster.overtaking.any_full:
            cluster.pending.arrivals += 1  # A job that waits for a cap holds up no other.


def _unreserved(state: State, record: e.Record, event: e.ReservedPlaceDropped) -> None:
    state.cluster.unreserve(event.job)


def _requeued(state: State, record: e.Record, event: e.JobRequeued) -> None:
    job = _step(state, event)
    job.queued_at = record.at
    job.not_before = event.not_before
    job.requeue_cause = event.cause
    match event.cause:
        case "evicted":
            job.evictions += 1
        case "platform":
            job.platform_retries += 1
        case "asked":
            pass
        case _:
            job.used_retries += 1
    state.enqueue(job, record.at)
    state.timers.arm_job(job, state.config.limits)


def _finished(state: State, record: e.Record, event: e.JobEvent) -> None:
    job = _step(state, event)
    job.finished_at = record.at
    if not isinstance(event, e.JobSucceeded):
        job.diagnosis = getattr(event, "diagnosis", None)
    state.cluster.unreserve(job.id)
    state.dequeue(job, record.at)
    state.cluster.let_up()
    if job.spec.depends_on:
        state.unwatch(job)
    state.count(job, -1)
    state.finished.append(job.id)
    trial_over(state, job, record.at)
    if state.foretelling.remembers:
        state.expect_anew(state.foretelling.finished(job))
    if job.id in state.dependents:
        for other in sorted(state.dependents[job.id]):
            state.enqueue(state.jobs[other], record.at)


def _explained(state: State, record: e.Record, event: e.WaitExplained) -> None:
    state.jobs[event.job].waits_for = event.reason.value


def _noted(state: State, record: e.Record, event: e.JobNoted) -> None:
    job = state.jobs[event.job]
    job.note, job.noted_by, job.noted_at = event.text, record.actor.user, record.at


def _outputs_saved(state: State, record: e.Record, event: e.OutputsSaved) -> None:
    job = state.jobs[event.job]
    job.saved, job.unsaved = event.dataset, event.trouble


def _kept(state: State, record: e.Record, event: e.CheckpointKept) -> None:
    job = state.jobs[event.job]
    job.kept_of, job.unkept = (event.path, event.step), event.trouble
    job.kept = event.dataset or job.kept


def _archived(state: State, record: e.Record, event: e.JobArchived) -> None:
    job = state.jobs.pop(event.job)
    if job.key and state.keys.get((job.owner.user, job.key)) == job.id:
        del state.keys[job.owner.user, job.key]  # work of others may be a newer job by now
    state.dependents.pop(job.id, None)
    if state.finished and state.finished[0] == job.id:
        state.finished.popleft()
    else:
        state.finished.remove(job.id)


# ── attempts ────────────────────────────────────────────────────────────────────────────


def _placed(state: State, record: e.Record, event: e.AttemptPlaced) -> None:
    job = _step(state, event)
    if state.cluster.unreserve(job.id) is None and state.cluster.overtaking is not None:
        _overtakes(state, job.id)
    waited = state.cluster.pending.remove(job.id)
    job.waits_for = ""
    job.attempts.append(
        AttemptRecord(
            event.attempt,
            event.slots,
            event.entitlement,
            record.at,
            event.port,
            quota=event.quota,
            with_image=event.with_image,
            with_environment=event.with_environment,
            with_data=event.with_data,
        )
    )
    state.cluster.add(state.gang(job, waited))
    if event.port:
        state.ports.take(event.port, port_count(job.spec))
    state.timers.arm_job(job, state.config.limits)


def _barrier(state: State, record: e.Record, event: e.BarrierOpened) -> None:
    job, attempt = _attempt(state, event)
    attempt.barrier_at = record.at
    state.timers.arm_job(job, state.config.limits)


def _started(state: State, record: e.Record, event: e.AttemptStarted) -> None:
    job, attempt = _attempt(state, event)
    job.state = JOB[job.state, e.AttemptStarted]
    attempt.state = ATTEMPT[attempt.state, e.AttemptStarted]
    attempt.started_at = attempt.running_since = attempt.saved_at = record.at
    gang = state.cluster.gangs[job.id]
    gang.saved_at = record.at
    state.cluster.stand_anew(gang, state.begun(gang.standing, attempt))
    state.timers.arm_job(job, state.config.limits)


def _promoted(state: State, record: e.Record, event: e.AttemptPromoted) -> None:
    job, attempt = _attempt(state, event)
    state.cluster.promote(job.id, event.quota, event.beside)
    if event.beside:
        # Surplus tasks on their way out stay as they are.
        staying = state.cluster.gangs[job.id].slots
        attempt.slots = (*staying, *attempt.slots[len(staying) :])
    attempt.entitlement, attempt.quota = Entitlement.GUARANTEED, event.quota


def _demoted(state: State, record: e.Record, event: e.AttemptDemoted) -> None:
    job, attempt = _attempt(state, event)
    gang = state.cluster.gangs[job.id]
    if state.cluster.disruption is not None and event.wanted_by != job.id:
        state.cluster.disruption.note(gang, record.at)
    state.cluster.entitle(gang, Entitlement.OPPORTUNISTIC)
    attempt.entitlement, attempt.quota = Entitlement.OPPORTUNISTIC, ()


def _suspended(state: State, record: e.Record, event: e.AttemptSuspended) -> None:
    job, attempt = _attempt(state, event)
    _step(state, event)
    attempt.state = ATTEMPT[attempt.state, e.AttemptSuspended]
    attempt.ran_ms = attempt.ran_until(record.at)
    attempt.running_since = Instant(0)
    attempt.suspended_at = attempt.paused_at = record.at
    attempt.suspensions += 1
    attempt.suspended_for = event.wanted_by
    state.cluster.gangs[job.id].keeps = ()
    job.waits_for = ""
    _each_running_task(attempt, e.AttemptSuspended)
    state.cluster.suspend(job.id, record.at, state.standing(job))


def _task_suspended(state: State, record: e.Record, event: e.TaskSuspended) -> None:
    job, attempt = _attempt(state, event)
    attempt.tasks.setdefault(event.index, TaskRecord()).suspension = event.how
    attempt.pause_ms = Millis(record.at - attempt.paused_at)
    _count_kept(state, job)


def _offered(state: State, record: e.Record, event: e.MemoryOffered) -> None:
    job, attempt = _attempt(state, event)
    attempt.offers = True
    if not attempt.suspended_at:
        gang = state.cluster.gangs[job.id]
        gang.keeps = kept_by(attempt, gang.needs)
        state.cluster.ledger.version += 1  # Others may have their turn for it.


def _count_kept(state: State, job: JobRecord) -> None:
    """Let the books know anew what a suspended gang keeps of its devices' memory."""
    cluster, gang = state.cluster, state.cluster.gangs[job.id]
    keeps = kept_by(job.attempts[-1], gang.needs)
    if keeps == gang.keeps:
        return
    back = cluster.reserved.get(job.id)
    if back is not None:
        cluster.unreserve(job.id)
    cluster.drop(job.id).keeps = keeps
    cluster.add(gang)
    if back is not None:  # Its way back, which takes what it gave away.
        cluster.reserve(replace(back, needs=gang.leases()))


def _resume_asked(state: State, record: e.Record, event: e.ResumeRequested) -> None:
    job, attempt = _attempt(state, event)
    attempt.wants_resume = True
    state.cluster.ask_resume(job.id)


def _resumed(state: State, record: e.Record, event: e.AttemptResumed) -> None:
    job, attempt = _attempt(state, event)
    _step(state, event)
    attempt.state = ATTEMPT[attempt.state, e.AttemptResumed]
    attempt.running_since = record.at
    attempt.suspended_at = Instant(0)
    attempt.wants_resume = False
    attempt.entitlement, attempt.quota = event.entitlement, event.quota
    _each_running_task(attempt, e.AttemptResumed)
    state.cluster.unreserve(job.id)
    state.cluster.resume(job.id, event.entitlement, event.quota, state.standing(job))
    gang = state.cluster.gangs[job.id]
    gang.keeps = kept_by(attempt, gang.needs)
    state.timers.arm_job(job, state.config.limits)


def _each_running_task(attempt: AttemptRecord, event: type[e.Event]) -> None:
    for task in attempt.tasks.values():
        if (task.state, event) in TASK:
            task.state = TASK[task.state, event]


def _saved(state: State, record: e.Record, event: e.CheckpointSaved) -> None:
    job, attempt = _attempt(state, event)
    attempt.saved_at = record.at
    gang = state.cluster.gangs.get(job.id)
    if gang is not None:
        gang.saved_at = record.at
        if gang.gauge is not None:
            state.cluster.stand_anew(gang, gang.standing)
    job.checkpoint = CheckpointRecord(
        path=event.path,
        at=record.at,
        attempt=event.attempt,
        step=event.step,
        progress_milli=event.progress_milli,
    )


def _restored(state: State, record: e.Record, event: e.CheckpointRestored) -> None:
    job, _ = _attempt(state, event)
    before = job.checkpoint
    job.checkpoint = CheckpointRecord(
        path=event.path,
        at=record.at,
        attempt=before.attempt if before is not None else event.attempt,
        step=event.step,
        progress_milli=event.progress_milli,
    )
    job.kept, job.unkept, job.kept_of = event.dataset, "", (event.path, event.step)


def _paced(state: State, record: e.Record, event: e.PaceMeasured) -> None:
    job, attempt = _attempt(state, event)
    attempt.pace = Pace(event.tasks, event.rate, record.at, event.ends_at, event.busy_milli)
    job.rates = {**job.rates, event.tasks: event.rate}
    _gauge(state, job)
    if state.cluster.placed.resuming and packs(state.cluster.tenants, job):
        state.cluster.pending.arrivals += 1  # One of these may run beside it.


def _gained(state: State, record: e.Record, event: e.GainMeasured) -> None:
    job, attempt = _attempt(state, event)
    attempt.gained = Measured(event.rate, event.before, event.kept, record.at, event.expected)
    if not event.kept:
        came_to_nothing(job, MOST_BAD_MOVES)
    _gauge(state, job)


MOST_COMPANY = 64
"""So many jobs are remembered that a job ran beside."""


def _packed(state: State, record: e.Record, event: e.Packed) -> None:
    _, attempt = _attempt(state, event)
    attempt.packing = Packing(
        event.beside,
        record.at,
        event.alone,
        event.other_alone,
        event.expected_milli,
        event.proven,
    )
    _run_beside(state, event.job, event.beside)
    state.enter_packed(state.jobs[event.job])


def _packing_measured(state: State, record: e.Record, event: e.PackingMeasured) -> None:
    job, attempt = _attempt(state, event)
    if attempt.packing is not None:
        attempt.packing = replace(
            attempt.packing,
            alone=max(attempt.packing.alone, event.rate),
            other_alone=max(attempt.packing.other_alone, event.other_rate),
            gain_milli=event.gain_milli,
            noted_at=record.at,
        )
    _remember(state, job, event.beside, gained=event.kept)


def _unpacked(state: State, record: e.Record, event: e.Unpacked) -> None:
    job = state.jobs[event.job]  # Its attempt may be over.
    job.attempts[-1].packing = None
    state.leave_packed(job, event.beside)
    if job.attempts[-1].suspended_at:
        job.attempts[-1].suspensions += 1
        job.attempts[-1].paused_at = record.at
    _run_beside(state, event.job, None)
    if event.cause is e.Parted.UNMEASURED:
        _remember(state, job, event.beside, gained=False)


def _run_beside(state: State, job: JobId, beside: JobId | None) -> None:
    """Let the books know whether a gang runs beside the one that has its devices."""
    gang = state.cluster.gangs.get(job)
    if gang is not None:
        gang.beside = beside
        state.cluster.stand_anew(gang, gang.standing)


def _remember(state: State, job: JobRecord, beside: JobId, *, gained: bool) -> None:
    """Keep of two jobs whether they gain by running at once on the same devices."""
    for one, other in ((job, beside), (state.jobs[beside], job.id)):
        known = {id: was for id, was in one.beside.items() if id != other}
        one.beside = {**dict(list(known.items())[1 - MOST_COMPANY :]), other: gained}
        if one.id in state.cluster.gangs:
            _gauge(state, one)


def _gauge(state: State, job: JobRecord) -> None:
    """Let the books know anew how fast a gang is."""
    gang = state.cluster.gangs[job.id]
    gang.gauge = gauge_of(state.cluster.tenants, job)
    state.cluster.stand_anew(gang, gang.standing)


def _stop_asked(state: State, record: e.Record, event: e.StopRequested) -> None:
    job, attempt = _attempt(state, event)
    _step(state, event)
    if attempt.suspended_at:
        attempt.wants_resume = False
        state.cluster.placed.resuming.pop(job.id, None)
        place = state.cluster.reserved.get(job.id)
        if place is not None and job.id not in place.victims:
            state.cluster.unreserve(job.id)  # Its way back. A place elsewhere stays its own.
    attempt.state = ATTEMPT[attempt.state, e.StopRequested]
    attempt.stop = Stop(
        cause=event.cause,
        at=record.at,
        signal=event.signal,
        grace_ms=event.grace_ms,
        wanted_by=event.wanted_by,
        by=record.actor.user,
        diagnosis=event.diagnosis,
        gain=event.gain,
    )
    state.cluster.mark_leaving(job.id)
    gang = state.cluster.gangs[job.id]
    gang.wants_resume = False
    if gang.gauge is not None:
        gang.gauge = gauge_of(state.cluster.tenants, job)


def _shrink_asked(state: State, record: e.Record, event: e.ShrinkRequested) -> None:
    job, attempt = _attempt(state, event)
    gang = state.cluster.drop(job.id)
    if state.cluster.disruption is not None and gang.entitlement is Entitlement.GUARANTEED:
        state.cluster.disruption.note(gang, record.at, goes_on=True)
    attempt.shrink = Shrink(
        tasks=event.tasks,
        at=record.at,
        signal=event.signal,
        grace_ms=event.grace_ms,
        wanted_by=event.wanted_by,
    )
    if len(attempt.quota) > 1:
        attempt.quota = attempt.quota[: event.tasks]
    state.cluster.add(state.gang(job))
    state.cluster.add(state.surplus(job))


def _shrunk(state: State, record: e.Record, event: e.AttemptShrunk) -> None:
    job, attempt = _attempt(state, event)
    state.cluster.parted(job.id)
    state.cluster.gangs[job.id].shrinking = False
    attempt.slots = attempt.slots[: event.tasks]
    attempt.tasks = {i: task for i, task in attempt.tasks.items() if i < event.tasks}
    attempt.shrink = None
    if state.cluster.gangs[job.id].gauge is not None:
        attempt.pace = None
        _gauge(state, job)


def _ended(state: State, record: e.Record, event: e.AttemptEnded) -> None:
    job, attempt = _attempt(state, event)
    attempt.ran_ms = attempt.ran_until(record.at)
    attempt.running_since = NOT_YET
    attempt.state = ATTEMPT[attempt.state, e.AttemptEnded]
    attempt.ended_at = record.at
    attempt.outcome = event.outcome
    attempt.diagnosis = event.diagnosis
    if event.lost_ms:
        attempt.lost_ms = event.lost_ms
        job.lost_ms = Millis(job.lost_ms + event.lost_ms)
    job.served_ms = Millis(job.served_ms + attempt.ran_ms)
    attempt_over(state, job, attempt)
    if event.outcome is e.Outcome.FAILED and attempt.saved_at <= attempt.started_at:
        came_to_nothing(job, 1)  # It saved nothing where it went: it did not come up there.
    place = state.cluster.reserved.get(job.id)
    if place is not None and job.id not in place.victims:
        state.cluster.unreserve(job.id)
    state.cluster.drop(job.id)
    if attempt.shrink is not None:
        state.cluster.parted(job.id)
        attempt.shrink = None
    if attempt.port:
        state.ports.give(attempt.port, port_count(job.spec))
    if job.spec.array is not None:
        state.leave_array(job, job.spec.array, record.at)


# ── tasks ───────────────────────────────────────────────────────────────────────────────


def _task_ready(state: State, record: e.Record, event: e.TaskReady) -> None:
    task = _task(state, event)
    task.ready_at = record.at
    task.phases = event.phases


def _task_started(state: State, record: e.Record, event: e.TaskStarted) -> None:
    task = _task(state, event)
    task.started_at = record.at
    task.pid = event.pid
    task.phases = event.phases or task.phases
    task.engine_job, task.devices = event.engine_job, event.devices


def _task_held(state: State, record: e.Record, event: e.TaskHeld) -> None:
    task = _task(state, event)
    task.exit = event.exit
    task.held_at = record.at


def _task_ended(state: State, record: e.Record, event: e.TaskEnded) -> None:
    task = _task(state, event)
    task.ended_at = record.at
    task.exit = event.exit
    task.diagnosis = event.diagnosis


def _task_measured(state: State, record: e.Record, event: e.TaskMeasured) -> None:
    attempts = state.jobs[event.job].attempts
    task = next(each for each in attempts if each.no == event.attempt).tasks[event.index]
    assert task.exit is not None, "what is measured has ended"
    usage = replace(task.exit.usage, gpu=event.gpu)
    task.exit = replace(task.exit, usage=usage)


# ── shared steps ────────────────────────────────────────────────────────────────────────


def _step(state: State, event: e.JobEvent) -> JobRecord:
    """Move a job along its lifecycle."""
    job = state.jobs[event.job]
    job.state = JOB[job.state, type(event)]
    return job


def _attempt(state: State, event: e.AttemptEvent) -> tuple[JobRecord, AttemptRecord]:
    job = state.jobs[event.job]
    attempt = job.attempts[-1]
    if attempt.no != event.attempt or attempt.state is ENDED:
        raise InvariantViolated(f"{type(event).__name__} for a past attempt of job {job.id}")
    return job, attempt


def _task(state: State, event: e.TaskEvent) -> TaskRecord:
    """Move a task along its lifecycle."""
    _, attempt = _attempt(state, event)
    task = attempt.tasks.setdefault(event.index, TaskRecord())
    task.state = TASK[task.state, type(event)]
    return task


_APPLY: dict[type[e.Event], Callable[[State, e.Record, Any], None]] = {
    e.ConfigApplied: _config_applied,
    e.NodesFound: _config_applied,
    e.NodeDrained: _drained,
    e.NodeUndrained: _undrained,
    e.NodeLost: _node_lost,
    e.NodeRecovered: _recovered,
    e.HealthChanged: _health_changed,
    e.ClockStepped: _clock_stepped,
    e.OthersSeen: _others_seen,
    e.ContentSeen: _content_seen,
    e.ReservationSet: _reservation_set,
    e.ReservationEnded: _reservation_ended,
    e.DatasetCreated: _dataset_created,
    e.DatasetVersionClosed: _dataset_changed,
    e.DatasetGranted: _dataset_changed,
    e.DatasetRevoked: _dataset_changed,
    e.DatasetRemoved: _dataset_changed,
    e.JobIdsSkipped: _ids_skipped,
    e.JobSubmitted: _submitted,
    e.JobEdited: _edited,
    e.JobHeld: _held,
    e.JobReleased: _released,
    e.Reserved: _reserved,
    e.ReservedPlaceDropped: _unreserved,
    e.JobRequeued: _requeued,
    e.JobSucceeded: _finished,
    e.JobFailed: _finished,
    e.JobCancelled: _finished,
    e.JobTimedOut: _finished,
    e.EventsLost: lambda _state, _record, _event: None,
    e.StartEstimated: lambda _state, _record, _event: None,
    e.WaitExplained: _explained,
    e.JobNoted: _noted,
    e.CheckpointKept: _kept,
    e.OutputsSaved: _outputs_saved,
    e.JobArchived: _archived,
    e.AttemptPlaced: _placed,
    e.BarrierOpened: _barrier,
    e.AttemptStarted: _started,
    e.AttemptPromoted: _promoted,
    e.AttemptDemoted: _demoted,
    e.AttemptSuspended: _suspended,
    e.TaskSuspended: _task_suspended,
    e.MemoryOffered: _offered,
    e.ResumeRequested: _resume_asked,
    e.AttemptResumed: _resumed,
    e.CheckpointRestored: _restored,
    e.CheckpointSaved: _saved,
    e.StopRequested: _stop_asked,
    e.AttemptEnded: _ended,
    e.ShrinkRequested: _shrink_asked,
    e.AttemptShrunk: _shrunk,
    e.PaceMeasured: _paced,
    e.GainMeasured: _gained,
    e.Packed: _packed,
    e.PackingMeasured: _packing_measured,
    e.Unpacked: _unpacked,
    e.SweepSubmitted: submitted,
    e.TrialProposed: proposed,
    e.RungReached: reached,
    e.TrialMeasured: measured,
    e.TrialStopped: trial_stopped,
    e.SweepStopped: sweep_stopped,
    e.TaskReady: _task_ready,
    e.TaskStarted: _task_started,
    e.TaskHeld: _task_held,
    e.TaskEnded: _task_ended,
    e.TaskMeasured: _task_measured,
}
