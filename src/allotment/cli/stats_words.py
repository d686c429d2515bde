"""The numbers of a stretch of history, for people."""

import msgspec

from allotment.cli.instants import date
from allotment.cli.output import Failed, paint, say, talk
from allotment.cli.period import warn_of_forgotten
from allotment.cli.table import Column, print_table
from allotment.cli.words import NOTHING_THERE, show_span
from allotment.metrics.summary import Summary, TenantBlock, WaitParts
from allotment.model.quantity import DEVICE, SECOND, show_milli, show_millis
from allotment.service.statistics_view import Statistics, TenantShare

COLUMNS = (
    Column("TENANT", flexible=True),
    Column("GUARANTEED", right=True),
    Column("GOT", right=True),
    Column("JOBS", right=True),
    Column("FAILED", rank=3, right=True),
    Column("WAIT", right=True),
    Column("P90", rank=1, right=True),
    Column("P99", rank=4, right=True),
    Column("PREEMPTED", rank=5, right=True),
    Column("PACE", right=True),
    Column("WAITED FOR", rank=2),
)
CAUSES = (
    ("own_s", "own"),
    ("quota_s", "quota"),
    ("capacity_s", "devices"),
    ("fragmentation_or_locality_s", "a fitting place"),
    ("order_s", "its turn"),
)
"""Parts of a wait, and what the jobs waited for."""

ALIKE = 1.25
"""Slowed down by up to this much more than another is called alike."""


def of_tenant(found: Statistics, tenant: str) -> Statistics:
    """Leave out all other tenants. Raises Failed when it is not one of them."""
    shares = tuple(share for share in found.shares if share.tenant == tenant)
    if not shares:
        names = ", ".join(share.tenant for share in found.shares)
        raise Failed(f"There is no tenant {tenant!r}.", f"Tenants here: {names}.")
    blocks = tuple(block for block in found.numbers.tenants if block.tenant == tenant)
    numbers = msgspec.structs.replace(found.numbers, tenants=blocks)
    return msgspec.structs.replace(found, shares=shares, numbers=numbers)


def in_words(found: Statistics, tenant: str) -> None:
    """Print the numbers; of one tenant, if it is named."""
    for line in _of_one(found) if tenant else _of_all(found):
        say(line)
    if not tenant and found.numbers.jobs:
        say()
        print_table(COLUMNS, rows_of(found))
        say()
        say(verdict(found))
    if found.numbers.jobs and not found.capacity_milli:
        talk("There is no GPU here, so all numbers of devices are 0.")
    if not found.numbers.jobs and found.until <= found.known_since:
        talk(f"History begins at {date(found.known_since)}.")
    warn_of_forgotten(found)


def _head(found: Statistics, name: str) -> str:
    return paint(f"{name}, {date(found.since)} to {date(found.until)}", "bold")


def _of_all(found: Statistics) -> list[str]:
    n = found.numbers
    lines = [_head(found, "all tenants")]
    if not n.jobs:
        return [*lines, "  No job was there."]
    jobs = f"  jobs         {n.jobs:,}, {_ended(n)}"
    if found.carried:
        jobs += f"; {found.carried:,} were there before"
    lines.append(jobs)
    if n.completed:
        lines += [
            f"  waiting      {_spread(n, 'queue_delay')}",
            *_causes(n.wait_causes),
            f"  first start  {_spread(n, 'response')}",
            f"  completion   {_spread(n, 'jct')}",
            f"  makespan     {_length(n.makespan_s)}, {n.throughput_jobs_per_h:,.1f} jobs/h",
        ]
    lines.append(f"  preemptions  {n.preemptions:,}")
    if found.capacity_milli:
        lines.append(
            f"  devices      {found.in_use:.1%} of {show_milli(found.capacity_milli)} in use; "
            f"{n.fragmentation:.1%} of the idle time was wanted"
        )
    return lines


