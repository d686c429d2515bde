"""Events in words, for people. One small function an event, or a format."""

from collections.abc import Callable
from typing import Any

from allotment.engine.evicted import demoted_for, took_turn
from allotment.engine.state import State
from allotment.explain.cell_words import listed
from allotment.model import events as e
from allotment.model.diagnosis import GpuUse
from allotment.model.health import HardwareHealth
from allotment.model.ids import NodeId
from allotment.model.node_runs import size_of
from allotment.model.others import NOBODY
from allotment.model.quantity import Instant, show_bytes, show_millis
from allotment.model.reasons import StopCause
from allotment.model.tenancy import Config
from allotment.service.gain_words import (
    PARTED,
    gained_words,
    move_words,
    packed_words,
    packing_words,
)
from allotment.service.suspension_words import suspended_words
from allotment.service.sweep_words import SweepEvent, of_sweep
from allotment.service.views import AttemptView

STOPPED = {
    StopCause.CANCELLED: "was cancelled",
    StopCause.EVICTED: "is evicted",
    StopCause.RUN_TIME: "reached its max_run_time",
    StopCause.START_TIME: "did not start in time",
    StopCause.ROLE_FAILED: "failed in one task; the rest stops",
    StopCause.ROLES_SUCCEEDED: "is complete; the remaining tasks stop",
    StopCause.NODE_LOST: "lost a node",
}


def clock_step(by_ms: int) -> str:
    """Return by how much a clock was set, and in which direction: `back by 1h`."""
    return f"{'back' if by_ms < 0 else 'forward'} by {show_millis(round(abs(by_ms), -3))}"


HELD_BACK = " (only an administrator can take more hardware out of use)"


def _by_date(config: Config) -> str:
    """Return which tenants have other values than usual, now that a date has come."""
    pairs = zip(config.tenants, config.written, strict=False)
    names = ", ".join(now.name for now, usual in pairs if now != usual)
    if not names:
        return "a date was reached: no change of the configuration is in force any more"
    return f"a date was reached: changes of the configuration are in force for {names}"


def in_words(event: e.AnyEvent, at: Instant, state: State) -> str:
    """Return one event as a sentence without its subject's number.

    What it says of the future is said as of `at`, when it happened.
    """
    plain = _PLAIN.get(type(event))
    return _WORDS[type(event)](event, state, at) if plain is None else plain.format(event)


# ── nodes, and what is set up ───────────────────────────────────────────────────────────


def _config(event: e.ConfigApplied, _state: State, _at: Instant) -> str:
    config = event.config
    if event.dated:
        return _by_date(config)
    return f"configured {len(config.nodes)} node(s), {len(config.tenants)} tenant(s)"


def _drained(event: e.NodeDrained, state: State, _at: Instant) -> str:
    why = f": {event.reason}" if event.reason else ""
    return f"node {_name(state, event.node)} drained{why}"


def _undrained(event: e.NodeUndrained, state: State, _at: Instant) -> str:
    return f"node {_name(state, event.node)} takes work again"


def _lost(event: e.NodeLost, state: State, _at: Instant) -> str:
    why = f": {event.reason}" if event.reason else ""
    return f"node {_name(state, event.node)} lost{why}"


def _recovered(event: e.NodeRecovered, state: State, _at: Instant) -> str:
    return f"node {_name(state, event.node)} is back"


def _others(event: e.OthersSeen, state: State, _at: Instant) -> str:
    name = _name(state, event.node)
    if event.use == NOBODY:
        return f"node {name}: nothing is used by others any more"
    return f"node {name}: {event.use.words()}"


def _content(event: e.ContentSeen, _state: State, _at: Instant) -> str:
    return f"{event.kind.value} {event.name} is on {size_of(event.nodes):,} node(s)"


def _clock(event: e.ClockStepped, _state: State, _at: Instant) -> str:
    return (
        f"the machine's clock was set {clock_step(event.by_ms)}: dates follow it from now "
        "on, durations are not affected"
    )


def _reservation(event: e.ReservationSet, state: State, _at: Instant) -> str:
    reservation = event.reservation
    names = ", ".join(_name(state, node) for node in reservation.nodes[:5])
    more = f" and {len(reservation.nodes) - 5} more" if len(reservation.nodes) > 5 else ""
    why = f": {reservation.reason}" if reservation.reason else ""
    return f"reservation {reservation.name} of {names}{more}{why}"


