"""The cluster over time: devices in use, jobs that wait.

A device is in use while at least one active job holds it or a part of it. What jobs hold is
counted apart, in thousandths: where parts of devices are given out, it is less.
"""

import msgspec

from allotment.metrics.capacity import Capacity
from allotment.metrics.curve import SAMPLES, Curve, Point, Sample
from allotment.metrics.devices import SharedDevices, wanted_by
from allotment.metrics.fold import FINISHED, Handlers
from allotment.model import events as e
from allotment.model.ledger import Slot
from allotment.model.quantity import Instant

PPM = 1_000_000
"""Crowding is counted in millionths, to stay with integers."""


class Totals(msgspec.Struct, frozen=True, gc=False):
    """Exact sums over time, from the first submission to the newest event.

    Sums of devices are in thousandths of a device × milliseconds, those of jobs in
    jobs × milliseconds.
    """

    from_ms: int = 0
    to_ms: int = 0
    busy: int = 0
    """Devices in use."""
    busy_until_last_end: int = 0
    """The part of `busy` before the last job that ended did so."""
    idle: int = 0
    """Devices, and parts of devices, on nodes that take work, held by no job."""
    stranded: int = 0
    """The part of `idle` that waiting jobs asked for and did not get."""
    waiting: int = 0
    peak_waiting: int = 0
    """The most jobs that waited at a time, for longer than an instant."""
    peak_waiting_milli: int = 0
    """The most devices that waiting jobs asked for at a time, in thousandths."""


class _JobNeed(msgspec.Struct, gc=False):
    """What an unfinished job needs, in thousandths of a device, and what it does."""

    need: int
    waits: bool
    parts: bool
    """Whether it asks for parts of devices, so that others may be on the same ones."""
    holds: bool = False
    slots: tuple[Slot, ...] = ()
    """Where it was placed last; known only with `parts`, or if it may vary."""
    waits_for: int = -1
    """What it needs when it waits, if it may hold more; else -1."""


