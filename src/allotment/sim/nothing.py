"""Why a simulation came to nothing: no job of it could run at all."""

from collections.abc import Sequence

from allotment.metrics.jobs import JobOutcome
from allotment.model.quantity import CPU, GIB, show_milli
from allotment.sim.cluster import CPUS_A_DEVICE, MEMORY_A_DEVICE
from allotment.sim.trace import Trace

MOST_NAMED = 5

BROUGHT = (
    f"(In NODESxDEVICES a node has {CPUS_A_DEVICE // CPU} CPU and {MEMORY_A_DEVICE // GIB} GiB "
    "for each device; a cluster file can say more.)"
)


def why_nothing_ran(
    rows: Sequence[JobOutcome], trace: Trace, capacity_milli: int, cluster: str
) -> str:
    """Return which jobs cannot run, what the largest asks for, and what there is.

    Empty when a job could run. `capacity_milli` is in thousandths of a device, `cluster` the
    cluster in words.
    """
    if not all(row.never for row in rows):
        return ""
    if not rows:
        return f"{trace.source}: no job to play.{_left_out(trace)}"
    named = ", ".join(row.id for row in rows[:MOST_NAMED])
    more = f" and {len(rows) - MOST_NAMED:,} more" if len(rows) > MOST_NAMED else ""
    need = any(job.need.cpu_milli or job.need.memory for job in trace.jobs)
    hint = f" {BROUGHT}" if need else ""
    largest = max(rows, key=lambda row: row.gpu_milli)
    return (
        f"{trace.source}: no job can ever run on this cluster ({named}{more}). The largest, "
        f"{largest.id}, asks for {show_milli(largest.gpu_milli)} devices; there are "
        f"{show_milli(capacity_milli)}: {cluster}. Of {rows[0].id}: {rows[0].never}{hint}"
        f"{_left_out(trace)}"
    )


def _left_out(trace: Trace) -> str:
    reasons = [f"{rows_of(count)} ({reason})" for reason, count in trace.dropped]
    return f" Left out: {', '.join(reasons)}." if reasons else ""


def rows_of(count: int) -> str:
    """Write a number of rows."""
    return f"{count:,} {'row' if count == 1 else 'rows'}"
