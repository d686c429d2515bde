"""Events in words, for people."""

from allotment.engine.evicted import demoted_for, took_turn
from allotment.engine.state import State
from allotment.explain.cell_words import listed
from allotment.model import events as e
from allotment.model.cluster import Node
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
from allotment.service.sweep_words import of_sweep

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


HELD_BACK = " (it needs an administrator to take more hardware out of use)"


def _by_date(config: Config) -> str:
    """Return which tenants have other values than usual, now that a date has come."""
    pairs = zip(config.tenants, config.written, strict=False)
    names = ", ".join(now.name for now, usual in pairs if now != usual)
    if not names:
        return "a date came: no change of the configuration is in force any more"
    return f"a date came: changes of the configuration are in force for {names}"


def in_words(  # noqa: C901, PLR0911, PLR0912, PLR0915
    event: e.AnyEvent, at: Instant, state: State
) -> str:
    """Return one event as a sentence without its subject's number.

    What it says of the future is said as of `at`, when it happened.
    """
    nodes = state.cluster.nodes
    match event:
        case e.NodesFound():
            return _found(event)
        case e.ConfigApplied(config, True):
            return _by_date(config)
        case e.ConfigApplied(config):
            return f"configured {len(config.nodes)} node(s), {len(config.tenants)} tenant(s)"
        case e.NodeDrained(node, reason):
            return f"node {_name(nodes, node)} drained" + (f": {reason}" if reason else "")
        case e.NodeUndrained(node):
            return f"node {_name(nodes, node)} takes work again"
        case e.NodeLost(node, reason):
            return f"node {_name(nodes, node)} lost" + (f": {reason}" if reason else "")
        case e.NodeRecovered(node):
            return f"node {_name(nodes, node)} is back"
        case e.HealthChanged():
            return _health(event, nodes)
        case e.OthersSeen(node, use):
            name = _name(nodes, node)
            if use == NOBODY:
                return f"node {name}: nothing is used by others any more"
            return f"node {name}: {use.words()}"
        case e.ImageSeen(image, nodes):
            return f"image {image} is on {size_of(nodes):,} node(s)"
        case e.ClockStepped(by_ms):
            return (
                f"the machine's clock was set {clock_step(by_ms)}: dates follow it from now "
                "on, durations are not affected"
            )
        case e.ReservationSet(reservation):
            names = ", ".join(_name(nodes, node) for node in reservation.nodes[:5])
            more = (
                f" and {len(reservation.nodes) - 5} more" if len(reservation.nodes) > 5 else ""
            )
            return f"reservation {reservation.name} of {names}{more}" + (
                f": {reservation.reason}" if reservation.reason else ""
            )
        case e.ReservationEnded(name):
            return f"reservation {name} is over"
        case e.DatasetCreated(dataset):
            return f"dataset {dataset.full} was made ({dataset.kind.value})"
        case e.DatasetEvent():
            return _of_data(event)
        case e.JobIdsSkipped(next_job):
            return f"job ids continue at {next_job}: lower ids were used before the restore"
        case e.EventsLost(because, events):
            count = f"{events} events" if events else "an unknown number of events"
            return f"the log continues without {count}: {because}"
        case e.JobSubmitted(_, spec):
            return f"submitted as {spec.name} to {spec.tenant}/{spec.queue}"
        case e.JobEdited():
            return "edited"
        case e.JobHeld():
            return "held"
        case e.JobReleased():
            return "released"
        case e.Reserved(_, _, _, victims):
            leaving = ", ".join(f"job {victim}" for victim in victims)
            return "got a place reserved" + (f"; leaving it: {leaving}" if leaving else "")
        case e.ReservedPlaceDropped(taken_by=taker):
            return (
                f"its reserved place went to job {taker}"
                if taker
                else "lost its reserved place"
            )
        case e.JobRequeued(_, cause, not_before):
            when = "" if not not_before else ", not before its back-off ends"
            return f"queued again ({cause}){when}"
        case e.JobSucceeded():
            return "succeeded"
        case e.JobFailed(_, diagnosis):
            return f"failed: {diagnosis.cause}"
        case e.JobCancelled(_, by):
            return f"cancelled by {by}"
        case e.JobTimedOut(_, diagnosis):
            return f"timed out: {diagnosis.cause}"
        case e.StartEstimated(_, _, expected, _):
            return _estimated(expected, at)
        case e.WaitExplained(_, reason):
            return f"waits: {reason.value.replace('_', ' ')}"
        case e.JobNoted(_, text):
            return f"noted: {text}" if text else "its note was removed"
        case e.CheckpointKept(_, _, step, dataset, trouble):
            if trouble:
                return f"its checkpoint at step {step} cannot be kept: {trouble}"
            return f"its checkpoint at step {step} is kept as {dataset}"
        case e.OutputsSaved(_, dataset, trouble):
            if trouble:
                return f"its outputs cannot be saved: {trouble}"
            return f"its outputs are saved as {dataset}"
        case e.JobArchived():
            return "archived"
        case e.AttemptPlaced(_, attempt, slots, entitlement):
            names = dict.fromkeys(_name(nodes, slot.node) for slot in slots)
            there = with_image_words(event.with_image, len(names))
            where = ", ".join(names)
            return f"attempt {attempt} placed on {where} ({entitlement.value}){there}"
        case e.BarrierOpened():
            return "every task is ready: start"
        case e.AttemptStarted():
            return "runs"
        case e.AttemptPromoted():
            return "is guaranteed again: its tenant has room"
        case e.AttemptDemoted(job=job, wanted_by=other):
            return f"borrows now: {demoted_for(state, job, other)}"
        case e.AttemptSuspended(job=mine, wanted_by=job) if job and took_turn(state, mine, job):
            return f"paused for its turn: job {job} has its devices now"
        case e.AttemptSuspended(wanted_by=job):
            return f"suspended{f' for job {job}' if job else ''}; its devices are free"
        case e.ShrinkRequested(_, _, tasks, signal, grace_ms, wanted_by):
            owner = f"; the other places go to job {wanted_by}" if wanted_by else ""
            return (
                f"shrinks to {tasks} task(s){owner}; to the others SIG{signal}, then "
                f"{show_millis(grace_ms)} grace"
            )
        case e.AttemptShrunk(_, _, tasks):
            return f"continues with {tasks} task(s)"
        case e.ResumeRequested():
            return "should resume"
        case e.AttemptResumed():
            return "resumed"
        case e.CheckpointSaved(_, _, path, step, progress):
            where = f": {path}" if path else ""
            return f"saved a checkpoint at step {step} ({progress / 10:g} %){where}"
        case e.CheckpointRestored(_, _, _, step, _, dataset):
            return f"goes on from step {step}: its checkpoint in {dataset}"
        case e.StopRequested(job=job, wanted_by=other) if job == other:
            grace = show_millis(event.grace_ms)
            return f"{move_words(event.gain)}; SIG{event.signal}, then {grace} grace"
        case e.PaceMeasured(_, _, tasks, rate):
            return f"makes {rate:,} steps an hour with {tasks} task(s)"
        case e.GainMeasured(_, _, rate, before, kept):
            return gained_words(rate, before, kept=kept)
        case e.Packed(beside=beside):
            return packed_words(beside, event.expected_milli, proven=event.proven)
        case e.PackingMeasured():
            return packing_words(event)
        case e.Unpacked(beside=beside, cause=cause):
            return f"no longer runs beside job {beside}: {PARTED[cause]}"
        case e.SweepSubmitted(trials=trials):
            return f"is a sweep of {trials:,} trial(s)"
        case (
            e.TrialProposed()
            | e.RungReached()
            | e.TrialMeasured()
            | e.TrialStopped()
            | e.SweepStopped()
        ):
            return of_sweep(event)
        case e.StopRequested(_, _, cause, signal, grace_ms, wanted_by):
            owner = f"; its place goes to job {wanted_by}" if wanted_by else ""
            return f"{STOPPED[cause]}{owner}; SIG{signal}, then {show_millis(grace_ms)} grace"
        case e.AttemptEnded(_, attempt, outcome, _, lost_ms):
            lost = f"; {show_millis(lost_ms)} of work lost" if lost_ms else ""
            return f"attempt {attempt} {outcome.value.replace('_', ' ')}{lost}"
        case e.TaskReady(_, _, index, phases):
            return f"task {index} is ready{_phases(phases)}"
        case e.TaskStarted(_, _, index, pid, phases, engine_job):
            there = f" of job {engine_job} there" if engine_job else ""
            return f"task {index} runs as process {pid}{there}{_phases(phases)}"
        case e.TaskHeld():
            return _held(event, state)
        case e.TaskEnded(_, _, index, exit_, diagnosis):
            how = "ok" if exit_.ok else (diagnosis.cause if diagnosis else "failed")
            return f"task {index} ended: {how}"
        case e.TaskMeasured(_, _, index, gpu):
            return f"task {index} had {gpu_words(gpu)}, by its engine's accounts"


