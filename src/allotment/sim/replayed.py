"""What really happened beside what would have happened, over the same jobs."""

from collections.abc import Iterable, Sequence

import msgspec

from allotment.metrics.jobs import JobOutcome
from allotment.metrics.series import Series, completed, spread


class Course(msgspec.Struct, frozen=True):
    """How it went with a set of jobs. docs/metrics.md defines the numbers."""

    avg_queue_delay_s: float
    p50_queue_delay_s: float
    p90_queue_delay_s: float
    avg_jct_s: float
    p50_jct_s: float
    p90_jct_s: float
    preemptions: int


class SideBySide(msgspec.Struct, frozen=True):
    """Two courses of the jobs that completed in both."""

    jobs: int
    earlier: int
    """Jobs that end earlier in the replay than they did."""
    later: int
    history: Course
    replay: Course


def side_by_side(happened: Sequence[JobOutcome], replayed: Sequence[JobOutcome]) -> SideBySide:
    """Compare row by row: both list the same jobs in the same order."""
    pairs = [
        (was, would)
        for was, would in zip(happened, replayed, strict=True)
        if completed(was) and completed(would)
    ]
    return SideBySide(
        jobs=len(pairs),
        earlier=sum(would.end_ms < was.end_ms for was, would in pairs),
        later=sum(would.end_ms > was.end_ms for was, would in pairs),
        history=_course(was for was, _ in pairs),
        replay=_course(would for _, would in pairs),
    )


def _course(rows: Iterable[JobOutcome]) -> Course:
    series = Series()
    for row in rows:
        series.add(row)
    delay, jct = spread(series.delay), spread(series.jct)
    return Course(
        avg_queue_delay_s=delay.avg,
        p50_queue_delay_s=delay.p50,
        p90_queue_delay_s=delay.p90,
        avg_jct_s=jct.avg,
        p50_jct_s=jct.p50,
        p90_jct_s=jct.p90,
        preemptions=series.preemptions,
    )
