"""The service's own event log as a trace: what came, and what really became of it.

What counts is decided here:

* A job comes when it was submitted, one that was held when it was released. It depends on
  those of its dependencies that are in the trace, and comes when the others have ended.
* Who shares the cluster, and each job as it was asked for, stand beside the trace.
* Its run time is what its attempts ran, suspension and start-up left out, less what was
  lost and done again. What the last attempt of a job that ended lost was not done again.
* Nodes are down when they were drained or lost (`outages.py`).
* What lies before `since_ms` is left out: a job that was there already comes at `since_ms`
  with the run time that it had from then on.
* A job that has not ended by `until_ms` is censored; one that never ran is left out.
* Roles that ask for the same are one kind of task. Unlike ones are added up, and their
  devices become tasks of one device with an even share of the rest, as in traces.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

import msgspec

from allotment.metrics.fold import FINISHED
from allotment.metrics.jobs import JobOutcome
from allotment.model import events as e
from allotment.model.cluster import Node
from allotment.model.dependencies import choices
from allotment.model.ids import JobId
from allotment.model.reasons import StopCause
from allotment.model.tenancy import Config
from allotment.sim.history_job import Job, closed, run
from allotment.sim.outages import Outage, Outages
from allotment.sim.readers.shape import NEVER_RAN
from allotment.sim.replayed_wishes import DatedConfig, Wishes, bare
from allotment.sim.trace import Ending, Trace, TraceJob
from allotment.sim.unplayed import Unplayed

ENDINGS: Mapping[type[e.Event], Ending] = {
    e.JobSucceeded: Ending.SUCCEEDED,
    e.JobFailed: Ending.FAILED,
    e.JobCancelled: Ending.CANCELLED,
    e.JobTimedOut: Ending.FAILED,
}


class History(msgspec.Struct, frozen=True):
    """A stretch of the log: the jobs as a trace, and how it went with them."""

    trace: Trace
    happened: tuple[JobOutcome, ...]
    """What really became of each job of the trace, in its order."""
    nodes: tuple[Node, ...]
    """The cluster as it was configured last; empty where the log does not say."""
    wishes: Wishes
    """What a trace cannot say: the tenants' shares, and each job as it was asked for."""
    start_ms: int
    """From placing a gang to its running: the median over attempts; 0 when none started."""
    stop_ms: int
    """From asking a borrower to leave to its being gone, likewise."""
    outages: tuple[Outage, ...] = ()
    """When nodes took no work, drained or lost."""


def history_of(records: Iterable[e.Record], since_ms: int, until_ms: int) -> History:
    """Fold a log into the jobs that were in line or ran between two instants, and their ends.

    `records` begin at the log's beginning: what was submitted before counts too. O(1) an event.
    """
    fold = _Fold(since_ms)
    for record in records:
        if record.at > until_ms:
            break
        fold.feed(record)
    return fold.result(until_ms)


