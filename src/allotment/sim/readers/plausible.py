"""What looks wrong in a trace: times that are likely in another unit than was read."""

from collections.abc import Sequence

from allotment.model.quantity import DAY
from allotment.sim.trace import Ending, TraceJob

LONG_RUN_MS = 30 * DAY
"""Half of all jobs running longer than this: those were milliseconds, not seconds."""

LONG_SPAN_MS = 20 * 365 * DAY
FAR_FUTURE_MS = 130 * 365 * DAY
"""About the year 2100, counted since 1970."""


def doubts(jobs: Sequence[TraceJob]) -> list[str]:
    """List what looks wrong with the times of these jobs, sorted by submission."""
    found: list[str] = []
    median_ms = sorted([job.run_ms for job in jobs])[len(jobs) // 2]
    if median_ms > LONG_RUN_MS:
        found.append(
            f"half of the jobs run longer than {median_ms // DAY} days: the durations look "
            "like milliseconds; divide that column by 1000"
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
    return found


def censored_note(jobs: Sequence[TraceJob]) -> list[str]:
    """Say how many jobs had not ended when the history ends, if any."""
    count = sum(job.ending is Ending.CENSORED for job in jobs)
    if not count:
        return []
    return [
        f"{count} of {len(jobs)} jobs had not ended when the history ends: their run times "
        "are lower bounds"
    ]
