"""Which jobs are eligible: queued, and kept back by nothing of their own."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import islice

import msgspec

from allotment.metrics.fold import FINISHED, Handlers
from allotment.model import events as e
from allotment.model.dependencies import alternatives
from allotment.model.ids import JobId
from allotment.model.quantity import Instant
from allotment.model.spec import JobSpec

Told = Callable[[Instant, JobId], None]


class Waiter(msgspec.Struct, gc=False):
    """An unfinished job."""

    spec: JobSpec
    user: str
    queued: bool = True
    """Neither placed nor held."""
    not_before: int = 0
    after: set[JobId] = set()
    """Jobs whose end it waits for."""
    inside: bool = False
    """Counts against the cap of its array."""
    eligible: bool = False


class Eligible:
    """Tells which jobs become eligible, and which no longer are. O(log n) an event.

    A hold, a dependency, a back-off and the cap of an array keep a job back.
    """

    def __init__(self, joined: Told, left: Told) -> None:
        self.jobs: dict[JobId, Waiter] = {}
        self._joined, self._left = joined, left
        self._user = ""
        self._backoffs: list[tuple[int, JobId]] = []
        self._dependents: dict[JobId, list[JobId]] = {}
        self._inside: dict[JobId, int] = {}
        """Members eligible or placed, by the first job of a capped array."""
        self._outside: dict[JobId, dict[JobId, None]] = {}

    def handlers(self) -> Handlers:
        """Return the methods by the kind of event they take."""
        return {
            e.JobSubmitted: self._submitted,
            e.JobEdited: self._edited,
            e.JobHeld: self._held,
            e.JobReleased: self._released,
            e.JobRequeued: self._requeued,
            e.AttemptPlaced: self._placed,
            e.AttemptEnded: self._ended,
            **dict.fromkeys(FINISHED, self._finished),
        }

    def owned_by(self, user: str) -> None:
        """Take note whose the job is whose submission comes next."""
        self._user = user

    def pass_to(self, at: Instant) -> None:
        """Let the back-offs end that are over by then."""
        while self._backoffs and self._backoffs[0][0] <= at:
            due, id = heappop(self._backoffs)
            self._line_up(Instant(due), id)

    # ── events ──────────────────────────────────────────────────────────────────────────

    def _submitted(self, at: Instant, event: e.JobSubmitted) -> None:
        job = self.jobs[event.job] = Waiter(event.spec, self._user, queued=not event.held)
        self._watch(event.job, job)
        self._line_up(at, event.job)

    def _edited(self, at: Instant, event: e.JobEdited) -> None:
        job = self.jobs.get(event.job)
        if job is None:
            return
        self._step_out(at, event.job, job)
        job.spec = event.spec
        self._watch(event.job, job)
        self._line_up(at, event.job)

    def _watch(self, id: JobId, job: Waiter) -> None:
        job.after = {each.job for each in job.spec.depends_on if each.job in self.jobs}
        for other in job.after:
            self._dependents.setdefault(other, []).append(id)

    def _held(self, at: Instant, event: e.JobHeld) -> None:
        job = self.jobs.get(event.job)
        if job is not None:
            job.queued = False
            self._step_out(at, event.job, job)

    def _released(self, at: Instant, event: e.JobReleased) -> None:
        job = self.jobs.get(event.job)
        if job is not None:
            job.queued = True
            self._line_up(at, event.job)

    def _requeued(self, at: Instant, event: e.JobRequeued) -> None:
        job = self.jobs.get(event.job)
        if job is None:
            return
        job.queued, job.not_before = True, event.not_before
        if event.not_before > at:
            heappush(self._backoffs, (event.not_before, event.job))
        self._line_up(at, event.job)

    def _placed(self, at: Instant, event: e.AttemptPlaced) -> None:
        job = self.jobs.get(event.job)
        if job is not None:
            self._line_up(at, event.job)  # Its back-off may have ended at this instant.
            job.queued = False
            self._leave(at, event.job, job)

    def _ended(self, at: Instant, event: e.AttemptEnded) -> None:
        job = self.jobs.get(event.job)
        if job is not None:
            self._step_out(at, event.job, job)

    def _finished(self, at: Instant, event: e.JobEvent) -> None:
        job = self.jobs.get(event.job)
        if job is None:
            return
        job.queued = False
        self._step_out(at, event.job, job)
        del self.jobs[event.job]
        for other in self._dependents.pop(event.job, ()):
            waiting = self.jobs.get(other)
            if waiting is None:
                continue
            for each in waiting.spec.depends_on:
                if each.job == event.job and each.met_by(isinstance(event, e.JobSucceeded)):
                    met = alternatives(waiting.spec.depends_on, each)
                    waiting.after -= {need.job for need in met}
                    self._line_up(at, other)

    # ── waiting ────────────────────────────────────────────────────────────────────────

    def _line_up(self, at: Instant, id: JobId) -> None:
        """Let a job be eligible if nothing keeps it back."""
        job = self.jobs.get(id)
        if job is None or job.eligible or not job.queued or job.after or job.not_before > at:
            return
        array = job.spec.array
        if array is not None and array.max_running and not job.inside:
            if self._inside.get(array.parent, 0) >= array.max_running:
                self._outside.setdefault(array.parent, {})[id] = None
                return
            self._inside[array.parent] = self._inside.get(array.parent, 0) + 1
            job.inside = True
        job.eligible = True
        self._joined(at, id)

    def _leave(self, at: Instant, id: JobId, job: Waiter) -> None:
        if job.eligible:
            job.eligible = False
            self._left(at, id)

    def _step_out(self, at: Instant, id: JobId, job: Waiter) -> None:
        """Let a job be eligible no longer, and let the next of its array in."""
        self._leave(at, id, job)
        array = job.spec.array
        if array is None or not array.max_running:
            return
        outside = self._outside.get(array.parent, {})
        outside.pop(id, None)
        if job.inside:
            job.inside = False
            self._inside[array.parent] -= 1
        room = max(0, array.max_running - self._inside.get(array.parent, 0))
        for other in list(islice(outside, room)):
            del outside[other]
            self._line_up(at, other)
        if not outside and not self._inside.get(array.parent):
            self._outside.pop(array.parent, None)
            self._inside.pop(array.parent, None)
