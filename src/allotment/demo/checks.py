"""The demo's verdict: did all of it really happen? Read off the event log, never assumed.

Each check names the events that prove it, so that anybody can look them up.
"""

from collections.abc import Callable, Iterator

import msgspec

from allotment.demo import cast
from allotment.demo.cast import BASE, BROKEN, LARGE, OWNER, PROCESSES, TUNE
from allotment.demo.facts import Fact, Facts
from allotment.demo.setting import Pods
from allotment.demo.trained import Trained
from allotment.model import events as e
from allotment.model.ids import NodeId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import DEVICE, show_millis
from allotment.model.reasons import Blocked, Reason, StopCause

STOPPED_AT_CHECKPOINT = 85
CUDA_OOM = "cuda_out_of_memory"
LEAST_WAIT_MS = 1000
LEAST_ACCURACY = 0.9


class Evidence(msgspec.Struct):
    """What was seen besides the log: answers to `why`, a job's own output, the model."""

    facts: Facts
    tune_waited_for: Blocked | None = None
    resumed_at_step: int | None = None
    trained: Trained | None = None
    pods: Pods | None = None
    stopped_at_step: int | None = None
    """Of pods, of whose checkpoints the log says nothing."""


class Check(msgspec.Struct, frozen=True):
    """One thing that had to happen. `proof` names events, or what is missing."""

    what: str
    ok: bool
    proof: str


Verdict = tuple[bool, str]


def verdict(evidence: Evidence) -> list[Check]:
    """Check everything, in the order of the story."""
    made: list[Check] = []
    for what, check in _checks_of(evidence.pods):
        ok, proof = check(evidence)
        made.append(Check(what, ok, proof))
    return made


# ── starting, queueing, borrowing ───────────────────────────────────────────────────────


def _gang(evidence: Evidence) -> Verdict:
    """No process of any gang began before all of its gang were ready."""
    facts, proofs = evidence.facts, list[str]()
    for name in (LARGE, BASE, TUNE, OWNER):
        opened = facts.first(e.BarrierOpened, name, 1)
        if opened is None:
            return False, f"no barrier of {name} was opened"
        ready = [fact.seq for fact in facts.of(e.TaskReady, name, 1)]
        begun = [fact.seq for fact in facts.of(e.TaskStarted, name, 1)]
        barrier = opened[0].seq
        if len(ready) != PROCESSES[name] or max(ready) > barrier or min(begun) < barrier:
            return False, f"{name}: ready {ready}, barrier {barrier}, began {begun}"
        proofs.append(f"{name} {PROCESSES[name]} at #{barrier}")
    return True, ", ".join(proofs)


def _queued(evidence: Evidence) -> Verdict:
    facts, blocked = evidence.facts, evidence.tune_waited_for
    submitted, placed = facts.first(e.JobSubmitted, TUNE), facts.first(e.AttemptPlaced, TUNE)
    if submitted is None or placed is None:
        return False, f"{TUNE} was never placed"
    waited = placed[0].at - submitted[0].at
    told = blocked.reason.value if blocked else "nothing"
    ok = waited >= LEAST_WAIT_MS and blocked is not None and blocked.reason is Reason.CAPACITY
    between = f"#{submitted[0].seq} to #{placed[0].seq}"
    return ok, f"{TUNE} waited {show_millis(waited)}, {between}; `allot why` said {told}"


def _borrowed(evidence: Evidence) -> Verdict:
    placed = evidence.facts.first(e.AttemptPlaced, LARGE, 1)
    if placed is None:
        return False, f"{LARGE} was never placed"
    fact, event = placed
    ok = event.entitlement is Entitlement.OPPORTUNISTIC
    return ok, f"{LARGE} placed as {event.entitlement.value} at #{fact.seq}"


# ── a job that cannot succeed ───────────────────────────────────────────────────────────


def _given_up(evidence: Evidence) -> Verdict:
    """Exactly so many retries, each after a longer back-off, then the diagnosis."""
    facts = evidence.facts
    waits = [
        event.not_before - fact.at
        for fact, event in facts.each(e.JobRequeued, BROKEN)
        if event.cause == "retry"
    ]
    failed = facts.first(e.JobFailed, BROKEN)
    if failed is None:
        return False, f"{BROKEN} was not given up"
    code = failed[1].diagnosis.code
    ok = len(waits) == cast.RETRIES and waits == sorted(set(waits)) and code == CUDA_OOM
    after = " and ".join(show_millis(wait) for wait in waits)
    return ok, f"retried after {after}; given up as {code} at #{failed[0].seq}"