class Usage:
    """Folds the log into `totals` and `samples`. O(1) an event, memory by unfinished jobs.

    An eligible job waits; one that is held does not. A gang is in use from its placing to its
    end; while suspended it is not. Give `capacity_milli` for a log whose configuration is
    not in it.
    """

    def __init__(self, capacity_milli: int = 0, most_samples: int = SAMPLES) -> None:
        self.capacity = Capacity(capacity_milli)
        self.busy_milli = self.held_milli = 0
        self.waiting = self.waiting_milli = 0
        self.crowd = 0
        """How much more was asked for than there is: millionths of the cluster × ms."""
        self._at = self._from = Instant(0)
        self._most = most_samples
        self._jobs: dict[int, _JobNeed] = {}
        self._shared = SharedDevices()
        self._curve: Curve | None = None
        """None until the first job comes."""
        self._steps = 0
        self._busy = self._waiting = 0
        self._idle = self._stranded = self._busy_until_last_end = 0
        self._peak = self._peak_milli = 0

    def free_milli(self) -> int:
        """Count the devices that no job holds, on nodes that take work, in thousandths."""
        free = self.capacity.open_milli - self.held_milli
        return free if free > 0 else 0

    def totals(self) -> Totals:
        """Return the sums up to the newest event."""
        return Totals(
            from_ms=self._from,
            to_ms=self._at,
            busy=self._busy,
            busy_until_last_end=self._busy_until_last_end,
            idle=self._idle,
            stranded=self._stranded,
            waiting=self._waiting,
            peak_waiting=self._peak,
            peak_waiting_milli=self._peak_milli,
        )

    def samples(self) -> tuple[Sample, ...]:
        """Return the curve from the first submission to the newest event."""
        if self._curve is None:
            return ()
        last = Sample(self._at, self.busy_milli, self.waiting)
        return self._curve.samples(self._point(), last)

    def handlers(self) -> Handlers:
        """Return the methods by the kind of event they take."""
        return {
            **self.capacity.handlers(),
            e.JobSubmitted: self._submitted,
            e.JobEdited: self._edited,
            e.JobHeld: self._held,
            e.JobReleased: self._lined_up,
            e.JobRequeued: self._lined_up,
            e.AttemptPlaced: self._placed,
            e.AttemptSuspended: self._gave_up,
            e.AttemptResumed: self._took_again,
            e.AttemptShrunk: self._shrunk,
            e.AttemptEnded: self._gave_up,
            **dict.fromkeys(FINISHED, self._finished),
        }

    def pass_to(self, at: Instant) -> None:
        """Take note that nothing changed until `at`."""
        length = at - self._at
        self._at = at
        if self._curve is None:
            return
        self._busy += self.busy_milli * length
        idle = self.capacity.open_milli - self.held_milli
        if idle > 0:
            self._idle += idle * length
        if self.waiting:
            self._wait(length, idle)
        self._steps += 1
        if self._steps >= self._curve.stride:
            self._steps = 0
            self._curve.add(self._point())

    def _wait(self, length: int, idle: int) -> None:
        """Add up what concerns waiting jobs only."""
        wanted = self.waiting_milli
        self._waiting += self.waiting * length
        if self.waiting > self._peak:
            self._peak = self.waiting
        if wanted > self._peak_milli:
            self._peak_milli = wanted
        if idle > 0:
            self._stranded += (idle if idle < wanted else wanted) * length
        total = self.capacity.total_milli
        over = wanted + self.held_milli - total
        if over > 0 and total:
            self.crowd += over * length * PPM // total

    def _point(self) -> Point:
        return Point(self._at, self._busy, self._waiting)

    # ── jobs ────────────────────────────────────────────────────────────────────────────

    def _submitted(self, at: Instant, event: e.JobSubmitted) -> None:
        if self._curve is None:
            self._from = self._at = at
            self._curve = Curve(Point(at), self._most)
        wanted = wanted_by(event.spec.roles)
        job = self._jobs[event.job] = _JobNeed(wanted.milli, not event.held, wanted.parts)
        if wanted.varies:
            job.waits_for = wanted.milli
        if not event.held:
            self.waiting += 1
            self.waiting_milli += wanted.milli

    def _edited(self, at: Instant, event: e.JobEdited) -> None:
        job = self._jobs.get(event.job)
        if job is None:
            return
        wanted = wanted_by(event.spec.roles)
        if job.waits:
            self.waiting_milli += wanted.milli - job.need
        job.need, job.parts = wanted.milli, wanted.parts
        job.waits_for = wanted.milli if wanted.varies else -1

    def _held(self, at: Instant, event: e.JobEvent) -> None:
        job = self._jobs.get(event.job)
        if job is not None and job.waits:
            job.waits = False
            self.waiting -= 1
            self.waiting_milli -= job.need

    def _lined_up(self, at: Instant, event: e.JobEvent) -> None:
        job = self._jobs.get(event.job)
        if job is not None and not job.waits:
            job.waits = True
            if job.waits_for >= 0:
                job.need = job.waits_for
            self.waiting += 1
            self.waiting_milli += job.need

    def _finished(self, at: Instant, event: e.JobEvent) -> None:
        self._busy_until_last_end = self._busy
        job = self._jobs.pop(event.job, None)
        if job is not None and job.waits:
            self.waiting -= 1
            self.waiting_milli -= job.need

    # ── gangs ───────────────────────────────────────────────────────────────────────────

    def _placed(self, at: Instant, event: e.AttemptPlaced) -> None:
        job = self._jobs.get(event.job)
        if job is None:
            return
        if job.waits:
            job.waits = False
            self.waiting -= 1
            self.waiting_milli -= job.need
        if job.parts or job.waits_for >= 0:
            job.slots = event.slots
        if job.waits_for >= 0:
            job.need = sum(slot.gpu_milli for slot in event.slots)
        self._take(job)

    def _took_again(self, at: Instant, event: e.AttemptResumed) -> None:
        job = self._jobs.get(event.job)
        if job is not None and not job.holds:
            self._take(job)

    def _take(self, job: _JobNeed) -> None:
        job.holds = True
        self.held_milli += job.need
        self.busy_milli += self._shared.take(job.slots) if job.parts else job.need

    def _gave_up(self, at: Instant, event: e.AttemptEvent) -> None:
        job = self._jobs.get(event.job)
        if job is not None and job.holds:
            job.holds = False
            self.held_milli -= job.need
            self.busy_milli -= self._shared.give(job.slots) if job.parts else job.need

    def _shrunk(self, at: Instant, event: e.AttemptShrunk) -> None:
        job = self._jobs.get(event.job)
        if job is None or not job.slots:
            return
        gone = job.slots[event.tasks :]
        less = sum(slot.gpu_milli for slot in gone)
        job.slots = job.slots[: event.tasks]
        job.need -= less
        if job.holds:
            self.held_milli -= less
            self.busy_milli -= self._shared.give(gone) if job.parts else less
