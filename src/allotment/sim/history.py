"""The service's own event log as a trace: what came, and what really became of it.

What counts is decided here:

* A job comes when it came in line: held ones when they were released, those that depend on
  others when the last of these ended. Elements of an array come when they are submitted; a
  cap on how many of them run at a time is not replayed.
* Its run time is what its attempts ran, suspension and start-up left out, less what was
  lost and done again. What the last attempt of a job that ended lost was not done again.
* What lies before `since_ms` is left out: a job that was there already comes at `since_ms`
  with the run time that it had from then on.
* A job that has not ended by `until_ms` is censored; one that never ran is left out.
* Roles that ask for the same are one kind of task. Unlike ones are added up, and their
  devices become tasks of one device with an even share of the rest, as in traces.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

import msgspec

from allotment.metrics.fold import FINISHED, devices_of
from allotment.metrics.jobs import JobOutcome
from allotment.model import events as e
from allotment.model.cluster import Node
from allotment.model.ids import JobId
from allotment.model.quantity import DEVICE, Millis
from allotment.model.spec import NEVER, JobSpec
from allotment.sim.history_shape import shape_of
from allotment.sim.readers.shape import NEVER_RAN
from allotment.sim.trace import Ending, Trace, TraceJob, most_first

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
    start_ms: int
    """From placing a gang to its running: the median over attempts; 0 when none started."""


def trace_of(records: Iterable[e.Record], since_ms: int, until_ms: int) -> Trace:
    """Fold a log into the jobs that were in line or ran between two instants.

    `records` begin at the log's beginning: what was submitted before counts too.
    """
    return history_of(records, since_ms, until_ms).trace


def history_of(records: Iterable[e.Record], since_ms: int, until_ms: int) -> History:
    """The same as `trace_of`, and what really happened. O(1) an event."""
    fold = _Fold(since_ms)
    for record in records:
        if record.at > until_ms:
            break
        fold.feed(record)
    return fold.result(until_ms)


class _Job(msgspec.Struct, gc=False):
    """A job on its way. Instants are -1 where it has not come to that."""

    id: JobId
    spec: JobSpec
    user: str
    held: bool
    waits_for: set[JobId]
    line_ms: int = -1
    start_ms: int = -1
    end_ms: int = -1
    ending: Ending = Ending.CENSORED
    placed_ms: int = -1
    since_ms: int = -1
    """Since when it runs."""
    ran_ms: int = 0
    """Over all attempts, from the beginning of the stretch."""
    kept_ms: int = 0
    """What earlier attempts ran and did not lose."""
    last_ms: int = 0
    """What the newest attempt ran."""
    lost_ms: int = 0
    """What it lost, to be done again if there is another."""
    evictions: int = 0


class _Fold:
    """Reads the log once, and keeps what may be part of the stretch."""

    def __init__(self, since_ms: int) -> None:
        self._since = since_ms
        self._jobs: dict[JobId, _Job] = {}
        self._dependents: dict[JobId, list[_Job]] = {}
        self._nodes: tuple[Node, ...] = ()
        self._changes = 0
        self._down: set[int] = set()
        """Nodes that took no work at some time of the stretch."""
        self._starts: list[int] = []
        self._capped = False

    # ── events ──────────────────────────────────────────────────────────────────────────

    def feed(self, record: e.Record) -> None:
        """Take the next event."""
        at, event = record.at, record.event
        if isinstance(event, e.JobSubmitted):
            self._submitted(at, event, record.actor.user)
        elif isinstance(event, e.JobEvent):
            job = self._jobs.get(event.job)
            if job is not None:
                self._of_job(job, at, event)
        else:
            self._of_cluster(at, event)

    def _submitted(self, at: int, event: e.JobSubmitted, user: str) -> None:
        before = {item.job for item in event.spec.depends_on if self._unfinished(item.job)}
        job = _Job(event.job, event.spec, user, event.held, before)
        self._jobs[event.job] = job
        for other in before:
            self._dependents.setdefault(other, []).append(job)
        if event.spec.array is not None and event.spec.array.max_running:
            self._capped = True
        _line_up(job, at)

    def _unfinished(self, id: JobId) -> bool:
        job = self._jobs.get(id)
        return job is not None and job.end_ms < 0

    def _of_job(self, job: _Job, at: int, event: e.JobEvent) -> None:
        match event:
            case e.JobEdited(_, spec):
                job.spec = spec
            case e.JobHeld():
                job.held = True
                job.line_ms = job.line_ms if job.start_ms >= 0 else -1
            case e.JobReleased():
                job.held = False
                _line_up(job, at)
            case e.AttemptPlaced():
                job.kept_ms += max(0, job.last_ms - job.lost_ms)
                job.last_ms = job.lost_ms = 0
                job.placed_ms = at
            case e.AttemptStarted():
                self._started(job, at)
            case e.AttemptSuspended():
                self._stopped(job, at)
            case e.AttemptResumed():
                job.since_ms = at
            case e.AttemptEnded():
                self._attempt_ended(job, at, event)
            case _ if isinstance(event, FINISHED):
                self._finished(job, at, ENDINGS[type(event)])
            case _:
                pass

    def _started(self, job: _Job, at: int) -> None:
        if at >= self._since and job.placed_ms >= 0:
            self._starts.append(at - job.placed_ms)
        job.placed_ms = -1
        _run(job, at)

    def _attempt_ended(self, job: _Job, at: int, event: e.AttemptEnded) -> None:
        if job.placed_ms >= 0 and event.outcome is e.Outcome.SUCCEEDED:
            # So quick that its tasks were never seen running all at once.
            _run(job, job.placed_ms)
        job.placed_ms = -1
        self._stopped(job, at)
        job.lost_ms = event.lost_ms
        if event.outcome is e.Outcome.EVICTED and at >= self._since:
            job.evictions += 1

    def _stopped(self, job: _Job, at: int) -> None:
        if job.since_ms >= 0:
            ran = max(0, at - max(job.since_ms, self._since))
            job.ran_ms += ran
            job.last_ms += ran
            job.since_ms = -1

    def _finished(self, job: _Job, at: int, ending: Ending) -> None:
        job.end_ms, job.ending = at, ending
        for other in self._dependents.pop(job.id, ()):
            other.waits_for.discard(job.id)
            _line_up(other, at)
        if at < self._since:
            del self._jobs[job.id]

    def _of_cluster(self, at: int, event: e.AnyEvent) -> None:
        match event:
            case e.ConfigApplied(config):
                if at >= self._since and self._nodes and config.nodes != self._nodes:
                    self._changes += 1
                self._nodes = config.nodes
            case e.NodeDrained(node) | e.NodeLost(node):
                self._down.add(node)
            case e.NodeUndrained(node) | e.NodeRecovered(node):
                if at < self._since:
                    self._down.discard(node)
            case _:
                pass

    # ── result ──────────────────────────────────────────────────────────────────────────

    def result(self, until_ms: int) -> History:
        """Close what is open, and give what there is."""
        rows: list[tuple[TraceJob, JobOutcome]] = []
        dropped: Counter[str] = Counter()
        for job in self._jobs.values():
            self._stopped(job, until_ms)
            if job.start_ms < 0 or (not job.ran_ms and job.start_ms < self._since):
                dropped[NEVER_RAN] += 1
            else:
                rows.append(_closed(job, self._since))
        rows.sort(key=lambda row: row[0].submit_ms)
        jobs = tuple(job for job, _ in rows)
        trace = Trace(
            source="event log",
            format="history",
            digest=sha256(msgspec.msgpack.encode(jobs)).hexdigest()[:16],
            jobs=jobs,
            dropped=most_first(dropped),
            warnings=tuple(self._warnings(jobs)),
        )
        starts = sorted(self._starts)
        start_ms = starts[len(starts) // 2] if starts else 0
        return History(trace, tuple(row for _, row in rows), self._nodes, start_ms)

    def _warnings(self, jobs: Sequence[TraceJob]) -> Iterable[str]:
        censored = sum(job.ending is Ending.CENSORED for job in jobs)
        if censored:
            yield f"Not ended yet: {censored} of {len(jobs)} jobs. What they ran is a least."
        if self._changes:
            yield f"Changes of nodes meanwhile: {self._changes}. The last ones are replayed."
        if self._down:
            yield f"Nodes drained or lost for a while: {len(self._down)}. The replay has them."
        if self._capped:
            yield "Caps on how many of an array run at a time are not replayed."


def _line_up(job: _Job, at: int) -> None:
    """Note when a job is first in line: neither held nor waiting for another."""
    if job.line_ms < 0 and not job.held and not job.waits_for:
        job.line_ms = at


def _run(job: _Job, at: int) -> None:
    job.since_ms = at
    if job.start_ms < 0:
        job.start_ms = at


def _closed(job: _Job, since_ms: int) -> tuple[TraceJob, JobOutcome]:
    spec = job.spec
    tasks, need, types = shape_of(spec)
    line_ms = job.line_ms if job.line_ms >= 0 else job.start_ms
    submit_ms = max(line_ms, since_ms)
    again_ms = job.lost_ms if job.ending is Ending.CENSORED else 0
    run_ms = max(1, job.kept_ms + job.last_ms - again_ms)
    trace_job = TraceJob(
        id=str(job.id),
        submit_ms=submit_ms,
        run_ms=run_ms,
        tasks=tasks,
        need=need,
        tenant=spec.tenant,
        user=job.user,
        name=spec.name,
        gpu_types=types,
        priority=spec.priority,
        preemptible=spec.preemptible,
        limit_ms=Millis(0) if spec.max_run_ms == NEVER else spec.max_run_ms,
        ending=job.ending,
    )
    gpu_milli = devices_of(spec)
    happened = JobOutcome(
        id=trace_job.id,
        tenant=spec.tenant,
        gpu_milli=gpu_milli,
        submit_ms=submit_ms,
        run_ms=Millis(run_ms),
        start_ms=max(job.start_ms, since_ms),
        end_ms=job.end_ms,
        attained_ms=job.ran_ms * gpu_milli // DEVICE,
        preemptions=job.evictions,
        censored=job.ending is Ending.CENSORED,
        ran_ms=job.ran_ms,
    )
    return trace_job, happened
