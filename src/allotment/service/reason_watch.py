"""Looks now and then for what jobs wait, and says what is new, for their history.

What a job's own events tell is not looked for: held, dependencies, back-offs, reserved
places. A look takes a few milliseconds at most and goes on where the last one ended, so a
long line costs the service no more than a short one: it is only looked through less often.
A change counts once it is seen twice in a row and has held for a while, which grows with
the wait: so one wait adds few events, however long it is.
"""

from collections import deque
from time import perf_counter

import msgspec

from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.lifecycle import WAITING, JobState
from allotment.model.quantity import SECOND, Instant
from allotment.model.reasons import Reason
from allotment.service.why import reason_of

LOOK_EVERY_S = 1.0
LOOK_S = 0.005
"""How long one look takes at most, but for the job it is at."""
FIRST_MS = SECOND
"""A job that waits no longer is not looked at."""
STANDS_MS = 2 * SECOND
"""How long a new reason has to hold to count, at least."""
STANDS_PART = 20
"""… and which part of the wait so far."""

TOLD_BY_EVENTS = frozenset(
    {Reason.HELD, Reason.DEPENDENCY, Reason.BACKOFF, Reason.WAITING_FOR_VICTIMS}
)


class _Doubt(msgspec.Struct, frozen=True, gc=False):
    """A reason that is not the one recorded, when it was first seen, and when it counts."""

    reason: Reason
    since: Instant
    counts_at: Instant


class ReasonWatch:
    """Remembers where in the line it is, and what it saw once."""

    def __init__(self, state: State, look_s: float = LOOK_S) -> None:
        self._state = state
        self._look_s = look_s
        self._line: deque[JobId] = deque()
        self._doubts: dict[JobId, _Doubt] = {}

    def look(self, now: Instant) -> list[e.WaitExplained]:
        """Look at as many jobs as there is time for, each once; return what is new."""
        until = perf_counter() + self._look_s
        found: list[e.WaitExplained] = []
        ripe = deque(job for job, doubt in self._doubts.items() if doubt.counts_at <= now)
        if not self._line:
            self._line.extend(job.id for job in self._state.jobs.values() if _waits(job))
        while ripe or self._line:
            job = (ripe or self._line).popleft()
            event = self._look_at(job, now)
            if event is not None:
                found.append(event)
            if perf_counter() > until:
                break
        return found

    def _look_at(self, job: JobId, now: Instant) -> e.WaitExplained | None:
        """Return what is new of one job, or keep in mind what may be."""
        doubt = self._doubts.pop(job, None)
        record = self._state.jobs.get(job)
        if record is None or not _waits(record):
            return None
        waited = now - _since(record)
        reason = reason_of(self._state, record, now) if waited >= FIRST_MS else None
        if reason is None or reason in TOLD_BY_EVENTS or reason.value == record.waits_for:
            return None
        if not record.waits_for:
            return e.WaitExplained(job, reason, now)
        if doubt is None or doubt.reason is not reason:
            stands = max(STANDS_MS, waited // STANDS_PART)
            self._doubts[job] = _Doubt(reason, now, Instant(now + stands))
        elif doubt.counts_at <= now:
            return e.WaitExplained(job, reason, doubt.since)
        else:
            self._doubts[job] = doubt
        return None


def _waits(job: JobRecord) -> bool:
    if job.state is JobState.SUSPENDED:
        return job.attempts[-1].wants_resume
    return job.state in WAITING


def _since(job: JobRecord) -> Instant:
    if job.state is JobState.SUSPENDED:
        return job.attempts[-1].suspended_at
    return job.queued_at
