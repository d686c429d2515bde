"""Commands in, events out; or Rejected, with the reason. Nothing is changed here.

Each function is a generator that expects every event it yields to be applied before it is
asked for the next one.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from allotment.engine.admit import check_fit
from allotment.engine.again import not_of_others, submit_again
from allotment.engine.cancelling import cancel
from allotment.engine.datasets import decide_on_data
from allotment.engine.defaults import with_defaults
from allotment.engine.found import find_nodes
from allotment.engine.found_reservations import find_reservations
from allotment.engine.health import declare
from allotment.engine.queueing import check_queue, check_queues, check_user, in_its_queue
from allotment.engine.records import JobRecord
from allotment.engine.reservations import end, reserve
from allotment.engine.state import State
from allotment.engine.stays import check_stays, with_stable_ids
from allotment.engine.sweeps import awaits_proposal, propose, stop_sweep
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.cluster import BY_ENGINE, NodeState
from allotment.model.datasets import is_member
from allotment.model.dated import in_force
from allotment.model.dependencies import choices
from allotment.model.errors import Code, Rejected
from allotment.model.grid import Parameters, parameters_of, with_parameters
from allotment.model.ids import Actor, JobId, NodeId
from allotment.model.lifecycle import JobState, ended_how
from allotment.model.quantity import Instant
from allotment.model.spec import ArraySlice, JobSpec
from allotment.model.tenancy import Config
from allotment.sweeps.draw import trials
from allotment.sweeps.label import labelled

Emit = Iterator[e.AnyEvent]


def decide(state: State, command: c.AnyCommand, actor: Actor, now: Instant) -> Emit:
    """Return the events a command causes. Raises Rejected when it may not come true."""
    return _DECIDE[type(command)](state, command, actor, now)


def _find(state: State, job: JobId) -> JobRecord:
    if job not in state.jobs:
        raise Rejected(Code.NO_SUCH_JOB, f"There is no job {job}.", "See `allot ps --all`.")
    return state.jobs[job]


# ── submission ──────────────────────────────────────────────────────────────────────────


def _submit(state: State, command: c.SubmitJob, actor: Actor, now: Instant) -> Emit:
    spec = with_defaults(state, in_its_queue(state, command.spec))
    warnings = (*command.warnings, *check(state, spec, actor))
    if state.budgets.exist:
        warnings += state.budgets.warnings(spec, actor.user, state.cluster, now)
    if command.copies < 1:
        raise Rejected(Code.BAD_SPEC, "An array needs at least one copy.")
    if command.copies * len(spec.depends_on) > MOST_IN_ALL:
        raise Rejected(
            Code.BAD_DEPENDENCY,
            f"Its {command.copies:,} jobs depend on {len(spec.depends_on):,} each, and "
            f"{MOST_IN_ALL:,} dependencies in all are accepted.",
            "Let one job depend on those, and the array on that one.",
        )
    sweep, held = command.sweep, command.held
    if sweep is not None and sweep.is_study:
        if held:
            raise Rejected(
                Code.BAD_SPEC,
                "The trials of a study are held until their parameters are proposed, so they "
                "cannot be submitted as held.",
                "Take `--hold` out, and submit it when it may begin.",
            )
        held = True
    check_queue(state, spec, command.copies)
    check_user(state, actor, command.copies)
    parent = state.next_job
    indices = command.indices or range(command.copies)
    is_array = command.copies > 1 or command.grid or command.indices or sweep is not None
    values = _values(command) if is_array else None
    spec = labelled(spec) if sweep is not None else spec
    for index in indices:
        job = state.next_job
        mine = spec
        if values is not None:
            params = values(index)
            array = _place(command, index, parent, params)
            mine = _member(with_parameters(spec, params), array)
        elif spec.array is not None and not spec.array.parent:
            mine = _by_itself(spec, spec.array, job)
        # Only the first carries the key: it names the whole submission.
        key = command.key if index == indices[0] else ""
        yield e.JobSubmitted(job, mine, key, warnings, held)
    if sweep is not None:
        yield e.SweepSubmitted(parent, spec.name, spec.tenant, sweep, command.copies)


def _values(command: c.SubmitJob) -> Callable[[int], Parameters]:
    """Return what gives the index-th job of a command its parameters."""
    if command.sweep is not None:
        return trials(command.sweep).__getitem__
    return partial(parameters_of, command.grid)


AT_ONCE = 4
"""So many trials of a study run at a time, where nobody says how many: each learns from those
before it."""


def _place(command: c.SubmitJob, index: int, parent: JobId, params: Parameters) -> ArraySlice:
    """Return the place of a job in the array that a command makes."""
    size = command.indices[-1] + 1 if command.indices else command.copies
    sweep = command.sweep
    at_once = AT_ONCE if sweep is not None and sweep.is_study else 0
    steps = sweep.halving if sweep is not None else None
    return ArraySlice(
        index,
        size,
        parent,
        command.max_running or at_once,
        members=command.copies if size > command.copies else 0,
        params=params,
        metric=sweep.metric if sweep is not None else "",
        rungs=steps.rungs if steps is not None and not steps.by_time else (),
    )


def _by_itself(spec: JobSpec, element: ArraySlice, job: JobId) -> JobSpec:
    """Let an element of no array be the whole of its own."""
    return msgspec.structs.replace(
        spec, array=msgspec.structs.replace(element, parent=job, members=1)
    )


def _member(spec: JobSpec, array: ArraySlice) -> JobSpec:
    return msgspec.structs.replace(spec, array=array, name=f"{spec.name}.{array.index}")


MOST_DEPENDENCIES = 10_000
MOST_IN_ALL = 200_000
"""Dependencies of all jobs of an array together."""


def check(state: State, spec: JobSpec, actor: Actor) -> tuple[str, ...]:
    """Check what only the state can tell; give warnings. Raises Rejected."""
    tenant = state.cluster.tenants.get(spec.tenant)
    if tenant is None:
        names = ", ".join(sorted(t.name for t in state.config.tenants))
        raise Rejected(
            Code.NO_SUCH_TENANT,
            f"There is no tenant {spec.tenant!r}.",
            f"Tenants here: {names}.",
        )
    if not (actor.uid == 0 or spec.offered or is_member(actor, tenant)):
        raise Rejected(
            Code.FORBIDDEN,
            f"User {actor.user} is not a member of tenant {tenant.name}.",
            "Ask the administrator, or submit to a tenant of yours (allot tenants).",
        )
    if spec.depends_on:
        _check_dependencies(state, spec)
    warnings = check_fit(state, spec, tenant, actor)
    if spec.weight > 1 and (spec.tenant, spec.queue) not in state.cluster.slices:
        message = f"Its weight has no effect: queue {spec.queue} has no time slices."
        return (*warnings, message)
    return warnings


def _check_dependencies(state: State, spec: JobSpec) -> None:
    if len(spec.depends_on) > MOST_DEPENDENCIES:
        raise Rejected(
            Code.BAD_DEPENDENCY,
            f"It depends on {len(spec.depends_on):,} jobs, and {MOST_DEPENDENCIES:,} are "
            "accepted.",
            "Depend on one job that depends on them.",
        )
    for dependency in spec.depends_on:
        if dependency.job not in state.jobs:
            raise Rejected(
                Code.BAD_DEPENDENCY,
                f"It depends on job {dependency.job}, which does not exist.",
                "See `allot ps --all`.",
            )
    for choice in choices(spec.depends_on):
        if all(map(state.is_lost, choice)):
            raise too_late([(need.job, state.jobs[need.job].state) for need in choice])


def too_late(ended: list[tuple[JobId, JobState]]) -> Rejected:
    """Make the refusal of a job that needs what can no longer be."""
    job, state = ended[0]
    what = (
        f"job {job} succeeds, but that job {ended_how(state)}"
        if len(ended) == 1
        else f"one of {len(ended)} jobs succeeds, but none did"
    )
    return Rejected(
        Code.BAD_DEPENDENCY,
        f"It is to start after {what}.",
        "Use `end: any`, or depend on another job.",
    )


# ── waiting jobs ────────────────────────────────────────────────────────────────────────


def _edit(state: State, job: JobRecord, spec: JobSpec) -> Emit:
    if not job.state.waiting:
        raise _wrong(
            job, "edited", "waits in its queue", f"Try `allot clone {job.id} --set …`."
        )
    not_of_others(job.spec)
    for dependency in spec.depends_on:
        if dependency.job == job.id:
            raise Rejected(
                Code.BAD_DEPENDENCY, "A job cannot wait for itself.", "Depend on another job."
            )
    _no_cycle(state, job.id, spec)
    spec = with_defaults(state, in_its_queue(state, spec))
    check(state, spec, job.owner)
    if (spec.tenant, spec.queue) != (job.spec.tenant, job.spec.queue):
        check_queue(state, spec)
    if job.id in state.cluster.reserved:
        yield e.ReservedPlaceDropped(job.id)
    yield e.JobEdited(job.id, spec)


def _no_cycle(state: State, start: JobId, spec: JobSpec) -> None:
    after: dict[JobId, JobId] = {}
    """Which job was found to wait for each."""
    todo = [(start, dependency.job) for dependency in spec.depends_on]
    while todo:
        waits, job = todo.pop()
        if job == start:
            way = [start]
            while waits != start:
                way.append(waits)
                waits = after[waits]
            words = " after ".join(f"job {each}" for each in (start, *reversed(way[1:]), start))
            raise Rejected(
                Code.BAD_DEPENDENCY,
                f"These dependencies would go round in a circle: {words}.",
                "Take one of them out.",
            )
        if job not in after and job in state.jobs:
            after[job] = waits
            todo += [(job, each.job) for each in state.jobs[job].spec.depends_on]


def _hold(state: State, job: JobRecord) -> Emit:
    if job.state is JobState.HELD:
        return
    if job.state is not JobState.QUEUED:
        raise _wrong(job, "held", "waits in its queue", f"Try `allot suspend {job.id}`.")
    if job.id in state.cluster.reserved:
        yield e.ReservedPlaceDropped(job.id)
    yield e.JobHeld(job.id)


def _release(state: State, job: JobRecord) -> Emit:
    if awaits_proposal(state, job):
        raise Rejected(
            Code.WRONG_STATE,
            f"Job {job.id} is a trial that has no parameters yet: they are proposed when its "
            "turn comes.",
            f"See `allot sweep show {job.id}`.",
        )
    if job.state is JobState.HELD:
        yield e.JobReleased(job.id)
    elif job.state is not JobState.QUEUED:
        raise _wrong(job, "released", "is held")


LONGEST_NOTE = 1000


def _note(job: JobRecord, text: str) -> Emit:
    if len(text) > LONGEST_NOTE or not text.replace("\n", "").isprintable():
        raise Rejected(
            Code.BAD_REQUEST,
            f"A note is a text of at most {LONGEST_NOTE:,} characters, without control "
            f"characters; this one has {len(text):,}.",
            "Write it shorter, as plain text.",
        )
    if text != job.note:
        yield e.JobNoted(job.id, text)


def _restored(job: JobRecord, command: c.NoteRestored) -> Emit:
    attempt = job.attempt
    if attempt is None or attempt.no != command.attempt:
        return  # It ended meanwhile; the next looks again.
    yield e.CheckpointRestored(
        job.id,
        attempt.no,
        command.path,
        command.step,
        command.progress_milli,
        command.dataset,
    )


def _kept(job: JobRecord, command: c.NoteKept) -> Emit:
    yield e.CheckpointKept(job.id, command.path, command.step, command.kept, command.why)


def _saved(job: JobRecord, command: c.NoteOutputs) -> Emit:
    yield e.OutputsSaved(job.id, command.saved, command.why)


# ── jobs that hold a place ──────────────────────────────────────────────────────────────


def _cancel(state: State, job: JobRecord, actor: Actor, now: Instant) -> Emit:
    if job.state.finished:
        raise _wrong(job, "cancelled", "has not finished")
    yield from cancel(state, job, actor, now)


def _suspend(job: JobRecord) -> Emit:
    packing = job.attempts[-1].packing if job.attempts else None
    if packing is not None:
        other = packing.beside
        raise Rejected(
            Code.WRONG_STATE,
            f"Job {job.id} runs beside job {other} until its turn, and would resume by itself.",
            f"To separate them: `allot suspend {other}`; then suspend job {job.id}, too.",
        )
    if job.state is JobState.SUSPENDED:
        if job.attempts[-1].wants_resume:
            raise Rejected(
                Code.WRONG_STATE,
                f"Job {job.id} is suspended; it continues by itself when its devices are free.",
                f"Suspend it again once it runs, or end it: `allot cancel {job.id}`.",
            )
        return
    if job.state is not JobState.RUNNING:
        raise _wrong(job, "suspended", "runs", f"To keep it waiting: `allot hold {job.id}`.")
    if job.attempts[-1].shrink is not None:
        raise Rejected(
            Code.WRONG_STATE,
            f"Job {job.id} is giving up surplus tasks, which takes its grace at most.",
            "Try again then.",
        )
    yield e.AttemptSuspended(job.id, job.attempts[-1].no)


def _resume(job: JobRecord) -> Emit:
    if job.state is not JobState.SUSPENDED:
        if job.state is JobState.RUNNING:
            return
        raise _wrong(job, "resumed", "is suspended")
    if not job.attempts[-1].wants_resume:
        yield e.ResumeRequested(job.id, job.attempts[-1].no)


# ── configuration ───────────────────────────────────────────────────────────────────────


def date_came(state: State, now: Instant) -> Emit:
    """Put in force what is written for from now on."""
    config = in_force(state.config, state.wall(now))
    if config != state.config:
        yield e.ConfigApplied(config, dated=True)


def _configure(state: State, config: Config, now: Instant) -> Emit:
    stable = with_stable_ids(state.config, config, state.next_node)
    config = in_force(stable, state.wall(now))
    if config == state.config:
        if state.exceeds_guarantees():
            # An older version let them: as with every configuration, they run on as borrowers.
            yield e.ConfigApplied(config)
        return
    check_queues(state, config)
    check_stays(state, config)
    yield e.ConfigApplied(config)


# ── nodes ───────────────────────────────────────────────────────────────────────────────


def _drain(state: State, node: NodeId, reason: str) -> Emit:
    _find_node(state, node)
    how, why = state.nodes.get(node, _READY)
    is_ours = how is NodeState.DRAINED and not why.startswith(BY_ENGINE)
    if not is_ours and node not in state.drains_kept:
        yield e.NodeDrained(node, reason)


def _undrain(state: State, node: NodeId) -> Emit:
    _find_node(state, node)
    how, why = state.nodes.get(node, _READY)
    if how is NodeState.DRAINED and why.startswith(BY_ENGINE):
        name = state.cluster.nodes[node].name
        raise Rejected(
            Code.WRONG_STATE,
            f"Node {name} is {why.removeprefix(BY_ENGINE)}: not by Allotment.",
            "Open it there; it then takes work here by itself.",
        )
    if how is NodeState.DRAINED or node in state.drains_kept:
        yield e.NodeUndrained(node)


_READY = (NodeState.READY, "")


def _find_node(state: State, node: NodeId) -> None:
    if node not in state.cluster.nodes:
        raise Rejected(Code.NO_SUCH_NODE, f"There is no node {node}.", "See `allot nodes`.")


def _wrong(job: JobRecord, verb: str, must: str, hint: str = "") -> Rejected:
    return Rejected(
        Code.WRONG_STATE,
        f"Job {job.id} is {job.state.value}; only a job that {must} can be {verb}.",
        hint,
    )


# ── which function decides on a command ─────────────────────────────────────────────────


def _of_job(
    decides: Callable[[State, JobRecord, Any], Emit],
) -> Callable[[State, Any, Actor, Instant], Emit]:
    """Let a function decide on a command about one job. Raises Rejected where there is none."""
    return lambda state, command, _actor, _now: decides(
        state, _find(state, command.job), command
    )


_DECIDE: dict[type[c.Command], Callable[[State, Any, Actor, Instant], Emit]] = {
    c.SubmitJob: _submit,
    c.SubmitAgain: lambda state, command, actor, _now: submit_again(
        state, command, actor, check
    ),
    c.EditJob: _of_job(lambda state, job, command: _edit(state, job, command.spec)),
    c.HoldJob: _of_job(lambda state, job, _command: _hold(state, job)),
    c.ReleaseJob: _of_job(lambda state, job, _command: _release(state, job)),
    c.NoteJob: _of_job(lambda _state, job, command: _note(job, command.text)),
    c.NoteKept: _of_job(lambda _state, job, command: _kept(job, command)),
    c.NoteRestored: _of_job(lambda _state, job, command: _restored(job, command)),
    c.NoteOutputs: _of_job(lambda _state, job, command: _saved(job, command)),
    c.CancelJob: lambda state, command, actor, now: _cancel(
        state, _find(state, command.job), actor, now
    ),
    c.StopSweep: stop_sweep,
    c.ProposeTrial: _of_job(lambda state, job, command: propose(state, job, command.params)),
    c.SuspendJob: _of_job(lambda _state, job, _command: _suspend(job)),
    c.ResumeJob: _of_job(lambda _state, job, _command: _resume(job)),
    c.DrainNode: lambda state, command, _actor, _now: _drain(
        state, command.node, command.reason
    ),
    c.UndrainNode: lambda state, command, _actor, _now: _undrain(state, command.node),
    c.DeclareHealth: declare,
    c.ReserveNodes: lambda state, command, _actor, now: reserve(state, command, now),
    c.EndReservation: lambda state, command, _actor, _now: end(state, command.name),
    c.CreateDataset: decide_on_data,
    c.CloseVersion: decide_on_data,
    c.GrantData: decide_on_data,
    c.RevokeData: decide_on_data,
    c.RemoveData: decide_on_data,
    c.ApplyConfig: lambda state, command, _actor, now: _configure(state, command.config, now),
    c.FindNodes: lambda state, command, _actor, now: find_nodes(state, command, now),
    c.FindReservations: lambda state, command, _actor, now: find_reservations(
        state, command, now
    ),
}
