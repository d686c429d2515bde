"""From the event log to what was held in a period of it."""

from collections.abc import Iterable, Iterator

from allotment.metrics.accounts import Accounts, Holding, Sums
from allotment.metrics.capacity import Capacity
from allotment.metrics.fold import Folds
from allotment.model import events as e
from allotment.model.errors import Code, Rejected
from allotment.model.quantity import CPU, DEVICE, HOUR, Instant
from allotment.service.stretch import Stretch
from allotment.service.usage_view import By, UsageReport, UsageRow

MOST_ROWS = 200_000
"""Rows of one answer, which bounds its size."""


def usage_of(
    records: Iterable[e.Record],
    since: Instant,
    until: Instant,
    next_job: int,
    by: tuple[By, ...],
) -> UsageReport:
    """Sum up what was held between two instants.

    `records` are the whole log; `next_job` is the id that the next job will get, 0 where
    that is not known. Raises Rejected when the answer would be too large.
    """
    stretch = Stretch(records, since, until)
    accounts, all_, capacity = (
        Accounts(frozenset(by)),
        Accounts(NO_NAMES),
        Capacity(),
    )
    folds = Folds(accounts, all_, capacity)
    folds.feed(_bounded(stretch, accounts))
    accounts.close(until)
    all_.close(until)
    stretch.known.close(next_job)
    first_at = stretch.known.first_at
    begin = first_at if since < first_at < until else since
    rows = [_row(holding, sums) for holding, sums in accounts.rows.items()]
    rows.sort(
        key=lambda row: (-row.gpu_h, -row.cpu_h, row.tenant, row.queue, row.user, row.job)
    )
    return UsageReport(
        since=begin,
        until=until,
        known_since=stretch.known.since(until),
        forgotten=stretch.known.forgotten,
        by=by,
        capacity_gpu_h=capacity.total_milli * (until - begin) / (DEVICE * HOUR),
        rows=tuple(rows),
        total=_row(Holding(), all_.rows.get(Holding(), Sums())),
    )


def by_of(text: str) -> tuple[By, ...]:
    """Read what rows are about: names separated by commas. Raises Rejected."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in NAMES:
            raise Rejected(
                Code.BAD_REQUEST,
                f"Usage cannot be grouped by {word[:60]!r}.",
                f"One or more of {', '.join(NAMES)}, separated by commas.",
            )
    return tuple(dict.fromkeys(By(word) for word in words))


NO_NAMES: frozenset[str] = frozenset()
NAMES = tuple(name.value for name in By)


def _bounded(records: Iterable[e.Record], accounts: Accounts) -> Iterator[e.Record]:
    for record in records:
        if len(accounts.rows) > MOST_ROWS:
            raise Rejected(
                Code.TOO_LARGE,
                f"More than {MOST_ROWS:,} rows are too many for one answer.",
                "Ask for a shorter period, a later --since, or not by job.",
            )
        yield record


def _row(holding: Holding, sums: Sums) -> UsageRow:
    gpu, cpu = DEVICE * HOUR, CPU * HOUR
    return UsageRow(
        tenant=holding.tenant,
        queue=holding.queue,
        user=holding.user,
        job=holding.job,
        name=holding.name,
        type=holding.type,
        jobs=sums.jobs,
        evictions=sums.evictions,
        gpu_h=(sums.gpu_guaranteed + sums.gpu_borrowed) / gpu,
        gpu_h_guaranteed=sums.gpu_guaranteed / gpu,
        gpu_h_borrowed=sums.gpu_borrowed / gpu,
        gpu_h_lost=sums.gpu_lost / gpu,
        cpu_h=(sums.cpu_guaranteed + sums.cpu_borrowed) / cpu,
        cpu_h_guaranteed=sums.cpu_guaranteed / cpu,
        cpu_h_borrowed=sums.cpu_borrowed / cpu,
        cpu_h_lost=sums.cpu_lost / cpu,
        cpu_h_used=sums.cpu_used / cpu,
        gpu_h_seen=sums.gpu_seen / gpu,
        gpu_h_busy=sums.gpu_busy / gpu,
    )
