"""How fast jobs are in queues that ask for it (grow, migrate, pack), for the books."""

from collections.abc import Mapping

from allotment.engine.records import JobRecord, Stop
from allotment.model.gains import Gauge
from allotment.model.quantity import Instant
from allotment.model.tenancy import Tenant

MOST_BAD_MOVES = 2
"""A job that failed to move so often, or once was slower for it, is moved no more."""


def gauge_of(tenants: Mapping[str, Tenant], job: JobRecord) -> Gauge | None:
    """Return how fast a placed job was measured to be; None where its queue does not ask."""
    tenant, role = tenants.get(job.spec.tenant), job.spec.roles[-1]
    queue = tenant.queue(job.spec.queue) if tenant is not None else None
    if queue is None or not (queue.grow_ms or queue.migrates or queue.packs):
        return None
    most = job.spec.task_count if role.elastic and queue.grow_ms else 0
    stops = (each.stop for each in job.attempts if each.stop is not None)
    moved = (stop.at for stop in stops if stop.wanted_by == job.id)
    return Gauge(
        most,
        job.attempts[-1].pace,
        tuple(sorted(job.rates.items())),
        max(moved, default=Instant(0)),
        stays=job.bad_moves >= MOST_BAD_MOVES,
        together=tuple(sorted(other for other, gained in job.beside.items() if gained)),
        apart=tuple(sorted(other for other, gained in job.beside.items() if not gained)),
    )


def packs(tenants: Mapping[str, Tenant], job: JobRecord) -> bool:
    """Whether the gangs of a job's queue may run at once on the same devices."""
    tenant = tenants.get(job.spec.tenant)
    queue = tenant.queue(job.spec.queue) if tenant is not None else None
    return queue is not None and queue.packs


def move_before(job: JobRecord) -> Stop | None:
    """Return the move by which a job came to its present attempt; None if it came otherwise."""
    stop = job.attempts[-2].stop if len(job.attempts) > 1 else None
    return stop if stop is not None and stop.wanted_by == job.id else None
