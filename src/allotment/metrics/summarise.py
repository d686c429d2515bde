"""From a run's rows and sums to its numbers."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from allotment.metrics import series as s
from allotment.metrics.jobs import Fate, JobOutcome
from allotment.metrics.summary import Summary, Target, WaitParts
from allotment.metrics.usage import Totals
from allotment.model.quantity import DEVICE, HOUR, SECOND

TARGET = Target()
NO_CAUSES: Mapping[str, WaitParts] = {}


def summarise(
    rows: Sequence[JobOutcome],
    totals: Totals,
    capacity_milli: int,
    *,
    causes: Mapping[str, WaitParts] = NO_CAUSES,
    target: Target = TARGET,
) -> Summary:
    """Return the numbers of a run.

    `capacity_milli` is the whole cluster in thousandths of a device; `causes` the waits of
    each tenant, as `WaitCauses.by_tenant` gives them. O(n log n) in jobs.
    """
    tenants: dict[str, s.Series] = {}
    for row in rows:
        series = tenants.get(row.tenant)
        if series is None:
            series = tenants[row.tenant] = s.Series()
        series.add(row)
    whole = s.Series.of_all(tenants.values())
    jct, delay, response = s.spread(whole.jct), s.spread(whole.delay), s.spread(whole.response)
    makespan = makespan_of(rows)
    span = totals.to_ms - totals.from_ms
    return Summary(
        jobs=len(rows),
        completed=len(whole.jct),
        failed=whole.others[Fate.FAILED],
        timed_out=whole.others[Fate.TIMED_OUT],
        cancelled=whole.others[Fate.CANCELLED],
        censored=whole.others[Fate.CENSORED],
        never_schedulable=whole.others[Fate.NEVER_SCHEDULABLE],
        unfinished=whole.others[Fate.UNFINISHED],
        avg_jct_s=jct.avg,
        p50_jct_s=jct.p50,
        p90_jct_s=jct.p90,
        p99_jct_s=jct.p99,
        avg_queue_delay_s=delay.avg,
        p50_queue_delay_s=delay.p50,
        p90_queue_delay_s=delay.p90,
        p99_queue_delay_s=delay.p99,
        avg_response_s=response.avg,
        p50_response_s=response.p50,
        p90_response_s=response.p90,
        p99_response_s=response.p99,
        makespan_s=makespan / SECOND,
        throughput_jobs_per_h=share(len(whole.jct) * HOUR, makespan),
        utilization=share(totals.busy_until_last_end, capacity_milli * makespan),
        fragmentation=share(totals.stranded, totals.idle),
        stranded=share(totals.stranded, capacity_milli * span),
        preemptions=whole.preemptions,
        device_h=whole.device_h,
        avg_waiting_jobs=share(totals.waiting, span),
        peak_waiting_jobs=totals.peak_waiting,
        peak_waiting_devices=totals.peak_waiting_milli / DEVICE,
        fairness=s.fairness(whole, tenants.values()),
        sla=s.sla(whole, target),
        wait_causes=added(causes.values()),
        tenants=tuple(
            s.tenant_block(name, tenants[name], causes.get(name, WaitParts()))
            for name in sorted(tenants)
        ),
    )


def makespan_of(rows: Sequence[JobOutcome]) -> int:
    """Return the time from the first submission to the last end, in ms; 0 when none ended."""
    first = min((row.submit_ms for row in rows if not row.never), default=0)
    last = max((row.end_ms for row in rows), default=-1)
    return max(0, last - first) if last >= 0 else 0


def share(part: float, whole: float) -> float:
    """Divide; nothing has no shares, and 0 is said instead."""
    return part / whole if whole else 0.0


def added(parts: Iterable[WaitParts]) -> WaitParts:
    """Add up waits field by field."""
    columns = zip(*(msgspec.structs.astuple(part) for part in parts), strict=True)
    return WaitParts(*(sum(column) for column in columns))
