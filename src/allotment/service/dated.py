"""Changes by date, in words: which are to come, which are over, which are new in a file."""

from collections.abc import Iterator
from datetime import UTC, datetime

from allotment.model.amounts import Amounts, amounts, show_part, vector_of
from allotment.model.budget import FOREVER
from allotment.model.cells import CellShare
from allotment.model.dated import still_to_come
from allotment.model.quantity import SECOND, Resources, WallTime, show_milli, show_resources
from allotment.model.tenancy import Config, DatedChange, Queue, Share, Tenant
from allotment.service.config_view import ComingChange, ConfigChange


def coming(config: Config, now: WallTime) -> tuple[ComingChange, ...]:
    """Return the changes that are in force or to come, by when they begin."""
    return tuple(
        ComingChange(
            change.begin,
            change.end if change.end < FOREVER else None,
            _period(change),
            _whose(change),
            _detail(config, change),
        )
        for change in still_to_come(config, now)
    )


def over(config: Config, now: WallTime) -> Iterator[str]:
    """Return a message for each change whose period is over."""
    for change in config.changes:
        if change.end <= now:
            yield f"{_whose(change)}: the change {_period(change)} is over; remove it"


def dated(old: Config, new: Config) -> Iterator[ConfigChange]:
    """Return the changes by date that differ between two configurations."""
    before, after = _all(old), _all(new)
    for words in before:
        if words not in after:
            yield ConfigChange("-", *words)
    for words in after:
        if words not in before:
            yield ConfigChange("+", *words)


def _all(config: Config) -> list[tuple[str, str]]:
    return [
        (f"{_whose(change)} {_period(change)}", _detail(config, change))
        for change in config.changes
    ]


def _whose(change: DatedChange) -> str:
    if change.queue is not None:
        return f"queue {change.tenant}/{change.queue.name}"
    return f"tenant {change.tenant}"


def _period(change: DatedChange) -> str:
    begin = f"from {_date(change.begin)}" if change.begin else ""
    end = f"until {_date(change.end)}" if change.end < FOREVER else ""
    return " ".join(filter(None, (begin, end)))


def _date(at: WallTime) -> str:
    text = datetime.fromtimestamp(at // SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return text.replace(" 00:00:00 UTC", "").replace(":00 UTC", " UTC")


def _detail(config: Config, change: DatedChange) -> str:
    tenant = next(tenant for tenant in config.tenants if tenant.name == change.tenant)
    if change.queue is not None:
        queue = tenant.queue(change.queue.name)
        if queue is None:
            return ""
        return ", ".join((*dated_keys(queue, change.queue), *_caps(queue, change.queue)))
    return ", ".join(_of_tenant(tenant, change.share)) if change.share else ""


def _of_tenant(was: Tenant, now: Share) -> Iterator[str]:
    then, later = (
        _guarantee_words(was.cells, was.guaranteed),
        _guarantee_words(now.cells, now.guaranteed),
    )
    if then != later:
        yield f"guaranteed {then} → {later}"
    yield from _switch("borrow", was.borrow, now.borrow)
    yield from _weight(was.weight_milli, now.weight_milli)
    if now.per_user is not None and now.per_user != was.per_user:
        before, after = (
            show_parts(amounts(vector_of(cap)), "none") for cap in (was.per_user, now.per_user)
        )
        yield f"per_user {before} → {after}"


def _guarantee_words(cells: tuple[CellShare, ...], guaranteed: Resources) -> str:
    if cells:
        return ", ".join(f"{share.count} {share.type}" for share in cells)
    return show_resources(guaranteed) if guaranteed != Resources() else "nothing"


def dated_keys(was: Queue, now: Queue) -> Iterator[str]:
    """Return the keys of a queue that differ and may change by date, apart from its caps."""
    for key, before, after, none in (
        ("guaranteed", was.guaranteed, now.guaranteed, "nothing"),
        ("soft_limit", was.terms.soft_limit, now.terms.soft_limit, "none"),
        ("limit", was.limit, now.limit, "none"),
    ):
        if before != after:
            yield f"{key} {show_parts(before, none)} → {show_parts(after, none)}"
    yield from _switch("lend", was.terms.lend, now.terms.lend)
    yield from _switch("borrow", was.terms.borrow, now.terms.borrow)
    yield from _weight(was.weight_milli, now.weight_milli)


def _caps(was: Queue, now: Queue) -> Iterator[str]:
    """Return which of its caps may change by date and differ."""
    if was.max_jobs != now.max_jobs:
        yield f"max_jobs {show_count(was.max_jobs)} → {show_count(now.max_jobs)}"
    yield from changed_shares(was, now)


def changed_shares(was: Queue, now: Queue) -> Iterator[str]:
    """Return which caps on users and groups of a queue differ."""
    for key, before, after in (
        ("per_user", was.per_user, now.per_user),
        ("per_group", was.per_group, now.per_group),
    ):
        if before != after:
            yield f"{key} {show_parts(before, 'none')} → {show_parts(after, 'none')}"


def show_parts(amounts: Amounts, none: str) -> str:
    """Write amounts for a line that describes a change."""
    return " + ".join(show_part(part, amount) for part, amount in amounts.parts) or none


def show_count(number: int | None) -> str:
    """Write a bound on a number of jobs."""
    return "none" if number is None else f"{number:,}"


def _switch(key: str, was: bool, now: bool) -> Iterator[str]:
    if was is not now:
        yield f"{key} {str(was).lower()} → {str(now).lower()}"


def _weight(was: int, now: int) -> Iterator[str]:
    if was != now:
        yield f"weight {show_milli(was)} → {show_milli(now)}"
