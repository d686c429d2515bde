"""What happens by the clock: a heap of instants at which a job wants to be looked at.

A timer says only "look at this job then". Whether something is really due is asked of the
job's record, so a timer that outlived its reason does nothing.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

from allotment.engine.records import JobRecord
from allotment.model.health import RULES, Condition, Part
from allotment.model.ids import JobId
from allotment.model.lifecycle import QUEUED, AttemptState
from allotment.model.quantity import Instant
from allotment.model.reservations import Reservation
from allotment.model.spec import NEVER, JobSpec
from allotment.model.tenancy import Limits

STARTING, RUNNING = AttemptState.STARTING, AttemptState.RUNNING


class Timers:
    """The heap."""

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, JobId]] = []
        self._parts: list[tuple[Instant, Part]] = []
        """When hardware that is not healthy wants to be looked at."""
        self._reservations: list[tuple[Instant, str]] = []
        """When reservations begin and end, by their names."""
        self._dates: list[tuple[Instant]] = []
        """When the configuration changes by itself, in order."""

    def arm(self, at: int, job: JobId) -> None:
        """Look at the job at that instant."""
        heappush(self._heap, (Instant(at), job))

    def next(self) -> Instant | None:
        """Return when the next look is due."""
        if not self._parts and not self._reservations and not self._dates:
            return self._heap[0][0] if self._heap else None
        heaps = (self._heap, self._parts, self._reservations, self._dates)
        return min(heap[0][0] for heap in heaps if heap)

    def arm_reservations(self, reservations: Iterable[Reservation]) -> None:
        """Look at these reservations and at no others; their ends are in the engine's time."""
        self._reservations.clear()
        for reservation in reservations:
            self.arm_reservation(reservation)

    def arm_reservation(self, reservation: Reservation) -> None:
        """Look at a reservation when it begins, if jobs have to go then, and when it ends."""
        if reservation.evict:
            heappush(self._reservations, (Instant(reservation.begin), reservation.name))
        heappush(self._reservations, (Instant(reservation.end), reservation.name))

    def due_reservations(self, now: Instant) -> list[str]:
        """Take the reservations whose time has come, each once."""
        names: set[str] = set()
        while self._reservations and self._reservations[0][0] <= now:
            names.add(heappop(self._reservations)[1])
        return sorted(names)

    def arm_dates(self, dates: Iterable[Instant]) -> None:
        """Look at the configuration at these moments, and at no others."""
        self._dates = [(at,) for at in sorted(dates)]

    def due_date(self, now: Instant) -> bool:
        """Take the moments that have come; tell whether there was any."""
        left = [date for date in self._dates if date[0] > now]
        came, self._dates = len(left) < len(self._dates), left
        return came

    def arm_part(self, at: int, part: Part) -> None:
        """Look at a part of the hardware at that instant."""
        heappush(self._parts, (Instant(at), part))

    def arm_condition(self, condition: Condition) -> None:
        """Arm what becomes of a part if nothing more is heard of it."""
        if not condition.final:
            self.arm_part(condition.changed_at + RULES.heal_ms, condition.part)

    def due_parts(self, now: Instant) -> list[Part]:
        """Take the parts whose time has come, each once."""
        parts: set[Part] = set()
        while self._parts and self._parts[0][0] <= now:
            parts.add(heappop(self._parts)[1])
        return sorted(parts)

    def due(self, now: Instant) -> list[JobId]:
        """Take the jobs whose time has come, each once, lowest id first."""
        jobs: set[JobId] = set()
        while self._heap and self._heap[0][0] <= now:
            jobs.add(heappop(self._heap)[1])
        return sorted(jobs)

    def arm_job(self, job: JobRecord, limits: Limits) -> None:
        """Arm whatever this job's present state waits for."""
        spec = job.spec
        if spec.max_queue_ms == spec.max_run_ms == limits.phase_ms == NEVER and not (
            job.not_before and job.state.waiting
        ):
            return
        for at in deadlines(job, limits):
            heappush(self._heap, (Instant(at), job.id))


def deadlines(job: JobRecord, limits: Limits) -> list[int]:
    """Return the instants at which something may become due for this job."""
    found: list[int] = []
    if job.state.waiting:
        if job.spec.max_queue_ms != NEVER:
            found.append(job.queued_at + job.spec.max_queue_ms)
        if job.state is QUEUED and job.not_before:
            found.append(job.not_before)
    attempt = job.attempt
    if attempt is None:
        return found
    if attempt.state is STARTING and limits.phase_ms != NEVER:
        found.append(start_deadline(job, limits))
    if attempt.state is RUNNING and job.spec.max_run_ms != NEVER:
        found.append(attempt.running_since + job.spec.max_run_ms - attempt.ran_ms)
    return found


def start_deadline(job: JobRecord, limits: Limits) -> int:
    """Return by when an attempt must run: its phases', then its barrier's limit."""
    attempt = job.attempts[-1]
    if attempt.barrier_at:
        return attempt.barrier_at + limits.phase_ms
    pull_ms = limits.pull_ms if _has_to_come(job.spec) else 0
    if len(attempt.slots) == 1:
        return attempt.placed_at + pull_ms + limits.phase_ms
    return attempt.placed_at + pull_ms + limits.phase_ms + limits.barrier_ms


def _has_to_come(spec: JobSpec) -> bool:
    """Whether something may have to come from elsewhere before a job can start."""
    return bool(spec.image or spec.environment or any(use.fetched for use in spec.data))
