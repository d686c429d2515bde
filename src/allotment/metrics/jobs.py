"""Each job's times: when it came, started and ended, how, and what it got."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from allotment.metrics.devices import wanted_by
from allotment.metrics.fold import Handlers
from allotment.metrics.usage import PPM, Usage
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.ledger import Slot
from allotment.model.quantity import DEVICE, Instant, Millis

EVICTED: Final = e.Outcome.EVICTED


class Fate(StrEnum):
    """What became of a job. Every job has one; `Summary` counts each under its name."""

    COMPLETED = "completed"
    """It succeeded."""
    FAILED = "failed"
    """It failed and was given up."""
    TIMED_OUT = "timed_out"
    """A limit of its own ran out."""
    CANCELLED = "cancelled"
    CENSORED = "censored"
    """The trace itself saw no end of it."""
    NEVER_SCHEDULABLE = "never_schedulable"
    """It was refused: it can never run on this cluster."""
    UNFINISHED = "unfinished"
    """It had not ended when the log did."""


class JobOutcome(msgspec.Struct, gc=False):
    """One job of a run. Instants are on the log's clock; -1 where it never came to that.

    `attained_ms` is device-time: milliseconds times devices, over all its attempts.
    """

    id: str
    tenant: str
    gpu_milli: int
    submit_ms: int
    run_ms: Millis
    """Its run time in the trace; 0 where it was not known beforehand."""
    start_ms: int = -1
    """Its first start."""
    end_ms: int = -1
    attained_ms: int = 0
    preemptions: int = 0
    never: str = ""
    """Why it was refused: it can never run on this cluster. Empty for all others."""
    censored: bool = False
    ran_ms: int = 0
    """How long it ran, over all its attempts, suspension left out."""
    ideal_ms: int = 0
    """How long it would have taken had the cluster been divided evenly over its stay."""
    ended: Fate = Fate.COMPLETED
    """How it ended; says nothing while `end_ms` is -1. See `fate`."""

    @property
    def fate(self) -> Fate:
        """Return what became of it, all in all."""
        if self.never:
            return Fate.NEVER_SCHEDULABLE
        if self.censored:
            return Fate.CENSORED
        return self.ended if self.end_ms >= 0 else Fate.UNFINISHED


OTHERWISE: Mapping[type[e.Event], Fate] = {
    e.JobFailed: Fate.FAILED,
    e.JobTimedOut: Fate.TIMED_OUT,
    e.JobCancelled: Fate.CANCELLED,
}
"""How a job ends that does not succeed."""


class _Live(msgspec.Struct, gc=False):
    """What is kept of a job only until it ends."""

    row: JobOutcome
    crowd: int
    since: int = -1
    """Since when it runs; -1 while it does not."""
    started: bool = False
    varies: bool = False
    """Whether it may have more tasks than it waited for."""
    slots: tuple[Slot, ...] = ()
    """Where it was placed last; known only if it varies."""


def row_of(at: Instant, event: e.JobSubmitted) -> JobOutcome:
    """Begin a job's row from its submission."""
    spec = event.spec
    return JobOutcome(str(event.job), spec.tenant, wanted_by(spec.roles).milli, at, Millis(0))


class Jobs:
    """One row for each job, in order of submission. O(1) an event.

    `begin` makes a job's row: a caller that knows more of a job than its spec says (a trace
    knows its name and run time) passes its own. Crowding is read off `usage`, which must be
    fed by the same `Folds`.
    """

    def __init__(
        self,
        usage: Usage,
        begin: Callable[[Instant, e.JobSubmitted], JobOutcome] = row_of,
    ) -> None:
        self.rows: list[JobOutcome] = []
        self._usage = usage
        self._begin = begin
        self._live: dict[int, _Live] = {}

    def row(self, job: JobId) -> JobOutcome | None:
        """Return the row of an unfinished job; None where its submission was not seen."""
        live = self._live.get(job)
        return live.row if live is not None else None

    def handlers(self) -> Handlers:
        """Return the methods by the kind of event they take."""
        return {
            e.JobSubmitted: self._submitted,
            e.JobEdited: self._edited,
            e.AttemptPlaced: self._placed,
            e.AttemptStarted: self._started,
            e.AttemptSuspended: self._suspended,
            e.AttemptResumed: self._resumed,
            e.AttemptShrunk: self._shrunk,
            e.AttemptEnded: self._ended,
            e.JobSucceeded: self._finished,
            **dict.fromkeys(OTHERWISE, self._finished_otherwise),
        }

    def _submitted(self, at: Instant, event: e.JobSubmitted) -> None:
        row = self._begin(at, event)
        self.rows.append(row)
        varies = event.spec.roles[-1].least > 0
        self._live[event.job] = _Live(row, self._usage.crowd, varies=varies)

    def _edited(self, at: Instant, event: e.JobEdited) -> None:
        live = self._live.get(event.job)
        if live is not None:
            live.row.gpu_milli = wanted_by(event.spec.roles).milli

    def _placed(self, at: Instant, event: e.AttemptPlaced) -> None:
        live = self._live.get(event.job)
        if live is None:
            return
        if live.row.start_ms < 0:
            live.row.start_ms = at
        if live.varies:
            live.slots = event.slots
            live.row.gpu_milli = sum(slot.gpu_milli for slot in event.slots)

    def _started(self, at: Instant, event: e.AttemptStarted) -> None:
        live = self._live.get(event.job)
        if live is None:
            return
        live.since = at
        if not live.started:
            live.started = True
            live.row.start_ms = at

    def _suspended(self, at: Instant, event: e.AttemptSuspended) -> None:
        live = self._live.get(event.job)
        if live is not None:
            _stop(live, at)

    def _resumed(self, at: Instant, event: e.AttemptResumed) -> None:
        live = self._live.get(event.job)
        if live is not None:
            live.since = at

    def _shrunk(self, at: Instant, event: e.AttemptShrunk) -> None:
        live = self._live.get(event.job)
        if live is None:
            return
        if live.since >= 0:
            _stop(live, at)
            live.since = at
        live.row.gpu_milli = sum(slot.gpu_milli for slot in live.slots[: event.tasks])

    def _ended(self, at: Instant, event: e.AttemptEnded) -> None:
        live = self._live.get(event.job)
        if live is None:
            return
        _stop(live, at)
        if event.outcome is EVICTED:
            live.row.preemptions += 1

    def _finished(self, at: Instant, event: e.JobEvent) -> None:
        live = self._live.pop(event.job, None)
        if live is None:
            return
        row = live.row
        row.end_ms = at
        ideal = row.run_ms or row.ran_ms
        stay = at - row.submit_ms
        if stay and (crowd := self._usage.crowd - live.crowd):
            ideal += ideal * crowd // (stay * PPM)
        row.ideal_ms = ideal

    def _finished_otherwise(self, at: Instant, event: e.JobEvent) -> None:
        live = self._live.get(event.job)
        if live is not None:
            live.row.ended = OTHERWISE[type(event)]
            self._finished(at, event)


def _stop(live: _Live, at: Instant) -> None:
    """Add up what the job ran since it last began to."""
    if live.since < 0:
        return
    row, ran = live.row, at - live.since
    row.ran_ms += ran
    row.attained_ms += ran * row.gpu_milli // DEVICE
    live.since = -1
