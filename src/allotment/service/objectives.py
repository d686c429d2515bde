"""From the event log to whether service objectives were met in a stretch of it."""

from collections.abc import Iterable, Iterator

from allotment.metrics.fold import Folds
from allotment.metrics.objectives import ObjectiveCourse
from allotment.model import events as e
from allotment.model.quantity import Instant
from allotment.service.objectives_view import ObjectivesReport
from allotment.service.stretch import Retained


def objectives_of(
    records: Iterable[e.Record], since: Instant, until: Instant, next_job: int
) -> ObjectivesReport:
    """Measure the objectives of the newest configuration between two instants.

    `records` are the whole log: a wait that began before counts in full when it ends in the
    stretch. `next_job` is the id that the next job will get, 0 where that is not known.
    """
    known = Retained()
    course = ObjectiveCourse(since)
    folds = Folds(course)
    folds.feed(_until(records, until, known))
    course.close(until)
    known.close(next_job)
    begin = known.first_at if since < known.first_at < until else since
    return ObjectivesReport(
        since=begin,
        until=until,
        known_since=known.since(until),
        forgotten=known.forgotten,
        rows=course.rows(),
    )


def _until(records: Iterable[e.Record], until: Instant, known: Retained) -> Iterator[e.Record]:
    """Return the records up to an instant; the later ones only say what is missing."""
    for record in records:
        known.see(record)
        if record.at <= until:
            yield record
