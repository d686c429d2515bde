"""Which waiting jobs a new configuration would keep from starting, by queue or share."""

from collections.abc import Iterator

import msgspec

from allotment.engine.state import State
from allotment.explain.caps import never_within
from allotment.explain.queues import why_never_due
from allotment.model.ids import JobId


class Stuck(msgspec.Struct, frozen=True):
    """A waiting job that could not start any more, and what would keep it."""

    job: JobId
    tenant: str
    why: str


def stuck(before: State, after: State) -> Iterator[Stuck]:
    """Return those that could start before, as far as queues and shares go. O(jobs)."""
    for job in before.jobs.values():
        if job.state.waiting:
            why = keeps_out(after, job.id)
            if why and not keeps_out(before, job.id):
                yield Stuck(job.id, job.spec.tenant, why)


def keeps_out(state: State, job: JobId) -> str:
    """Return what keeps a waiting job for as long as the configuration holds; '' if nothing."""
    cluster, record = state.cluster, state.jobs[job]
    tenant, queue = record.spec.tenant, record.spec.queue
    if tenant not in cluster.tenants:
        return f"tenant {tenant} is not in the configuration"
    shape = state.standing(record).shape
    found = never_within(cluster, shape)
    if found is not None:
        needs, most = found
        return f"it needs {needs}, and {most} at once"
    halted = cluster.trees[tenant].stopped(queue)
    if halted is not None:
        return f"queue {halted.name} is stopped"
    # What fits on no machine is told as such.
    return why_never_due(cluster, shape) if cluster.guarantee.fits_machines(shape) else ""
