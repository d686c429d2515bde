"""One job on its way through a history, and what a trace says of it in the end."""

import msgspec

from allotment.metrics.devices import wanted_by
from allotment.metrics.jobs import JobOutcome
from allotment.model.ids import JobId
from allotment.model.quantity import DEVICE, Millis
from allotment.model.spec import NEVER, JobSpec
from allotment.sim.history_shape import shape_of
from allotment.sim.trace import Ending, TraceJob


class Job(msgspec.Struct, gc=False):
    """A job on its way. Instants are -1 where it has not come to that."""

    id: JobId
    spec: JobSpec
    user: str
    ready_ms: int = -1
    """Since when it is not held."""
    start_ms: int = -1
    end_ms: int = -1
    ending: Ending = Ending.CENSORED
    placed_ms: int = -1
    asked_ms: int = -1
    """When it was asked to leave."""
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
    tasks: int = 0
    """Of its newest attempt; 0 before its first."""


def run(job: Job, at: int) -> None:
    """Let a job run from now on."""
    job.since_ms = at
    if job.start_ms < 0:
        job.start_ms = at


def closed(job: Job, submit_ms: int, since_ms: int) -> tuple[TraceJob, JobOutcome]:
    """Return what the trace says of a job that ran, and what really became of it."""
    spec = job.spec.sized(job.tasks or job.spec.least_count)
    tasks, need, types = shape_of(spec)
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
        weight=spec.weight,
        preemptible=spec.preemptible,
        limit_ms=Millis(0) if spec.max_run_ms == NEVER else spec.max_run_ms,
        ending=job.ending,
    )
    gpu_milli = wanted_by(spec.roles).milli
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