def with_image_words(with_image: int, nodes: int) -> str:
    """Return which nodes had a job's image: `, where its image is already`; '' for none."""
    if with_image in (0, nodes):
        return ", where its image is already" if with_image else ""
    return f"; {with_image} of {nodes} nodes have its image already"


def gpu_words(gpu: GpuUse) -> str:
    """Return the highest use of devices: `GPUs at 170 % and 61 GiB at most`."""
    return f"GPUs at {gpu.busy_milli / 10:.0f} % and {show_bytes(gpu.memory)} at most"


def _held(event: e.TaskHeld, state: State) -> str:
    ended, job = event.exit, state.jobs.get(event.job)
    code = f"exit code {ended.code}" if ended.code is not None else f"signal {ended.signal}"
    held = show_millis(job.spec.hold_on_failure_ms) if job else "a while"
    return (
        f"task {event.index} failed ({code}). The task and its job's place are kept "
        f"for {held}. Look inside: allot exec {event.job} --task {event.index}    "
        f"End it: allot cancel {event.job}"
    )


def _estimated(expected: Instant | None, at: Instant) -> str:
    if expected is None:
        return "its start was estimated: at no known time"
    return f"estimated to start in {show_millis(max(0, expected - at))}"


def _found(event: e.NodesFound) -> str:
    """Return which nodes joined, changed and left: `nodes of gpus: n3 joined, n1 left`."""
    parts = ((event.came, "joined"), (event.changed, "changed"), (event.left, "left"))
    told = "; ".join(f"{listed(names)} {how}" for names, how in parts if names)
    return f"nodes of {event.engine}: {told or 'what is theirs changed'}"


