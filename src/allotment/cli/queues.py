"""`allot queues`: the queues of each tenant as a tree, and how each stands."""

from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from allotment.cli.options import AsJson, State, complete_tenant
from allotment.cli.output import say_json, talk
from allotment.cli.table import Column, print_table
from allotment.cli.words import NOTHING_THERE, plain, show_span
from allotment.client import Client
from allotment.model.amounts import BY_TYPE, CPU, GPU, amounts, show_amounts, show_bare
from allotment.model.tenancy import RankBy, ShareBy
from allotment.service.queue_view import CapHolder, QueueView, TenantQueues

COLUMNS = (
    Column("QUEUE", flexible=True),
    Column("STATE", flexible=True),
    Column("ORDER", rank=5, flexible=True),
    Column("WEIGHT", rank=6, right=True),
    Column("PART"),
    Column("GUARANTEED", right=True),
    Column("USED", right=True),
    Column("BORROWED", rank=2, right=True),
    Column("LENT", rank=3, right=True),
    Column("SOFT", rank=4, right=True),
    Column("LIMIT", right=True),
    Column("PER USER", rank=7, flexible=True),
    Column("JOBS", right=True),
    Column("WAITING", right=True),
    Column("OLDEST", rank=1),
    Column("STANDS"),
)
Row = tuple[str, ...]


def queues(
    tenant: Annotated[
        str,
        typer.Argument(
            metavar="TENANT",
            help="Only the queues of this tenant.",
            autocompletion=complete_tenant,
        ),
    ] = "",
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Show the queues of each tenant: guarantee, use, limits, jobs and the longest wait.

    There is a line for each PART with a guarantee or limit: gpu, gpu:TYPE, gpu_memory, cpu,
    memory, disk. BORROWED is what the queue holds beyond its guarantee, or beyond that of the
    tenant. LENT is the part of its guarantee that other queues of the tenant use. A queue
    exceeds SOFT only while other queues leave room, and LIMIT never. JOBS is how many jobs
    hold a place, of the most that may. OLDEST is the longest wait. STANDS is within, beyond
    (it borrows), or at limit.

    Examples:
      allot queues
      allot queues vision --json
    """
    with Client(state=state) as client:
        found = client.queues(tenant)
    if as_json:
        say_json(found)
        return
    main = main_part(found)
    print_table(COLUMNS, [row for each in found for row in rows(each, main)])
    for each in found:
        for note in notes(each):
            talk(note)


def main_part(found: Iterable[TenantQueues]) -> str:
    """Return which part each queue has a line for: devices, or CPUs where there are none."""
    parts = {part for tenant in found for part in _named(tenant)}
    return GPU if any(p == GPU or p.startswith(BY_TYPE) for p in parts) else CPU


def _named(tenant: TenantQueues) -> Iterator[str]:
    yield from (*tenant.guaranteed, *tenant.used)
    for queue in _all(tenant.queues):
        yield from (*queue.guaranteed, *queue.limit, *queue.soft_limit)


def _all(queues: Iterable[QueueView]) -> Iterator[QueueView]:
    for queue in queues:
        yield queue
        yield from _all(queue.queues)


# ── lines ───────────────────────────────────────────────────────────────────────────────


def rows(tenant: TenantQueues, main: str) -> Iterator[Row]:
    """Write a tenant, and its queues below it."""
    yield (
        tenant.tenant,
        "",
        "" if tenant.share is ShareBy.FIRST_COME else plain(tenant.share),
        _weight(tenant.weight_milli),
        main,
        _amount(tenant.guaranteed, main),
        _amount(tenant.used, main),
        _amount(tenant.borrowed, main),
        "",
        "",
        "",
        show_amounts(amounts(tenant.per_user)) if tenant.per_user else NOTHING_THERE,
        str(tenant.running),
        str(tenant.waiting),
        "",
        "",
    )
    for queue in tenant.queues:
        yield from _rows(queue, "", 1, main)


def _rows(queue: QueueView, parent: str, depth: int, main: str) -> Iterator[Row]:
    named = {*queue.guaranteed, *queue.soft_limit, *queue.limit} - {main}
    for at, part in enumerate((main, *sorted(named))):
        yield _row(queue, parent, depth, part) if not at else _more(queue, part)
    for inside in queue.queues:
        yield from _rows(inside, queue.name, depth + 1, main)


def _row(queue: QueueView, parent: str, depth: int, part: str) -> Row:
    return (
        "  " * depth + (queue.name.removeprefix(f"{parent}.") if parent else queue.name),
        _state(queue),
        "" if queue.queues else _order(queue),
        _weight(queue.weight_milli),
        *_part(queue, part),
        show_amounts(amounts(queue.per_user)) if queue.per_user else NOTHING_THERE,
        _of(queue.running, queue.max_jobs),
        _of(queue.waiting, queue.max_waiting),
        _oldest(queue),
        plain(queue.stands),
    )


def _more(queue: QueueView, part: str) -> Row:
    """Write one more part of a queue."""
    return ("", "", "", "", *_part(queue, part), "", "", "", "", "")


def _part(queue: QueueView, part: str) -> Row:
    return (
        part,
        *(
            _amount(held, part)
            for held in (
                queue.guaranteed,
                queue.used,
                queue.borrowed,
                queue.lent,
                queue.soft_limit,
                queue.limit,
            )
        ),
    )


def _state(queue: QueueView) -> str:
    if queue.in_effect is queue.state:
        return queue.state.value
    return f"{queue.in_effect.value} (around it)"


def _order(queue: QueueView) -> str:
    words = [queue.order.value]
    if queue.rank is not RankBy.SUBMITTED:
        words.append(plain(queue.rank))
    if queue.share is not ShareBy.FIRST_COME:
        words.append(plain(queue.share))
    return ", ".join(words)


def _weight(milli: int) -> str:
    return f"{milli / 1000:g}"


def _amount(held: dict[str, int], part: str) -> str:
    return show_bare(part, held[part]) if part in held else NOTHING_THERE


def _of(number: int, most: int | None) -> str:
    return str(number) if most is None else f"{number}/{most}"


def _oldest(queue: QueueView) -> str:
    if queue.oldest_job is None:
        return NOTHING_THERE
    return f"{show_span(queue.oldest_ms)} (job {queue.oldest_job})"


def notes(tenant: TenantQueues) -> list[str]:
    """Return which users and groups hold all they may."""
    found = [_full(who, f"tenant {tenant.tenant}") for who in tenant.capped if who.full]
    for queue in _all(tenant.queues):
        where = f"queue {queue.name} of {tenant.tenant}"
        found += [_full(who, where) for who in queue.capped if who.full]
    return found


def _full(who: CapHolder, where: str) -> str:
    name, one = (who.user, "user") if who.user else (f"group {who.group}", "group")
    full = {p: most for p, most in who.cap.items() if who.held.get(p, 0) >= most}
    return f"{name} holds all that one {one} of {where} may: {show_amounts(amounts(full))}"