def _events_lost(event: e.EventsLost, _state: State, _at: Instant) -> str:
    count = f"{event.events} events" if event.events else "an unknown number of events"
    return f"the log continues without {count}: {event.because}"


# ── jobs ────────────────────────────────────────────────────────────────────────────────


def _reserved(event: e.Reserved, _state: State, _at: Instant) -> str:
    leaving = ", ".join(f"job {victim}" for victim in event.victims)
    return "got a place reserved" + (f"; leaving it: {leaving}" if leaving else "")


def _place_dropped(event: e.ReservedPlaceDropped, _state: State, _at: Instant) -> str:
    if event.taken_by:
        return f"its reserved place went to job {event.taken_by}"
    return "lost its reserved place"


def _requeued(event: e.JobRequeued, _state: State, _at: Instant) -> str:
    when = ", not before its back-off ends" if event.not_before else ""
    return f"queued again ({event.cause}){when}"


def _estimated(event: e.StartEstimated, _state: State, at: Instant) -> str:
    if event.expected is None:
        return "its start was estimated: at no known time"
    return f"estimated to start in {show_millis(max(0, event.expected - at))}"


def _explained(event: e.WaitExplained, _state: State, _at: Instant) -> str:
    return f"waits: {event.reason.value.replace('_', ' ')}"


def _noted(event: e.JobNoted, _state: State, _at: Instant) -> str:
    return f"noted: {event.text}" if event.text else "its note was removed"


def _kept(event: e.CheckpointKept, _state: State, _at: Instant) -> str:
    if event.trouble:
        return f"its checkpoint at step {event.step} cannot be kept: {event.trouble}"
    return f"its checkpoint at step {event.step} is kept as {event.dataset}"


def _outputs(event: e.OutputsSaved, _state: State, _at: Instant) -> str:
    if event.trouble:
        return f"its outputs cannot be saved: {event.trouble}"
    return f"its outputs are saved as {event.dataset}"


# ── attempts ────────────────────────────────────────────────────────────────────────────


def _placed(event: e.AttemptPlaced, state: State, _at: Instant) -> str:
    names = dict.fromkeys(_name(state, slot.node) for slot in event.slots)
    there = there_words(event, len(names))
    where = ", ".join(names)
    return f"attempt {event.attempt} placed on {where} ({event.entitlement.value}){there}"


def _demoted(event: e.AttemptDemoted, state: State, _at: Instant) -> str:
    return f"borrows now: {demoted_for(state, event.job, event.wanted_by)}"


def _suspended(event: e.AttemptSuspended, state: State, _at: Instant) -> str:
    other = event.wanted_by
    if other and took_turn(state, event.job, other):
        return f"paused for its turn: job {other} has its devices now"
    return f"suspended{f' for job {other}' if other else ''}; its devices are free"


def _task_suspended(event: e.TaskSuspended, _state: State, _at: Instant) -> str:
    return f"task {event.index} is suspended: {suspended_words(event.how)}"


def _shrinks(event: e.ShrinkRequested, _state: State, _at: Instant) -> str:
    other = event.wanted_by
    owner = f"; the other places go to job {other}" if other else ""
    return (
        f"shrinks to {event.tasks} task(s){owner}; to the others SIG{event.signal}, then "
        f"{show_millis(event.grace_ms)} grace"
    )


def _saved(event: e.CheckpointSaved, _state: State, _at: Instant) -> str:
    where = f": {event.path}" if event.path else ""
    return f"saved a checkpoint at step {event.step} ({event.progress_milli / 10:g} %){where}"


def _gained(event: e.GainMeasured, _state: State, _at: Instant) -> str:
    return gained_words(event.rate, event.before, event.expected, kept=event.kept)


def _packed(event: e.Packed, _state: State, _at: Instant) -> str:
    return packed_words(event.beside, event.expected_milli, proven=event.proven)


def _packing(event: e.PackingMeasured, _state: State, _at: Instant) -> str:
    return packing_words(event)


def _unpacked(event: e.Unpacked, _state: State, _at: Instant) -> str:
    return f"no longer runs beside job {event.beside}: {PARTED[event.cause]}"


def _stops(event: e.StopRequested, _state: State, _at: Instant) -> str:
    then = f"; SIG{event.signal}, then {show_millis(event.grace_ms)} grace"
    if event.wanted_by == event.job:
        return f"{move_words(event.gain)}{then}"
    owner = f"; its place goes to job {event.wanted_by}" if event.wanted_by else ""
    return f"{STOPPED[event.cause]}{owner}{then}"