def _health(event: e.HealthChanged, nodes: dict[NodeId, Node]) -> str:
    """Return the new state of a node or device: `device 3 of node n1 is bad: …`."""
    name = f"node {_name(nodes, event.node)}"
    part = name if event.device is None else f"device {event.device} of {name}"
    again = " again" if event.now is HardwareHealth.HEALTHY else ""
    if event.now is HardwareHealth.DOUBTED:
        again = ", and still used" + (HELD_BACK if event.held_back else "")
    who = f" by {event.who}" if event.final and event.who else ""
    why = f": {event.words or event.code}" if event.words or event.code else ""
    declared = f" (declared{who})" if event.final else ""
    return f"{part} is {event.now.value}{again}{declared}{why}"


def _name(nodes: dict[NodeId, Node], node: NodeId) -> str:
    return nodes[node].name if node in nodes else f"#{node}"


def _phases(phases: tuple[e.Phase, ...]) -> str:
    if not phases:
        return ""
    return " (" + ", ".join(f"{phase.name} {show_millis(phase.ms)}" for phase in phases) + ")"


def _of_data(event: e.DatasetEvent) -> str:
    name = f"dataset {event.tenant}/{event.name}"
    match event:
        case e.DatasetVersionClosed(version=version):
            return f"{name} has version {version.number}: {version.files} file(s)"
        case e.DatasetGranted(grant=grant):
            right = "write" if grant.write else "read"
            return f"{name}: {grant.to.value} {grant.name} may {right}"
        case e.DatasetRevoked(to=to, who=who):
            return f"{name}: {to.value} {who} lost its grant"
        case e.DatasetRemoved(version=number):
            return f"{name}: version {number} was removed" if number else f"{name} was removed"
        case _:
            raise TypeError(event)
