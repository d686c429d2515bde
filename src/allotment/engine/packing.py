"""Gangs that run beside those with their devices: what they gain, and when they are parted.

The rescheduler proposes a pair (`policies/rescheduling/packing.py`). From then on both are
measured together. A pair that does less at once than by turns is parted, and so is one that
has not told enough of its steps after some minutes, or by the end of the turn, or of which one
tells nothing while the other loses; none of these is tried again. What runs beside a gang holds
none of its devices: when that leaves them, for whatever reason, it is frozen again, and waits
for its turn as before.
"""

from collections.abc import Iterable, Iterator, Mapping

from allotment.core.slices import line_of
from allotment.engine.gains import AGAIN, OTHER
from allotment.engine.gauges import packs
from allotment.engine.state import State
from allotment.model import events as e
from allotment.model.events import Parted
from allotment.model.gains import (
    PARTS_OF_TURN,
    TRY_IN_TURN_MS,
    beats_turns,
    expected_together,
    is_worse,
    together,
)
from allotment.model.ids import JobId, NodeId
from allotment.model.quantity import Instant
from allotment.model.reports import PairReport

MAY_PART = (
    e.AttemptPlaced,
    e.AttemptSuspended,
    e.AttemptResumed,
    e.AttemptShrunk,
    e.AttemptEnded,
    e.AttemptPromoted,
    e.Reserved,
    e.StopRequested,
    e.ShrinkRequested,
    e.ConfigApplied,
    e.OthersSeen,
    e.Packed,
)


def packed(state: State, job: JobId, beside: JobId) -> e.Packed:
    """Return how a gang runs beside the one that has its devices."""
    one, other = state.cluster.gangs[job].gauge, state.cluster.gangs[beside].gauge
    mine, theirs = one.pace if one else None, other.pace if other else None
    assert one is not None, "only a measured gang is packed"
    assert mine is not None, "its rate is known"
    assert theirs is not None, "as is that of the other"
    return e.Packed(
        job,
        state.jobs[job].attempts[-1].no,
        beside,
        mine.rate,
        theirs.rate,
        expected_together(mine.busy_milli, theirs.busy_milli),
        beside in one.together,
    )


def compared(state: State, report: PairReport, now: Instant) -> Iterator[e.AnyEvent]:
    """Note what two gangs do at once, if that is new; part them if it is less than by turns."""
    job = state.jobs.get(report.job)
    attempt = job.attempt if job is not None else None
    packing = attempt.packing if attempt is not None else None
    if attempt is None or packing is None:
        return
    if (attempt.no, packing.beside) != (report.attempt, report.beside):
        return
    beside, no = packing.beside, attempt.no
    if not (report.rate and report.other_rate):
        # One tells nothing. The other need not bear with that, if it loses by it.
        if _loses(report.rate, packing.alone) or _loses(report.other_rate, packing.other_alone):
            yield e.Unpacked(report.job, no, beside, Parted.UNMEASURED)
        return
    rates = report.rate, packing.alone, report.other_rate, packing.other_alone
    gain, kept = together(*rates), beats_turns(*rates)
    change = abs(gain - packing.gain_milli)
    is_old = now - packing.noted_at >= AGAIN and change * OTHER > packing.gain_milli
    if kept and packing.gain_milli and not is_old:
        return
    yield e.PackingMeasured(report.job, no, beside, report.rate, report.other_rate, gain, kept)
    if not kept:
        yield e.Unpacked(report.job, no, beside, Parted.WORSE)


def _loses(rate: int, alone: int) -> bool:
    """Whether a gang does less beside another than by turns, if its rate is known."""
    return bool(rate) and is_worse(2 * rate, alone)


def try_over(state: State, job: JobId, now: Instant) -> Iterator[e.AnyEvent]:
    """Part a pair of which nothing is known after the longest time for a try."""
    attempt = state.jobs[job].attempts[-1]
    packing = attempt.packing
    if packing is not None and now >= (packing.try_ends or now + 1):
        yield e.Unpacked(job, attempt.no, packing.beside, Parted.UNMEASURED)


def with_partings(state: State, events: Iterable[e.AnyEvent]) -> Iterator[e.AnyEvent]:
    """Yield events, each to be applied before the next, and after them the partings."""
    for event in events:
        yield event
        if isinstance(event, MAY_PART):
            yield from _parted(state, event)


def _parted(state: State, event: e.AnyEvent) -> Iterator[e.Unpacked]:
    """Part the gangs that may not run beside others after an event. O(tasks), or O(all)."""
    for job in sorted(_concerned(state, event)):
        beside = state.packed[job]
        cause = _cause(state, job, beside)
        if cause is not None:
            yield e.Unpacked(job, state.jobs[job].attempts[-1].no, beside, cause)
    for node in sorted(_nodes(state, event)):
        while there := _short(state, node):
            newest = max(there, key=lambda job: (_since(state, job), job))
            no = state.jobs[newest].attempts[-1].no
            yield e.Unpacked(newest, no, state.packed[newest], Parted.CPU)


def _concerned(state: State, event: e.AnyEvent) -> list[JobId]:
    """Return the gangs beside others that may have to be parted: those of a job, or all."""
    if not isinstance(event, e.JobEvent):
        return list(state.packed)
    one, other = event.job, state.packed_with.get(event.job)
    return [job for job in (one, other) if job is not None and job in state.packed]


def _nodes(state: State, event: e.AnyEvent) -> Iterable[NodeId]:
    """Return where fewer CPUs may be spare after an event."""
    match event:
        case e.AttemptPlaced(slots=slots) | e.Reserved(slots=slots):
            return {slot.node for slot in slots}
        case e.AttemptResumed(job=job) | e.Packed(job=job):
            return {slot.node for slot in state.cluster.gangs[job].slots}
        case e.OthersSeen(node=node):
            return (node,)
        case e.ConfigApplied():
            return list(state.packed_on)
        case _:
            return ()


def _short(state: State, node: NodeId) -> Mapping[JobId, int]:
    """Return how much CPU of a node gangs use beside others, if it is not all spare."""
    there = state.packed_on.get(node)
    if not there or sum(there.values()) <= max(0, state.cluster.ledger.books[node].cpu):
        return {}
    return there


def _since(state: State, job: JobId) -> Instant:
    packing = state.jobs[job].attempts[-1].packing
    return packing.at if packing is not None else Instant(0)


def _tried_for_long(state: State, job: JobId) -> bool:
    """Whether a pair would have been measured by now, if both had told of their steps."""
    packing, gang = state.jobs[job].attempts[-1].packing, state.cluster.gangs[job]
    slice_ms = state.cluster.slices.get(line_of(gang.standing.shape))
    if packing is None or packing.try_ends is None or slice_ms is None:
        return False
    return state.at - packing.at >= min(TRY_IN_TURN_MS, slice_ms // PARTS_OF_TURN)


def _cause(state: State, job: JobId, beside: JobId) -> Parted | None:
    """Return why a gang may not run beside another any more; None where it may."""
    gangs = state.cluster.gangs
    gang, other = gangs.get(job), gangs.get(beside)
    if gang is None or gang.leaving or not gang.suspended:
        return Parted.OVER
    if other is None or other.leaving or not other.standing.runs or other.slots != gang.slots:
        in_vain = other is not None and other.suspended and _tried_for_long(state, job)
        return Parted.UNMEASURED if in_vain else Parted.LEFT
    peers = line_of(gang.standing.shape) == line_of(other.standing.shape)
    return None if peers and packs(state.cluster.tenants, state.jobs[job]) else Parted.QUEUE