def _ended(event: e.AttemptEnded, _state: State, _at: Instant) -> str:
    lost = f"; {show_millis(event.lost_ms)} of work lost" if event.lost_ms else ""
    return f"attempt {event.attempt} {event.outcome.value.replace('_', ' ')}{lost}"


# ── tasks ───────────────────────────────────────────────────────────────────────────────


def _ready(event: e.TaskReady, _state: State, _at: Instant) -> str:
    return f"task {event.index} is ready{_phases(event.phases)}"


def _started(event: e.TaskStarted, _state: State, _at: Instant) -> str:
    there = f" of job {event.engine_job} there" if event.engine_job else ""
    phases = _phases(event.phases)
    return f"task {event.index} runs as process {event.pid}{there}{phases}"


def _task_ended(event: e.TaskEnded, _state: State, _at: Instant) -> str:
    found = event.diagnosis
    how = "ok" if event.exit.ok else (found.cause if found else "failed")
    return f"task {event.index} ended: {how}"


def _measured(event: e.TaskMeasured, _state: State, _at: Instant) -> str:
    return f"task {event.index} had {gpu_words(event.gpu)}, as its engine measured"


def there_words(placed: e.AttemptPlaced | AttemptView, nodes: int) -> str:
    """Return what a job's nodes had: `, where its image is already`; '' for nothing."""
    counts = {
        "image": placed.with_image,
        "environment": placed.with_environment,
        "data": placed.with_data,
    }
    whole = [name for name, count in counts.items() if 0 < count == nodes]
    parts = [
        f"; {count} of {nodes} nodes have its {name} already"
        for name, count in counts.items()
        if 0 < count < nodes
    ]
    verb = "are" if len(whole) > 1 else "is"
    there = f", where its {' and '.join(whole)} {verb} already" if whole else ""
    return there + "".join(parts)


def gpu_words(gpu: GpuUse) -> str:
    """Return the highest use of devices: `GPUs at 170 % and 61 GiB at most`."""
    return f"GPUs at {gpu.busy_milli / 10:.0f} % and {show_bytes(gpu.memory)} at most"


def _held(event: e.TaskHeld, state: State, _at: Instant) -> str:
    ended, job = event.exit, state.jobs.get(event.job)
    code = f"exit code {ended.code}" if ended.code is not None else f"signal {ended.signal}"
    held = show_millis(job.spec.hold_on_failure_ms) if job else "a while"
    return (
        f"task {event.index} failed ({code}). The task and its job's place are kept "
        f"for {held}. Look inside: allot exec {event.job} --task {event.index}    "
        f"End it: allot cancel {event.job}"
    )


def _found(event: e.NodesFound, _state: State, _at: Instant) -> str:
    """Return which nodes joined, changed and left: `nodes of gpus: n3 joined, n1 left`."""
    parts = ((event.came, "joined"), (event.changed, "changed"), (event.left, "left"))
    told = "; ".join(f"{listed(names)} {how}" for names, how in parts if names)
    return f"nodes of {event.engine}: {told or 'their other properties changed'}"


def _health(event: e.HealthChanged, state: State, _at: Instant) -> str:
    """Return the new state of a node or device: `device 3 of node n1 is bad: …`."""
    name = f"node {_name(state, event.node)}"
    part = name if event.device is None else f"device {event.device} of {name}"
    again = " again" if event.now is HardwareHealth.HEALTHY else ""
    if event.now is HardwareHealth.DOUBTED:
        again = ", and still used" + (HELD_BACK if event.held_back else "")
    who = f" by {event.who}" if event.final and event.who else ""
    why = f": {event.words or event.code}" if event.words or event.code else ""
    declared = f" (declared{who})" if event.final else ""
    return f"{part} is {event.now.value}{again}{declared}{why}"


def _name(state: State, node: NodeId) -> str:
    nodes = state.cluster.nodes
    return nodes[node].name if node in nodes else f"#{node}"


def _phases(phases: tuple[e.Phase, ...]) -> str:
    if not phases:
        return ""
    return " (" + ", ".join(f"{phase.name} {show_millis(phase.ms)}" for phase in phases) + ")"


def _closed(event: e.DatasetVersionClosed, _state: State, _at: Instant) -> str:
    version = event.version
    return f"{_dataset(event)} has version {version.number}: {version.files} file(s)"