class _Fold:
    """Reads the log once, and keeps what may be part of the stretch."""

    def __init__(self, since_ms: int) -> None:
        self._since = since_ms
        self._jobs: dict[JobId, Job] = {}
        self._nodes: tuple[Node, ...] = ()
        self._shares: list[tuple[int, Config]] = []
        """Configurations and since when, those of before the stretch but the last left out."""
        self._changes = 0
        self._outages = Outages(since_ms)
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._unplayed = Unplayed()

    # ── events ──────────────────────────────────────────────────────────────────────────

    def feed(self, record: e.Record) -> None:
        """Take the next event."""
        at, event = record.at, record.event
        if at >= self._since:
            self._unplayed.feed(at, event)
        if isinstance(event, e.JobSubmitted):
            self._submitted(at, event, record.actor.user)
        elif isinstance(event, e.JobEvent):
            job = self._jobs.get(event.job)
            if job is not None and isinstance(event, e.AttemptShrunk):
                self._shrunk(job, at, event.tasks)
            elif job is not None:
                self._of_job(job, at, event)
        else:
            self._of_cluster(at, event)

    def _submitted(self, at: int, event: e.JobSubmitted, user: str) -> None:
        ready_ms = -1 if event.held else at
        self._jobs[event.job] = Job(event.job, event.spec, user, ready_ms)

    def _of_job(self, job: Job, at: int, event: e.JobEvent) -> None:
        match event:
            case e.JobEdited(_, spec):
                job.spec = spec
            case e.JobHeld() | e.JobReleased():
                _hold(job, at, held=isinstance(event, e.JobHeld))
            case e.AttemptPlaced():
                job.kept_ms += max(0, job.last_ms - job.lost_ms)
                job.last_ms = job.lost_ms = 0
                job.placed_ms, job.tasks = at, len(event.slots)
            case e.AttemptStarted():
                self._started(job, at)
            case e.AttemptSuspended():
                self._stopped(job, at)
            case e.AttemptResumed():
                job.since_ms = at
            case e.StopRequested(cause=StopCause.EVICTED):
                job.asked_ms = at
            case e.AttemptEnded():
                self._attempt_ended(job, at, event)
            case _ if isinstance(event, FINISHED):
                self._finished(job, at, ENDINGS[type(event)])
            case _:
                pass

    def _started(self, job: Job, at: int) -> None:
        if at >= self._since and job.placed_ms >= 0:
            self._starts.append(at - job.placed_ms)
        job.placed_ms = -1
        run(job, at)

    def _attempt_ended(self, job: Job, at: int, event: e.AttemptEnded) -> None:
        if job.placed_ms >= 0 and event.outcome is e.Outcome.SUCCEEDED:
            # So quick that its tasks were never seen running all at once.
            run(job, job.placed_ms)
        if job.asked_ms >= self._since:
            self._stops.append(at - job.asked_ms)
        job.placed_ms = job.asked_ms = -1
        self._stopped(job, at)
        job.lost_ms = event.lost_ms
        if event.outcome is e.Outcome.EVICTED and at >= self._since:
            job.evictions += 1

    def _shrunk(self, job: Job, at: int, tasks: int) -> None:
        """Go on with fewer tasks: what is done counts as done by so few, in longer time."""
        running = job.since_ms >= 0
        self._stopped(job, at)
        job.last_ms = job.last_ms * job.tasks // max(1, tasks)
        job.tasks = tasks
        if running:
            job.since_ms = at

    def _stopped(self, job: Job, at: int) -> None:
        if job.since_ms >= 0:
            ran = max(0, at - max(job.since_ms, self._since))
            job.ran_ms += ran
            job.last_ms += ran
            job.since_ms = -1

    def _finished(self, job: Job, at: int, ending: Ending) -> None:
        job.end_ms, job.ending = at, ending
        if at < self._since:
            del self._jobs[job.id]

    def _of_cluster(self, at: int, event: e.AnyEvent) -> None:
        match event:
            case e.ConfigApplied(config):
                if at >= self._since and self._nodes and config.nodes != self._nodes:
                    self._changes += 1
                self._nodes = config.nodes
                self._outages.configured(config.nodes)
                if at < self._since:
                    self._shares.clear()
                self._shares.append((at, config))
            case e.NodeDrained() | e.NodeUndrained() | e.NodeLost() | e.NodeRecovered():
                self._outages.feed(at, event)
            case _:
                pass

    # ── result ──────────────────────────────────────────────────────────────────────────

    def result(self, until_ms: int) -> History:
        """Close what is open, and return what there is."""
        ran: list[Job] = []
        for job in self._jobs.values():
            self._stopped(job, until_ms)
            if job.start_ms >= 0 and (job.ran_ms or job.start_ms >= self._since):
                ran.append(job)
        comes = self._comes({job.id: job for job in ran})
        # Those they depend on come first: of one instant they are in order of their ids.
        ran.sort(key=lambda job: (comes[job.id], job.id))
        rows = [closed(job, comes[job.id], self._since) for job in ran]
        jobs = tuple(job for job, _ in rows)
        wishes = Wishes(tuple(bare(job.spec) for job in ran), self._shares_of(jobs))
        outages = self._outages.result(self._nodes, jobs[0].submit_ms if jobs else 0)
        never = len(self._jobs) - len(ran)
        all_of_it = (jobs, wishes, outages) if outages else (jobs, wishes)
        trace = Trace(
            source="event log",
            format="history",
            digest=sha256(msgspec.msgpack.encode(all_of_it)).hexdigest()[:16],
            jobs=jobs,
            dropped=((NEVER_RAN, never),) if never else (),
            warnings=tuple(self._warnings(jobs, outages)),
        )
        happened = tuple(row for _, row in rows)
        start_ms, stop_ms = _median(self._starts), _median(self._stops)
        return History(trace, happened, self._nodes, wishes, start_ms, stop_ms, outages)

    def _comes(self, replayed: Mapping[JobId, Job]) -> Mapping[JobId, int]:
        """Return when each job of the trace comes."""
        comes: dict[JobId, int] = {}

        def come(job: Job) -> int:
            if job.id not in comes:
                ready = job.ready_ms if job.ready_ms >= 0 else job.start_ms
                waits = [
                    min(
                        come(replayed[one.job])
                        if one.job in replayed
                        else self._end_of(one.job)
                        for one in choice
                    )
                    for choice in choices(job.spec.depends_on)
                ]
                comes[job.id] = max(ready, *waits, self._since)
            return comes[job.id]

        for id in sorted(replayed):
            come(replayed[id])
        return comes

    def _end_of(self, id: JobId) -> int:
        job = self._jobs.get(id)
        return job.end_ms if job is not None else -1

    def _shares_of(self, jobs: Sequence[TraceJob]) -> tuple[DatedConfig, ...]:
        first = jobs[0].submit_ms if jobs else 0
        shares = [DatedConfig(at - first, config) for at, config in self._shares]
        return tuple(shares) or (DatedConfig(0, Config(self._nodes, ())),)

    def _warnings(self, jobs: Sequence[TraceJob], outages: Iterable[Outage]) -> Iterable[str]:
        censored = sum(job.ending is Ending.CENSORED for job in jobs)
        if censored:
            yield (
                f"Not ended yet: {censored} of {len(jobs)} jobs. Their run times are lower "
                "bounds."
            )
        if self._changes:
            yield f"Changes of nodes meanwhile: {self._changes}. The last ones are replayed."
        if down := {outage.event.node for outage in outages}:
            yield (
                f"Nodes drained or lost for a while: {len(down)}. So they are in the replay, "
                "unless it has other machines."
            )
        yield from self._unplayed.words()


def _hold(job: Job, at: int, *, held: bool) -> None:
    """Take a job out of the line, or put it back; one that ever ran is past that."""
    if job.start_ms < 0:
        job.ready_ms = -1 if held else at


def _median(lengths: list[int]) -> int:
    ordered = sorted(lengths)
    return ordered[len(ordered) // 2] if ordered else 0
