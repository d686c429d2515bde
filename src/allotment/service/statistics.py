"""From the event log to the numbers of a stretch of it, through the simulator's own folds."""

from collections.abc import Iterable, Iterator

from allotment.metrics.fold import Folds
from allotment.metrics.jobs import Jobs
from allotment.metrics.summarise import share, summarise
from allotment.metrics.summary import Summary
from allotment.metrics.usage import Usage
from allotment.metrics.waits import WaitCauses
from allotment.model import events as e
from allotment.model.errors import Code, Rejected
from allotment.model.quantity import DEVICE, HOUR, Instant
from allotment.model.tenancy import Tenant
from allotment.service.statistics_view import Statistics, TenantShare
from allotment.service.stretch import Stretch

MOST_JOBS = 500_000
"""Jobs of one stretch, which bounds the memory it takes."""


def statistics_of(
    records: Iterable[e.Record], since: Instant, until: Instant, next_job: int = 0
) -> Statistics:
    """Sum up what happened between two instants, both included.

    `records` are the whole log; `next_job` is the id that the next job will get, 0 where
    that is not known. Where retention took something of the stretch, the numbers are of
    what is left: see `known_since`. Raises Rejected when there are too many jobs.
    """
    stretch = Stretch(records, since, until)
    usage = Usage()
    jobs = Jobs(usage)
    causes = WaitCauses(usage, jobs)
    folds = Folds(usage, jobs, causes)
    folds.feed(_bounded(stretch, jobs))
    folds.pass_to(until)
    folds.feed(stretch.closing(until))
    stretch.known.close(next_job)
    first_at = stretch.known.first_at
    begin = first_at if since < first_at < until else since
    totals, capacity = usage.totals(), usage.capacity.total_milli
    numbers = summarise(jobs.rows, totals, capacity, causes=causes.by_tenant())
    return Statistics(
        since=begin,
        until=until,
        known_since=stretch.known.since(until),
        forgotten=stretch.known.forgotten,
        carried=stretch.carried,
        events=stretch.events,
        capacity_milli=capacity,
        in_use=share(totals.busy, capacity * (until - begin)),
        numbers=numbers,
        shares=tuple(_shares(stretch.standing.tenants, numbers, until - begin)),
    )


def _bounded(records: Iterable[e.Record], jobs: Jobs) -> Iterator[e.Record]:
    rows = jobs.rows
    for record in records:
        if len(rows) > MOST_JOBS:
            raise Rejected(
                Code.TOO_LARGE,
                f"More than {MOST_JOBS:,} jobs are too many to be summed up at once.",
                "Ask for a shorter period: a later --since.",
            )
        yield record


def _shares(
    tenants: Iterable[Tenant], numbers: Summary, length_ms: int
) -> Iterator[TenantShare]:
    """Return every tenant that is configured or had jobs."""
    guaranteed = {tenant.name: tenant.guaranteed.gpu_milli for tenant in tenants}
    device_h = {block.tenant: block.device_h for block in numbers.tenants}
    for name in sorted({*guaranteed, *device_h}):
        mean = share(device_h.get(name, 0.0) * HOUR * DEVICE, length_ms)
        yield TenantShare(name, guaranteed.get(name, 0), round(mean))