# ── the owner comes back ────────────────────────────────────────────────────────────────


def _reserved(evidence: Evidence) -> Verdict:
    facts = evidence.facts
    reserved = facts.first(e.Reserved, OWNER)
    if reserved is None:
        return False, f"nothing was reserved for {OWNER}"
    names = [facts.names.get(victim, "?") for victim in reserved[1].victims]
    ok = names == [LARGE] and reserved[1].entitlement is Entitlement.GUARANTEED
    return ok, f"#{reserved[0].seq} names {', '.join(names)} as the one to leave"


def _warned(evidence: Evidence) -> Verdict:
    facts = evidence.facts
    asked = facts.first(e.StopRequested, LARGE, 1)
    if asked is None:
        return False, f"{LARGE} was never told to stop"
    fact, event = asked
    ok = event.cause is StopCause.EVICTED and event.wanted_by == facts.id_of(OWNER)
    ok = ok and event.signal == "USR1" and event.grace_ms == cast.GRACE_S * 1000
    return ok, f"SIG{event.signal} with {show_millis(event.grace_ms)} grace at #{fact.seq}"


def _saved(evidence: Evidence) -> Verdict:
    """The checkpoint lies between the warning and the end, and nobody was ended by force."""
    facts = evidence.facts
    asked, ended = facts.first(e.StopRequested, LARGE, 1), facts.first(e.AttemptEnded, LARGE, 1)
    step, saved = _saved_step(evidence), _last_save(facts)
    if asked is None or step is None or ended is None:
        return False, "no checkpoint, or no end, of the first attempt"
    codes = [event.exit.code for _, event in facts.each(e.TaskEnded, LARGE, 1)]
    inside = saved is None or asked[0].seq < saved[0].seq < ended[0].seq
    ok = inside and codes == [STOPPED_AT_CHECKPOINT] * PROCESSES[LARGE]
    where = f"at #{saved[0].seq}" if saved else "by its output"
    return ok, f"step {step} {where}; exit codes {codes}"


def _saved_step(evidence: Evidence) -> int | None:
    """Return the step of the last checkpoint of the first attempt. The service is not told of
    those of pods: of them only the output says it."""
    if evidence.pods is not None:
        return evidence.stopped_at_step
    saved = _last_save(evidence.facts)
    return saved[1].step if saved else None


def _last_save(facts: Facts) -> tuple[Fact, e.CheckpointSaved] | None:
    return facts.last_of(e.CheckpointSaved, LARGE, 1)


def _requeued(evidence: Evidence) -> Verdict:
    facts = evidence.facts
    ended, again = facts.first(e.AttemptEnded, LARGE, 1), facts.first(e.JobRequeued, LARGE)
    if ended is None or again is None:
        return False, f"{LARGE} was not queued again"
    ok = ended[1].outcome is e.Outcome.EVICTED and again[1].cause == "evicted"
    lost = ended[1].lost_ms
    ok = ok and again[1].not_before == 0
    if evidence.pods is not None:
        return ok, f"evicted at #{ended[0].seq}, no retry spent"
    ok = ok and lost < _checkpoint_interval_ms()
    return ok, f"evicted at #{ended[0].seq}, {show_millis(lost)} of work lost, no retry spent"


def _checkpoint_interval_ms() -> int:
    """Without the warning, up to so much would have been lost."""
    return cast.CHECKPOINT_EVERY * cast.STEP_MS[LARGE]


def _handed_over(evidence: Evidence) -> Verdict:
    """The owner got its reserved place, once the borrower was gone, as its own."""
    facts = evidence.facts
    ended, reserved = facts.first(e.AttemptEnded, LARGE, 1), facts.first(e.Reserved, OWNER)
    placed = facts.first(e.AttemptPlaced, OWNER)
    if ended is None or reserved is None or placed is None:
        return False, f"{OWNER} was not placed"
    ok = placed[0].seq > ended[0].seq and placed[1].slots == reserved[1].slots
    ok = ok and placed[1].entitlement is Entitlement.GUARANTEED
    after = show_millis(placed[0].at - reserved[0].at)
    return ok, f"{OWNER} placed at #{placed[0].seq}, {after} after the reservation"


