"""How good start estimates were: what was told against what came, from the event log."""

from collections.abc import Iterable
from statistics import median_low

from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.quantity import SECOND, Instant
from allotment.service.estimate_view import Accuracy

ENDS = (e.JobSucceeded, e.JobFailed, e.JobCancelled, e.JobTimedOut)


def accuracy_of(records: Iterable[e.Record], since: Instant) -> Accuracy:
    """Measure how good the estimates given from `since` on were.

    `records` are the whole log, in order. A job starts when it is placed; of one that starts
    several times, the next start after the estimate counts. It is in the range if it is so in
    whole seconds, as times are shown, up to the second after the latest: an estimate of
    14:20:05 holds for a job that starts at 14:20:05.
    """
    open_: dict[JobId, list[e.StartEstimated]] = {}
    errors: list[int] = []
    given = judged = within = ranges = never = 0
    for record in records:
        event = record.event
        if isinstance(event, e.StartEstimated):
            if record.at >= since:
                given += 1
                open_.setdefault(event.job, []).append(event)
        elif isinstance(event, (e.AttemptPlaced, e.AttemptResumed)):
            for told in open_.pop(event.job, ()):
                judged += 1
                if told.expected is not None:
                    errors.append(abs(record.at - told.expected))
                if told.earliest is not None and told.latest is not None:
                    ranges += 1
                    within += _is_within(record.at, told.earliest, told.latest)
        elif isinstance(event, ENDS):
            never += len(open_.pop(event.job, ()))
    return Accuracy(
        since=since,
        given=given,
        judged=judged,
        median_error_ms=median_low(errors) if errors else None,
        within=within,
        ranges=ranges,
        waiting=sum(map(len, open_.values())),
        never=never,
    )


def _is_within(at: Instant, earliest: Instant, latest: Instant) -> bool:
    """Whether a start lies in a range, in whole seconds and with one to spare."""
    return earliest // SECOND <= at // SECOND <= latest // SECOND + 1
