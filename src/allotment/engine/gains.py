"""What moves gained: the rate before is compared with the rate after, and a bad move undone.

A job tells of its steps, and a shell measures how fast they come. That is an event where it
says something new: the first reading of an attempt, or one that is quite different; in a queue
that packs, also the first of each turn. The first reading after a move decides: a job that is
slower than before is moved no more, and a gang that grew, and gained less than a quarter of
what was expected, gives its new tasks up again. One that was faster where it was goes back if
its place is still free (`policies/rescheduling/migrating.py`).
"""

from collections.abc import Iterator

from allotment.engine.gauges import move_before, packs
from allotment.engine.records import AttemptRecord, JobRecord
from allotment.engine.state import State
from allotment.model import events as e
from allotment.model.gains import is_worse
from allotment.model.ids import JobId
from allotment.model.lifecycle import AttemptState
from allotment.model.quantity import MINUTE, Instant, Millis
from allotment.model.reports import PaceReport

AGAIN = 5 * MINUTE
"""How long after a reading another is noted of the same gang."""
OTHER = 10
"""It is if it differs by more than one part in so many."""
GRACE = Millis(5_000)
"""How long a job has that asked for no grace time."""


def measured(state: State, report: PaceReport, now: Instant) -> Iterator[e.AnyEvent]:
    """Note how fast a job is, if that is new, and what its last move gained.

    Where gangs may run at once, the first reading of each turn is noted: a pair is compared
    with how fast both were just before.
    """
    job = state.jobs.get(report.job)
    attempt = job.attempt if job is not None else None
    if (
        job is None
        or attempt is None
        or (attempt.no, attempt.staying) != (report.attempt, report.tasks)
        or attempt.state is not AttemptState.RUNNING
        or attempt.shrink is not None
        or state.cluster.gangs[job.id].gauge is None
        or job.id in state.packed_with
    ):
        return  # Beside another it is not as fast as alone.
    pace = attempt.pace
    if pace is not None and not (
        pace.at < attempt.running_since and packs(state.cluster.tenants, job)
    ):
        change = abs(report.rate - pace.rate)
        if now - pace.at < AGAIN or change * OTHER <= pace.rate:
            return
    ends_at = Instant(now + report.left_ms if report.left_ms >= 0 else 0)
    yield e.PaceMeasured(
        job.id, attempt.no, report.tasks, report.rate, ends_at, report.busy_milli
    )
    yield from _compared(job, attempt, report.rate)


def _compared(job: JobRecord, attempt: AttemptRecord, rate: int) -> Iterator[e.AnyEvent]:
    """Compare the rate after a move with that before, once; undo the move if it is worse."""
    move = move_before(job)
    gain = move.gain if move is not None else None
    if gain is None or attempt.gained is not None:
        return
    before = len(job.attempts[-2].slots)
    if attempt.staying < before:
        return  # Others have taken more than it had got.
    kept = not is_worse(rate, gain.least(before, attempt.staying))
    yield e.GainMeasured(job.id, attempt.no, rate, gain.rate, kept, gain.expected)
    if not kept and before < attempt.staying:
        yield shrinking(job, before)


def shrinking(job: JobRecord, tasks: int, wanted_by: JobId | None = None) -> e.ShrinkRequested:
    """Return the order to an elastic gang to continue with its first tasks."""
    checkpoint = job.spec.checkpoint
    return e.ShrinkRequested(
        job.id,
        job.attempts[-1].no,
        tasks,
        signal=checkpoint.signal if checkpoint else "TERM",
        grace_ms=checkpoint.grace_ms if checkpoint else GRACE,
        wanted_by=wanted_by,
    )