def _granted(event: e.DatasetGranted, _state: State, _at: Instant) -> str:
    grant = event.grant
    right = "write" if grant.write else "read"
    return f"{_dataset(event)}: {grant.to.value} {grant.name} may {right}"


def _revoked(event: e.DatasetRevoked, _state: State, _at: Instant) -> str:
    return f"{_dataset(event)}: {event.to.value} {event.who} lost its grant"


def _removed(event: e.DatasetRemoved, _state: State, _at: Instant) -> str:
    name = _dataset(event)
    return (
        f"{name}: version {event.version} was removed"
        if event.version
        else f"{name} was removed"
    )


def _dataset(event: e.DatasetEvent) -> str:
    return f"dataset {event.tenant}/{event.name}"


def _of_sweep(event: SweepEvent, _state: State, _at: Instant) -> str:
    return of_sweep(event)


# ── which words an event has ────────────────────────────────────────────────────────────

_PLAIN: dict[type[e.Event], str] = {
    e.ReservationEnded: "reservation {0.name} is over",
    e.DatasetCreated: "dataset {0.dataset.full} was created ({0.dataset.kind.value})",
    e.JobIdsSkipped: (
        "job ids continue at {0.next_job}: lower ids were used before the restore"
    ),
    e.JobSubmitted: "submitted as {0.spec.name} to {0.spec.tenant}/{0.spec.queue}",
    e.JobEdited: "edited",
    e.JobHeld: "held",
    e.JobReleased: "released",
    e.JobSucceeded: "succeeded",
    e.JobFailed: "failed: {0.diagnosis.cause}",
    e.JobCancelled: "cancelled by {0.by}",
    e.JobTimedOut: "timed out: {0.diagnosis.cause}",
    e.JobArchived: "archived",
    e.BarrierOpened: "every task is ready: start",
    e.AttemptStarted: "runs",
    e.AttemptPromoted: "is guaranteed again: its tenant has room",
    e.AttemptShrunk: "continues with {0.tasks} task(s)",
    e.ResumeRequested: "should resume",
    e.MemoryOffered: "offers to give its device memory back whenever it is suspended",
    e.AttemptResumed: "resumed",
    e.CheckpointRestored: "continues from step {0.step}: its checkpoint in {0.dataset}",
    e.PaceMeasured: "makes {0.rate:,} steps an hour with {0.tasks} task(s)",
    e.SweepSubmitted: "is a sweep of {0.trials:,} trial(s)",
}
"""Those that take no choice of words: a format, with the event as its only argument."""

_WORDS: dict[type[e.Event], Callable[[Any, State, Instant], str]] = {
    e.ConfigApplied: _config,
    e.NodesFound: _found,
    e.NodeDrained: _drained,
    e.NodeUndrained: _undrained,
    e.NodeLost: _lost,
    e.NodeRecovered: _recovered,
    e.HealthChanged: _health,
    e.OthersSeen: _others,
    e.ContentSeen: _content,
    e.ClockStepped: _clock,
    e.ReservationSet: _reservation,
    e.EventsLost: _events_lost,
    e.DatasetVersionClosed: _closed,
    e.DatasetGranted: _granted,
    e.DatasetRevoked: _revoked,
    e.DatasetRemoved: _removed,
    e.Reserved: _reserved,
    e.ReservedPlaceDropped: _place_dropped,
    e.JobRequeued: _requeued,
    e.StartEstimated: _estimated,
    e.WaitExplained: _explained,
    e.JobNoted: _noted,
    e.CheckpointKept: _kept,
    e.OutputsSaved: _outputs,
    e.AttemptPlaced: _placed,
    e.AttemptDemoted: _demoted,
    e.AttemptSuspended: _suspended,
    e.TaskSuspended: _task_suspended,
    e.ShrinkRequested: _shrinks,
    e.CheckpointSaved: _saved,
    e.GainMeasured: _gained,
    e.Packed: _packed,
    e.PackingMeasured: _packing,
    e.Unpacked: _unpacked,
    e.StopRequested: _stops,
    e.AttemptEnded: _ended,
    e.TaskReady: _ready,
    e.TaskStarted: _started,
    e.TaskHeld: _held,
    e.TaskEnded: _task_ended,
    e.TaskMeasured: _measured,
    e.TrialProposed: _of_sweep,
    e.RungReached: _of_sweep,
    e.TrialMeasured: _of_sweep,
    e.TrialStopped: _of_sweep,
    e.SweepStopped: _of_sweep,
}