def _of_one(found: Statistics) -> list[str]:
    (share,) = found.shares
    lines = [_head(found, share.tenant)]
    lines.append(
        f"  devices      {_amount(share.mean_milli)} used on average, "
        f"{show_milli(share.guaranteed_milli)} guaranteed"
    )
    if not found.numbers.tenants:
        return [*lines, "  It had no job."]
    (n,) = found.numbers.tenants
    lines.append(f"  jobs         {n.jobs:,}, {_ended(n)}")
    if n.completed:
        lines += [
            f"  waiting      {_spread(n, 'queue_delay')}",
            *_causes(n.wait_causes),
            f"  first start  mean {_length(n.avg_response_s)}",
            f"  completion   mean {_length(n.avg_jct_s)}",
            f"  pace         {n.progress:.2f}, where 1 is an even division of the cluster",
        ]
    return [*lines, f"  preemptions  {n.preemptions:,}"]


def rows_of(found: Statistics) -> list[list[str]]:
    """Return the cells of each tenant, the one that was slowed down most first."""
    blocks = {block.tenant: block for block in found.numbers.tenants}
    pairs = [(share, blocks.get(share.tenant)) for share in found.shares]
    pairs.sort(key=lambda pair: pair[1].progress if pair[1] and pair[1].completed else 9e9)
    return [_row(share, block) for share, block in pairs]


def _row(share: TenantShare, block: TenantBlock | None) -> list[str]:
    owned = [share.tenant, show_milli(share.guaranteed_milli), _amount(share.mean_milli)]
    if block is None:
        return [*owned, "0", *[NOTHING_THERE] * (len(COLUMNS) - len(owned) - 1)]
    failed = block.failed + block.timed_out
    cells = [*owned, f"{block.jobs:,}", f"{failed:,}"]
    if not block.completed:
        waits = [NOTHING_THERE] * 3
        return [*cells, *waits, f"{block.preemptions:,}", NOTHING_THERE, NOTHING_THERE]
    waits = [block.avg_queue_delay_s, block.p90_queue_delay_s, block.p99_queue_delay_s]
    return [
        *cells,
        *(show_span(round(wait * SECOND)) for wait in waits),
        f"{block.preemptions:,}",
        f"{block.progress:.2f}",
        _main_cause(block.wait_causes),
    ]


def verdict(found: Statistics) -> str:
    """Return in a sentence whether all tenants were treated alike."""
    blocks = [b for b in found.numbers.tenants if b.completed and b.progress > 0]
    jain = f"Jain {found.numbers.fairness.jain:.2f}"
    if len(blocks) < 2:
        return "Tenants are compared if at least two had completed jobs."
    slow = min(blocks, key=lambda b: b.progress)
    fast = max(blocks, key=lambda b: b.progress)
    more = fast.progress / slow.progress
    if more <= ALIKE:
        return f"All tenants were slowed down alike ({jain})."
    most = f"{slow.tenant} was slowed down most"
    return f"{most}: {more:.1f} times as much as {fast.tenant} ({jain})."


def _ended(n: Summary | TenantBlock) -> str:
    names = (
        (n.completed, "succeeded"), (n.failed, "failed"), (n.cancelled, "cancelled"),
        (n.timed_out, "timed out"), (n.unfinished, "not ended"),
    )  # fmt: skip
    return ", ".join(f"{number:,} {name}" for number, name in names if number)


def _causes(parts: WaitParts) -> list[str]:
    """Return what part of the waiting was for what, if there was any."""
    whole = sum(msgspec.structs.astuple(parts))
    if not whole:
        return []
    shown = [(getattr(parts, field) / whole, name) for field, name in CAUSES]
    told = ", ".join(
        f"{name} {part:.0%}" for part, name in sorted(shown, reverse=True) if part >= 0.005
    )
    return [f"    for        {told}"]


def _main_cause(parts: WaitParts) -> str:
    seconds, name = max((getattr(parts, field), name) for field, name in CAUSES)
    return name if seconds else NOTHING_THERE


def _spread(n: Summary | TenantBlock, what: str) -> str:
    values = (getattr(n, f"{part}_{what}_s") for part in ("avg", "p50", "p90", "p99"))
    return "mean {}, p50 {}, p90 {}, p99 {}".format(*map(_length, values))


def _amount(milli: int) -> str:
    return f"{milli / DEVICE:.1f}" if milli else "0"


def _length(seconds: float) -> str:
    return show_millis(round(seconds * SECOND))
