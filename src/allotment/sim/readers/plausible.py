"""What looks wrong in a trace: times that are likely in another unit than was read."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from allotment.model.quantity import DAY, DEVICE, SECOND
from allotment.sim.trace import Ending, TraceJob

LONG_HALF_MS, LONG_TENTH_MS = 5 * DAY, 60 * DAY
"""Half of all jobs, or one in ten, running longer than this: those were milliseconds, not
seconds. Of the traces that were published half of the jobs run for less than 20 hours, and
nine in ten for less than 4 days, though the longest takes 145."""

LONG_SPAN_MS = 20 * 365 * DAY
FAR_FUTURE_MS = 130 * 365 * DAY
"""About the year 2100, counted since 1970."""

THOUSAND_MS = 1000 * SECOND
TELLING, UNEVEN = 10, 5
"""So many different times, with so many different steps between them, all in whole
thousands of seconds: those were seconds times 1000. Nobody's clock ticks so; tables made by
hand may, but have fewer, or even steps."""

MANY, IDLE_SPAN_MS, IDLE_JOBS, IDLE_LOAD = 20, 30 * DAY, 0.5, 0.05
"""From so many jobs on, over a longer span: fewer running than this on the mean, which would
use less than this part of a cluster just large enough for the largest of them. In the least
busy trace that was published 16 jobs run, which would use more than the whole of one."""


def doubts(jobs: Sequence[TraceJob]) -> list[str]:
    """List what looks wrong with the times of these jobs, sorted by submission."""
    found: list[str] = []
    lengths = sorted([job.run_ms for job in jobs])
    for share, least_ms, limit_ms in (
        ("half of the jobs run", lengths[len(jobs) // 2], LONG_HALF_MS),
        ("one job in ten runs", lengths[len(jobs) * 9 // 10], LONG_TENTH_MS),
    ):
        if least_ms > limit_ms:
            found.append(
                f"{share} longer than {least_ms // DAY} days: the durations look like "
                "milliseconds; divide that column by 1000"
            )
            break
    else:
        if _in_thousands(length for length in lengths if length > 1):
            found.append(
                "every duration is in whole thousands of seconds: they look like "
                "milliseconds; divide that column by 1000"
            )
    first, last = jobs[0].submit_ms, jobs[-1].submit_ms
    if first > FAR_FUTURE_MS:
        found.append(
            "the first job comes after the year 2100: the submission times look like "
            "milliseconds since 1970 or finer; divide that column by 1000"
        )
    elif last - first > LONG_SPAN_MS:
        found.append(
            f"submissions span {(last - first) // (365 * DAY)} years: the submission times "
            "look like milliseconds; divide that column by 1000"
        )
    elif _in_thousands(job.submit_ms for job in jobs):
        found.append(
            "every submission time is in whole thousands of seconds: they look like "
            "milliseconds; divide that column by 1000"
        )
    elif first < LONG_SPAN_MS and _is_idle(jobs, last - first):
        found.append(
            f"submissions span {(last - first) / DAY:,.0f} days, in which all jobs together "
            f"run for {sum(lengths) / DAY:,.1f}: the submission times look like "
            "milliseconds, or the durations are not in seconds"
        )
    return found


def _in_thousands(times_ms: Iterable[int]) -> bool:
    """Whether times are in whole thousands of seconds, and not by a plain rule."""
    seen: set[int] = set()
    for at in times_ms:
        if at % THOUSAND_MS:
            return False
        seen.add(at)
    steps = {later - at for at, later in pairwise(sorted(seen))}
    return len(seen) >= TELLING and len(steps) >= UNEVEN


def _is_idle(jobs: Sequence[TraceJob], span_ms: int) -> bool:
    """Whether hardly anything runs while these come, whatever the cluster."""
    if len(jobs) < MANY or span_ms < IDLE_SPAN_MS:
        return False
    if sum(job.run_ms for job in jobs) >= IDLE_JOBS * span_ms:
        return False
    sizes = [job.gpu_milli or job.tasks * DEVICE for job in jobs]
    work = sum(job.run_ms * size for job, size in zip(jobs, sizes, strict=True))
    return work < IDLE_LOAD * max(sizes) * span_ms


def censored_note(jobs: Sequence[TraceJob]) -> list[str]:
    """Return how many jobs had not ended when the history ends, if any."""
    count = sum(job.ending is Ending.CENSORED for job in jobs)
    if not count:
        return []
    return [
        f"{count} of {len(jobs)} jobs had not ended when the history ends: their run times "
        "are lower bounds"
    ]