def _resumed(evidence: Evidence) -> Verdict:
    facts, step, trained = evidence.facts, evidence.resumed_at_step, evidence.trained
    wanted, done = _saved_step(evidence), facts.first(e.JobSucceeded, LARGE)
    if wanted is None or done is None or (trained is None and evidence.pods is None):
        return False, f"{LARGE} did not finish"
    ok = wanted > 0 and step == wanted
    ok = ok and (trained is None or trained.metrics.resumed_from_step == wanted)
    ok = ok and facts.first(e.AttemptStarted, LARGE, 2) is not None
    told = f"saved step {wanted}; its output says resumed at step {step}"
    return ok, f"{told}; finished at #{done[0].seq}"


def _begun_again(evidence: Evidence) -> Verdict:
    facts, done = evidence.facts, evidence.facts.first(e.JobSucceeded, LARGE)
    if done is None:
        return False, f"{LARGE} did not finish"
    ok = facts.first(e.AttemptStarted, LARGE, 2) is not None
    return ok, f"finished at #{done[0].seq}"


# ── all in all ──────────────────────────────────────────────────────────────────────────


def _others_finished(evidence: Evidence) -> Verdict:
    done = {name: evidence.facts.first(e.JobSucceeded, name) for name in (BASE, TUNE, OWNER)}
    proofs = [f"{name} #{found[0].seq}" for name, found in done.items() if found]
    return all(done.values()), ", ".join(proofs) or "none of them"


def _never_twice(evidence: Evidence) -> Verdict:
    """Count again, from the log alone, what every device held at every moment."""
    held: dict[tuple[NodeId, int], int] = {}
    slots: dict[int, tuple[Slot, ...]] = {}
    most, placements = 0, 0
    for fact in evidence.facts.all:
        match fact.event:
            case e.AttemptPlaced(job, _, taken):
                slots[job] = taken
                placements += 1
                for device, milli in _parts(taken):
                    held[device] = held.get(device, 0) + milli
                    most = max(most, held[device])
            case e.AttemptEnded(job):
                for device, milli in _parts(slots.pop(job, ())):
                    held[device] -= milli
            case _:
                continue
    ok = 0 < most <= DEVICE and not any(held.values())
    return ok, f"{placements} placements counted again; all given back"


def _parts(slots: tuple[Slot, ...]) -> Iterator[tuple[tuple[NodeId, int], int]]:
    for slot in slots:
        for device in slot.devices:
            yield (slot.node, device), slot.gpu_milli // len(slot.devices)


def _model(evidence: Evidence) -> Verdict:
    trained = evidence.trained
    if trained is None:
        return False, "no model was fetched"
    told = trained.metrics.held_out_accuracy
    ok = trained.accuracy >= LEAST_ACCURACY and abs(trained.accuracy - told) < 1e-9
    where = f"{trained.path.name}, {trained.weights} weights"
    return ok, f"{where}: {trained.accuracy:.1%} of held-out samples right, as the job said"


_CHECKS: tuple[tuple[str, Callable[[Evidence], Verdict]], ...] = (
    ("a gang starts together", _gang),
    ("a job waits, and the service says why", _queued),
    ("a team borrows what others leave idle", _borrowed),
    ("a failing job is retried, then given up with a diagnosis", _given_up),
    ("a tenant reclaims its guarantee and has a place reserved", _reserved),
    ("the borrower is warned", _warned),
    ("it saves a checkpoint and ends by itself", _saved),
    ("it is evicted and queued again", _requeued),
    ("its job gets the reserved place", _handed_over),
    ("the borrower finishes from its checkpoint", _resumed),
    ("all other jobs finish", _others_finished),
    ("no device was ever given twice", _never_twice),
    ("the trained model is fetched and works", _model),
)


def _checks_of(pods: Pods | None) -> Iterator[tuple[str, Callable[[Evidence], Verdict]]]:
    """Yield what there is to check: of pods the service sees no files, and without a volume no
    checkpoint is left."""
    for what, check in _CHECKS:
        if pods is None or check not in (_resumed, _model):
            yield what, check
        elif check is _resumed:
            is_kept = bool(pods.kept)
            yield (what, check) if is_kept else ("the borrower starts again", _begun_again)
