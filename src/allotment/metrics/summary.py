"""One run, or one stretch of history, in numbers. docs/metrics.md defines each of them."""

import msgspec

from allotment.model.quantity import MINUTE, Millis


class Target(msgspec.Struct, frozen=True, gc=False):
    """The target: a start within `start_ms`, and an end within `rho` × the fair time."""

    start_ms: Millis = Millis(30 * MINUTE)
    rho: float = 2.0


class Sla(msgspec.Struct, frozen=True, gc=False):
    """The target, and the shares of completed jobs that met it."""

    target_start_s: float
    target_rho: float
    started_in_time: float
    fair: float
    both: float


class Fairness(msgspec.Struct, frozen=True, gc=False):
    """How evenly the cluster was shared."""

    jain: float
    """Over tenants, of their `progress`: 1 when all are treated alike."""
    worst_rho: float
    mean_rho: float


class WaitParts(msgspec.Struct, frozen=True, gc=False):
    """Waiting time by cause, in seconds, summed over jobs."""

    own_s: float = 0.0
    """Held, or in back-off: not waiting for the cluster."""
    quota_s: float = 0.0
    capacity_s: float = 0.0
    fragmentation_or_locality_s: float = 0.0
    order_s: float = 0.0


class TenantBlock(msgspec.Struct, frozen=True, gc=False):
    """One tenant's part of the whole."""

    tenant: str
    jobs: int
    completed: int
    failed: int
    timed_out: int
    cancelled: int
    censored: int
    never_schedulable: int
    unfinished: int
    device_h: float
    avg_jct_s: float
    avg_queue_delay_s: float
    p50_queue_delay_s: float
    p90_queue_delay_s: float
    p99_queue_delay_s: float
    avg_response_s: float
    preemptions: int
    mean_rho: float
    worst_rho: float
    progress: float
    """Fair time by time taken, over all its completed jobs."""
    wait_causes: WaitParts


class Summary(msgspec.Struct, frozen=True):
    """All numbers of one run. Means and percentiles are over completed jobs.

    The seven fields from `completed` to `unfinished` add up to `jobs`: `metrics.jobs.Fate`.
    """

    jobs: int
    completed: int
    failed: int
    timed_out: int
    cancelled: int
    censored: int
    never_schedulable: int
    unfinished: int
    avg_jct_s: float
    p50_jct_s: float
    p90_jct_s: float
    p99_jct_s: float
    avg_queue_delay_s: float
    p50_queue_delay_s: float
    p90_queue_delay_s: float
    p99_queue_delay_s: float
    avg_response_s: float
    p50_response_s: float
    p90_response_s: float
    p99_response_s: float
    makespan_s: float
    throughput_jobs_per_h: float
    utilization: float
    fragmentation: float
    stranded: float
    preemptions: int
    device_h: float
    avg_waiting_jobs: float
    peak_waiting_jobs: int
    peak_waiting_devices: float
    fairness: Fairness
    sla: Sla
    wait_causes: WaitParts
    tenants: tuple[TenantBlock, ...]
    """By name."""
    nothing_ran: str = ""
    """Why no job could run at all, in words; empty when one could."""


OF_COMPLETED = (
    "jct_s", "queue_delay_s", "response_s", "_rho", "jain", "progress", ".started_in_time",
    ".fair", ".both",
)  # fmt: skip


def is_of_completed(metric: str) -> bool:
    """Whether a number, as `fairness.jain`, says nothing when no job completed."""
    is_target = metric.startswith("sla.target")
    return not is_target and (
        metric.endswith(OF_COMPLETED) or metric.startswith("wait_causes.")
    )
