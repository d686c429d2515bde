"""A stretch of the event log as a log of its own, for folds that begin where it begins.

What stood at its beginning comes first, all at that instant: the configuration, the nodes
that took no work, and every unfinished job as far as it had come. So a job that was there
already counts from then on, and nothing of what lies before is kept but that.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from allotment.metrics.fold import FINISHED
from allotment.model import events as e
from allotment.model.ids import SYSTEM, Actor, JobId, NodeId, Seq
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant
from allotment.model.tenancy import Tenant


class _Job(msgspec.Struct, gc=False):
    """The newest events of an unfinished job that say how it stands, in their order."""

    submitted: e.JobSubmitted
    owner: Actor
    placed: e.AttemptPlaced | None = None
    started: e.AttemptStarted | None = None
    suspended: e.AttemptSuspended | None = None
    ended: e.AttemptEnded | None = None
    requeued: e.JobRequeued | None = None
    held: e.JobHeld | None = None

    def events(self) -> Iterator[e.AnyEvent]:
        """Return them in their order."""
        every = (
            self.submitted, self.placed, self.started, self.suspended, self.ended,
            self.requeued, self.held,
        )  # fmt: skip
        return (event for event in every if event is not None)


class Standing:
    """How the cluster and its unfinished jobs stand. O(1) an event, memory by unfinished jobs.

    Jobs whose submission was not seen are passed over.
    """

    def __init__(self) -> None:
        self._config: e.ConfigApplied | None = None
        self._closed: dict[NodeId, e.AnyEvent] = {}
        self._jobs: dict[JobId, _Job] = {}
        self._handlers: Mapping[type[e.Event], Callable[[Any], None]] = {
            e.ConfigApplied: self._configured,
            e.NodesFound: self._configured,
            e.NodeDrained: self._shut,
            e.NodeLost: self._shut,
            e.NodeUndrained: self._opened,
            e.NodeRecovered: self._opened,
            e.JobEdited: self._edited,
            e.JobHeld: self._held,
            e.JobReleased: self._released,
            e.JobRequeued: self._requeued,
            e.AttemptPlaced: self._placed,
            e.AttemptStarted: self._started,
            e.AttemptPromoted: self._promoted,
            e.AttemptDemoted: self._demoted,
            e.AttemptShrunk: self._shrunk,
            e.AttemptSuspended: self._suspended,
            e.AttemptResumed: self._resumed,
            e.AttemptEnded: self._ended,
            **dict.fromkeys(FINISHED, self._finished),
        }

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def tenants(self) -> tuple[Tenant, ...]:
        """Return the tenants as last configured."""
        return self._config.config.tenants if self._config is not None else ()

    def follow(self, record: e.Record) -> None:
        """Add the next event."""
        event = record.event
        if isinstance(event, e.JobSubmitted):
            self._jobs[event.job] = _Job(event, record.actor)
            return
        handle = self._handlers.get(type(event))
        if handle is not None:
            handle(event)

    def opening(self) -> Iterator[tuple[Actor, e.AnyEvent]]:
        """Return events that lead from nothing to this state; a job's are its owner's."""
        if self._config is not None:
            yield SYSTEM, self._config
        for closed in self._closed.values():
            yield SYSTEM, closed
        for job in self._jobs.values():
            for event in job.events():
                yield job.owner, event

    def closing(self) -> Iterator[tuple[Actor, e.AnyEvent]]:
        """Return events that stop what runs, so that what it got until now is counted."""
        for id, job in self._jobs.items():
            if job.started is not None and job.suspended is None and job.ended is None:
                yield SYSTEM, e.AttemptSuspended(id, job.started.attempt)

    # ── the cluster ─────────────────────────────────────────────────────────────────────

    def _configured(self, event: e.ConfigApplied) -> None:
        self._config = event

    def _shut(self, event: e.NodeDrained | e.NodeLost) -> None:
        self._closed[event.node] = event

    def _opened(self, event: e.NodeUndrained | e.NodeRecovered) -> None:
        self._closed.pop(event.node, None)

    # ── jobs ────────────────────────────────────────────────────────────────────────────

    def _edited(self, event: e.JobEdited) -> None:
        job = self._jobs.get(event.job)
        if job is not None:
            job.submitted = msgspec.structs.replace(job.submitted, spec=event.spec)

    def _held(self, event: e.JobHeld) -> None:
        job = self._jobs.get(event.job)
        if job is not None:
            job.held = event

    def _released(self, event: e.JobReleased) -> None:
        job = self._jobs.get(event.job)
        if job is None:
            return
        if job.held is None:
            job.submitted = msgspec.structs.replace(job.submitted, held=False)
        job.held = None

    def _requeued(self, event: e.JobRequeued) -> None:
        job = self._jobs.get(event.job)
        if job is not None:
            job.requeued = event

    def _placed(self, event: e.AttemptPlaced) -> None:
        job = self._jobs.get(event.job)
        if job is not None:
            self._jobs[event.job] = _Job(job.submitted, job.owner, event)

    def _started(self, event: e.AttemptStarted) -> None:
        job = self._jobs.get(event.job)
        if job is not None:
            job.started = event

    def _promoted(self, event: e.AttemptPromoted) -> None:
        self._entitle(event.job, Entitlement.GUARANTEED)

    def _demoted(self, event: e.AttemptDemoted) -> None:
        self._entitle(event.job, Entitlement.OPPORTUNISTIC)

    def _shrunk(self, event: e.AttemptShrunk) -> None:
        job = self._jobs.get(event.job)
        if job is not None and job.placed is not None:
            slots = job.placed.slots[: event.tasks]
            job.placed = msgspec.structs.replace(job.placed, slots=slots)

    def _suspended(self, event: e.AttemptSuspended) -> None:
        job = self._jobs.get(event.job)
        if job is not None:
            job.suspended = event

    def _resumed(self, event: e.AttemptResumed) -> None:
        job = self._jobs.get(event.job)
        if job is not None:
            job.suspended = None
            self._entitle(event.job, event.entitlement)

    def _entitle(self, id: JobId, entitlement: Entitlement) -> None:
        job = self._jobs.get(id)
        if job is not None and job.placed is not None:
            job.placed = msgspec.structs.replace(job.placed, entitlement=entitlement)

    def _ended(self, event: e.AttemptEnded) -> None:
        job = self._jobs.get(event.job)
        if job is not None:
            # An eviction before the stretch is none of the stretch.
            job.ended = e.AttemptEnded(event.job, event.attempt, e.Outcome.CANCELLED)

    def _finished(self, event: e.JobEvent) -> None:
        self._jobs.pop(event.job, None)


class Retained:
    """From when on a log is complete: what retention took out of it ended before.

    Ids are minted one by one, so a missing one is a forgotten job. The oldest ends go first,
    so nothing is missing after the first end that is still there.
    """

    def __init__(self) -> None:
        self.first_at = Instant(-1)
        """When the first event happened; -1 of an empty log."""
        self.forgotten = 0
        self._first_end = Instant(-1)
        self._next_job = 1

    def see(self, record: e.Record) -> None:
        """Add the next event of the whole log."""
        event = record.event
        if self.first_at < 0:
            self.first_at = record.at
        if isinstance(event, e.JobSubmitted):
            self._missing(event.job)
            self._next_job = event.job + 1
        elif isinstance(event, e.JobIdsSkipped):
            self._next_job = max(self._next_job, event.next_job)
        elif self._first_end < 0 and isinstance(event, FINISHED):
            self._first_end = record.at

    def close(self, next_job: int) -> None:
        """End the log; `next_job` is the id that the next job will get."""
        self._missing(next_job)

    def since(self, now: Instant) -> Instant:
        """Return the instant from which on nothing is missing; `now` if nothing is there."""
        found = self._first_end if self.forgotten else self.first_at
        return found if found >= 0 else now

    def _missing(self, next_job: int) -> None:
        self.forgotten += max(0, next_job - self._next_job)


class Stretch:
    """The records between two instants, both included, after what stood at the first.

    The records it is made of are the whole log, and are gone through once.
    """

    def __init__(self, records: Iterable[e.Record], since: Instant, until: Instant) -> None:
        self.standing = Standing()
        """How all stands where the reading is."""
        self.known = Retained()
        self.carried = 0
        """Jobs that were there already at the beginning."""
        self.events = 0
        """Of the stretch itself, read so far."""
        self._records = records
        self._since = since
        self._until = until

    def __iter__(self) -> Iterator[e.Record]:
        see, follow = self.known.see, self.standing.follow
        since, until = self._since, self._until
        opened = False
        for record in self._records:
            see(record)
            at = record.at
            if at > until:
                continue  # only to see what is missing
            if not opened and at >= since:
                opened = True
                yield from self._opening()
            follow(record)
            if opened:
                self.events += 1
                yield record
        if not opened:
            yield from self._opening()

    def closing(self, at: Instant) -> Iterator[e.Record]:
        """Stop what still runs, so that what it got until then is counted."""
        return _at(at, self.standing.closing())

    def _opening(self) -> Iterator[e.Record]:
        self.carried = len(self.standing)
        return _at(self._since, self.standing.opening())


def _at(at: Instant, events: Iterable[tuple[Actor, e.AnyEvent]]) -> Iterator[e.Record]:
    # Listed first: who takes them goes on with what they are made of.
    return (e.Record(Seq(0), at, actor, event) for actor, event in list(events))
