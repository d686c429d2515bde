"""What means and percentiles are taken of: one entry for each job that completed."""

from collections import Counter
from collections.abc import Iterable
from typing import Self

import msgspec

from allotment.metrics.jobs import Fate, JobOutcome
from allotment.metrics.numbers import jain, mean, percentile
from allotment.metrics.summary import Fairness, Sla, Target, TenantBlock, WaitParts
from allotment.model.quantity import HOUR, SECOND


class Spread(msgspec.Struct, frozen=True, gc=False):
    """A series in four numbers, in seconds."""

    avg: float
    p50: float
    p90: float
    p99: float


class Series:
    """Jobs, in columns of milliseconds."""

    def __init__(self) -> None:
        self.jobs = self.preemptions = self.attained_ms = 0
        self.others: Counter[Fate] = Counter()
        """How many jobs did not complete, by what became of them."""
        self.jct: list[int] = []
        self.delay: list[int] = []
        self.response: list[int] = []
        self.ideal: list[int] = []

    def add(self, row: JobOutcome) -> None:
        """Count a job; its times only if it completed."""
        self.jobs += 1
        self.preemptions += row.preemptions
        self.attained_ms += row.attained_ms
        fate = row.fate
        if fate is not Fate.COMPLETED:
            self.others[fate] += 1
            return
        jct = row.end_ms - row.submit_ms
        self.jct.append(jct)
        self.delay.append(jct - row.ran_ms)
        self.response.append(row.start_ms - row.submit_ms)
        self.ideal.append(row.ideal_ms)

    @classmethod
    def of_all(cls, parts: Iterable["Series"]) -> Self:
        """Put several together."""
        whole = cls()
        for part in parts:
            whole.jobs += part.jobs
            whole.preemptions += part.preemptions
            whole.attained_ms += part.attained_ms
            whole.others.update(part.others)
            whole.jct += part.jct
            whole.delay += part.delay
            whole.response += part.response
            whole.ideal += part.ideal
        return whole

    @property
    def device_h(self) -> float:
        """Device-time attained, in device-hours."""
        return self.attained_ms / HOUR

    def rhos(self) -> list[float]:
        """Return the finish-time fairness of each job that ran at all."""
        pairs = zip(self.jct, self.ideal, strict=True)
        return [jct / ideal for jct, ideal in pairs if ideal > 0]

    def progress(self) -> float:
        """Return fair time by time taken over all jobs; 1 when they took none."""
        taken = sum(self.jct)
        return sum(self.ideal) / taken if taken else 1.0


def completed(row: JobOutcome) -> bool:
    """Whether a job enters the means: it succeeded."""
    return row.fate is Fate.COMPLETED


def spread(values: list[int]) -> Spread:
    """Sum up a series of milliseconds."""
    ordered = sorted(values)
    return Spread(
        mean(ordered) / SECOND,
        percentile(ordered, 50) / SECOND,
        percentile(ordered, 90) / SECOND,
        percentile(ordered, 99) / SECOND,
    )


def sla(series: Series, target: Target) -> Sla:
    """Count the jobs for which the target was met."""
    in_time = [wait <= target.start_ms for wait in series.response]
    fair = [
        jct <= target.rho * ideal for jct, ideal in zip(series.jct, series.ideal, strict=True)
    ]
    both = [a and b for a, b in zip(in_time, fair, strict=True)]
    return Sla(target.start_ms / SECOND, target.rho, mean(in_time), mean(fair), mean(both))


def fairness(series: Series, tenants: Iterable[Series]) -> Fairness:
    """Sum up how evenly time was shared out, between tenants and between jobs."""
    rhos = series.rhos()
    progress = [tenant.progress() for tenant in tenants if tenant.jct]
    return Fairness(jain(progress), max(rhos, default=0.0), mean(rhos))


def tenant_block(tenant: str, series: Series, causes: WaitParts) -> TenantBlock:
    """Sum up one tenant's jobs."""
    delay, rhos = spread(series.delay), series.rhos()
    return TenantBlock(
        tenant=tenant,
        jobs=series.jobs,
        completed=len(series.jct),
        failed=series.others[Fate.FAILED],
        timed_out=series.others[Fate.TIMED_OUT],
        cancelled=series.others[Fate.CANCELLED],
        censored=series.others[Fate.CENSORED],
        never_schedulable=series.others[Fate.NEVER_SCHEDULABLE],
        unfinished=series.others[Fate.UNFINISHED],
        device_h=series.device_h,
        avg_jct_s=mean(series.jct) / SECOND,
        avg_queue_delay_s=delay.avg,
        p50_queue_delay_s=delay.p50,
        p90_queue_delay_s=delay.p90,
        p99_queue_delay_s=delay.p99,
        avg_response_s=mean(series.response) / SECOND,
        preemptions=series.preemptions,
        mean_rho=mean(rhos),
        worst_rho=max(rhos, default=0.0),
        progress=series.progress(),
        wait_causes=causes,
    )
