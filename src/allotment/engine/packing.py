"""Gangs that run beside those with their devices: what they gain, and when they are parted.

The rescheduler proposes a pair (`policies/rescheduling/packing.py`). From then on both are
measured together. A pair that does less at once than by turns is parted, and so is one that
has not told enough of its steps after some minutes; neither is tried again. What runs beside
a gang holds none of its devices: when that leaves them, for whatever reason, it is frozen
again, and waits for its turn as before.
"""

from collections.abc import Iterable, Iterator

from allotment.core.gang import Gang
from allotment.core.slices import cpus_are_spare
from allotment.engine.gains import AGAIN, OTHER
from allotment.engine.gauges import packs
from allotment.engine.state import State
from allotment.model import events as e
from allotment.model.events import Parted
from allotment.model.gains import beats_turns, expected_together, together
from allotment.model.ids import JobId
from allotment.model.quantity import Instant
from allotment.model.reports import PairReport

MAY_PART = (
    e.AttemptPlaced,
    e.AttemptSuspended,
    e.AttemptResumed,
    e.AttemptShrunk,
    e.AttemptEnded,
    e.Reserved,
    e.StopRequested,
    e.ShrinkRequested,
    e.ConfigApplied,
    e.Packed,
)


def packed(state: State, job: JobId, beside: JobId) -> e.Packed:
    """Return how a gang goes on beside the one that has its devices."""
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
    rates = report.rate, packing.alone, report.other_rate, packing.other_alone
    gain, kept = together(*rates), beats_turns(*rates)
    change = abs(gain - packing.gain_milli)
    is_old = now - packing.noted_at >= AGAIN and change * OTHER > packing.gain_milli
    if kept and packing.gain_milli and not is_old:
        return
    beside, no = packing.beside, attempt.no
    yield e.PackingMeasured(report.job, no, beside, report.rate, report.other_rate, gain, kept)
    if not kept:
        yield e.Unpacked(report.job, no, beside, Parted.WORSE)


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
            yield from _parted(state)


def _parted(state: State) -> Iterator[e.Unpacked]:
    """Part the gangs that may not run beside others as things are. O(such gangs)."""
    for job, beside in sorted(state.packed.items()):
        cause = _cause(state, job, beside)
        if cause is not None:
            yield e.Unpacked(job, state.jobs[job].attempts[-1].no, beside, cause)
    while state.packed and not cpus_are_spare(state.cluster.ledger.books, _there(state)):
        newest = max(state.packed, key=lambda job: (_since(state, job), job))
        no = state.jobs[newest].attempts[-1].no
        yield e.Unpacked(newest, no, state.packed[newest], Parted.CPU)


def _there(state: State) -> list[Gang]:
    return [state.cluster.gangs[job] for job in state.packed]


def _since(state: State, job: JobId) -> Instant:
    packing = state.jobs[job].attempts[-1].packing
    return packing.at if packing is not None else Instant(0)


def _cause(state: State, job: JobId, beside: JobId) -> Parted | None:
    """Return why a gang may not run beside another any more; None where it may."""
    gangs = state.cluster.gangs
    gang, other = gangs.get(job), gangs.get(beside)
    if gang is None or gang.leaving or not gang.suspended:
        return Parted.OVER
    if other is None or other.leaving or not other.standing.runs or other.slots != gang.slots:
        return Parted.LEFT
    return None if packs(state.cluster.tenants, state.jobs[job]) else Parted.QUEUE
