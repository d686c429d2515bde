"""How well a synthetic workload fits the real one it stands for, in a table.

Two whole distributions of amounts are compared by the Kolmogorov–Smirnov distance (KS), two
of kinds by the total variation distance (TV), two single figures by how much greater one is.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from math import sqrt

from allotment.metrics.numbers import percentile
from allotment.model.quantity import DAY, HOUR
from allotment.sim.generate.calendar import HOURS, weekday
from allotment.sim.generate.distance import apart_by, kolmogorov_smirnov, total_variation
from allotment.sim.generate.fit_report import (
    Figures,
    FitReport,
    FitRow,
    Measure,
    Unit,
    verdict_on,
)
from allotment.sim.generate.model import BadModel
from allotment.sim.trace import Ending, Trace, TraceJob

Jobs = Sequence[TraceJob]

FEW_JOBS = 1000
FEWEST_DAYS = 14
"""Counts of jobs a day are compared when both workloads have so many whole days."""


def compare(real: Trace, synthetic: Jobs, *, rate_scaled: bool = False) -> FitReport:
    """Compare a synthetic workload, in order of submission, with a real one.

    `rate_scaled` says that the jobs were made to come faster or slower than the real ones:
    then only the shape of the gaps is judged. Raises BadModel when either has no jobs.
    """
    jobs = real.jobs
    if not jobs or not synthetic:
        raise BadModel("nothing to compare: one of the two workloads has no jobs")
    rows = [
        _run_times(jobs, synthetic),
        _gaps(jobs, synthetic, rate_scaled=rate_scaled),
        *_bursts(jobs, synthetic, rate_scaled=rate_scaled),
        _kinds("hour of the day", jobs, synthetic, lambda job: job.submit_ms // HOUR % HOURS),
        _kinds("day of the week", jobs, synthetic, lambda job: weekday(job.submit_ms // DAY)),
        _devices(jobs, synthetic),
        _device_time(jobs, synthetic),
        _kinds("tenant", jobs, synthetic, lambda job: job.tenant),
        _kinds("ending", _ended(jobs), _ended(synthetic), lambda job: job.ending.value),
    ]
    return FitReport(len(jobs), len(synthetic), tuple(rows), _notes(jobs, synthetic))


def _run_times(real: Jobs, synthetic: Jobs) -> FitRow:
    runs, others = (sorted(job.run_ms for job in jobs) for jobs in (real, synthetic))
    distance = kolmogorov_smirnov(runs, others)
    return _row("run time", Measure.KS, distance, Unit.MILLIS, _figures(runs), _figures(others))


def _gaps(real: Jobs, synthetic: Jobs, *, rate_scaled: bool) -> FitRow:
    gaps, others = (sorted(_gaps_ms(jobs)) for jobs in (real, synthetic))
    distance = (
        kolmogorov_smirnov(_in_means(gaps), _in_means(others))
        if rate_scaled
        else kolmogorov_smirnov(gaps, others)
    )
    name = "time between submissions" + (" (shape)" if rate_scaled else "")
    return _row(name, Measure.KS, distance, Unit.MILLIS, _figures(gaps), _figures(others))


def _gaps_ms(jobs: Jobs) -> list[int]:
    return [after.submit_ms - before.submit_ms for before, after in pairwise(jobs)]


def _in_means(gaps: Sequence[int]) -> list[float]:
    total = sum(gaps) or 1
    return [gap * len(gaps) / total for gap in gaps]


def _bursts(real: Jobs, synthetic: Jobs, *, rate_scaled: bool) -> list[FitRow]:
    gaps, others = (_variation(_gaps_ms(jobs)) for jobs in (real, synthetic))
    rows = [_single("bursts: deviation of those times / mean", gaps, others)]
    days, other_days = (_whole_days(jobs) for jobs in (real, synthetic))
    if not rate_scaled and min(len(days), len(other_days)) >= FEWEST_DAYS:
        name = "busy days: deviation of jobs a day / mean"
        rows.append(_single(name, _variation(days), _variation(other_days)))
    return rows


def _whole_days(jobs: Jobs) -> list[int]:
    """Jobs of each day, without the first and the last, which are seen in part."""
    first, last = jobs[0].submit_ms // DAY, jobs[-1].submit_ms // DAY
    counts = Counter(job.submit_ms // DAY for job in jobs)
    return [counts[day] for day in range(first + 1, last)]


def _variation(amounts: Sequence[int]) -> float:
    """Standard deviation in units of the mean; 0 where there is no mean."""
    total = sum(amounts)
    if not total:
        return 0.0
    mean = total / len(amounts)
    return sqrt(sum((amount - mean) ** 2 for amount in amounts) / len(amounts)) / mean


def _devices(real: Jobs, synthetic: Jobs) -> FitRow:
    sizes, others = (sorted(job.gpu_milli for job in jobs) for jobs in (real, synthetic))
    distance = total_variation(Counter(sizes), Counter(others))
    return _row("devices", Measure.TV, distance, Unit.MILLI, _figures(sizes), _figures(others))


def _device_time(real: Jobs, synthetic: Jobs) -> FitRow:
    """Run time × devices: what makes the load."""
    one, other = (
        _figures(sorted(job.run_ms * job.gpu_milli // 1000 for job in jobs))
        for jobs in (real, synthetic)
    )
    distance = apart_by(one.mean, other.mean)
    return _row("device time of a job", Measure.MEAN, distance, Unit.MILLIS, one, other)


def _ended(jobs: Jobs) -> Jobs:
    """Leave out those whose ending is not known."""
    return [job for job in jobs if job.ending is not Ending.CENSORED]


def _kinds(
    name: str, real: Jobs, synthetic: Jobs, kind: Callable[[TraceJob], Hashable]
) -> FitRow:
    distance = total_variation(Counter(map(kind, real)), Counter(map(kind, synthetic)))
    return _row(name, Measure.TV, distance)


def _single(name: str, real: float, synthetic: float) -> FitRow:
    distance = apart_by(real, synthetic)
    return _row(name, Measure.MEAN, distance, Unit.PLAIN, Figures(real), Figures(synthetic))


def _figures(ordered: Sequence[int]) -> Figures:
    if not ordered:
        return Figures(0.0)
    p50, p90, p99 = (percentile(ordered, percent) for percent in (50, 90, 99))
    return Figures(sum(ordered) / len(ordered), p50, p90, p99)


def _row(
    name: str,
    measure: Measure,
    distance: float,
    unit: Unit = Unit.PLAIN,
    real: Figures | None = None,
    synthetic: Figures | None = None,
) -> FitRow:
    verdict = verdict_on(measure, distance)
    return FitRow(name, measure, distance, verdict, unit, real, synthetic)


def _notes(real: Jobs, synthetic: Jobs) -> tuple[str, ...]:
    fewer = min(len(real), len(synthetic))
    if fewer >= FEW_JOBS:
        return ()
    chance = 1.36 * sqrt(1 / len(real) + 1 / len(synthetic))
    return (
        f"with {fewer} jobs chance alone can make a KS distance of {min(chance, 1.0):.2f}: "
        f"compare {FEW_JOBS} or more",
    )
