"""`allot usage`: how many GPU-hours each held."""

import csv
import sys
from typing import Annotated

import msgspec
import typer

from allotment.cli.instants import date
from allotment.cli.options import AsJson, State
from allotment.cli.output import paint, say, say_json
from allotment.cli.period import Until, period, warn_of_forgotten
from allotment.cli.sim_options import Misused
from allotment.cli.table import Column, print_table
from allotment.cli.words import NOTHING_THERE
from allotment.client import Client
from allotment.model.budget import Every
from allotment.service.usage_view import BudgetState, BudgetUse, By, UsageReport, UsageRow

FIELDS = UsageRow.__struct_fields__
"""The columns of the CSV, in order."""

NAMES = {
    By.TENANT: ("tenant",),
    By.QUEUE: ("tenant", "queue"),
    By.USER: ("user",),
    By.JOB: ("job", "name", "tenant", "queue", "user"),
    By.TYPE: ("type",),
}
"""The columns of the table that say what a row is about."""

NUMBERS = (
    Column("JOBS", rank=2, right=True),
    Column("GPU-H", right=True),
    Column("OWN", right=True),
    Column("BORROWED", right=True),
    Column("LOST", right=True),
    Column("EVICTED", rank=3, right=True),
    Column("OF ALL", rank=1, right=True),
    Column("CPU-H", right=True),
)
SEEN = Column("GPU USE", rank=4, right=True)
"""Where an engine said anything of it."""
BUDGETS = (
    Column("TENANT", flexible=True),
    Column("QUEUE", rank=2),
    Column("USER", rank=1),
    Column("EVERY"),
    Column("USED", right=True),
    Column("WARN", rank=3, right=True),
    Column("MOST", right=True),
    Column("PART", right=True),
    Column("STATE"),
    Column("UNTIL", rank=4),
)
STATES = {
    BudgetState.OK: "ok",
    BudgetState.WARNED: "warned",
    BudgetState.SPENT: "used up",
    BudgetState.NOT_NOW: "not now",
}
Since = Annotated[
    str, typer.Option("--since", metavar="30d|DATE", help="How far back, or a date.")
]
Rows = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="WHAT",
        help="One row for each tenant, queue, user, job or type; or several, with commas.",
    ),
]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print all columns as CSV.")]


def usage(
    since: Since = "30d",
    until: Until = "",
    by: Rows = By.TENANT.value,
    as_csv: AsCsv = False,
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Show the GPU-hours and CPU-hours that tenants, users or jobs held.

    OWN are hours within guarantees, and BORROWED those beyond them. LOST are the hours, of both
    kinds, whose work evictions lost. OF ALL is the part of all GPU-hours of the cluster.
    Start-up counts, suspension does not. GPU USE is an upper limit of the part of the GPU-hours
    in which the GPUs were busy: `≤ 40%`. It ignores hours without measurement. An earlier job
    counts from --since on. If tenants have budgets, a table of them follows: the GPU-hours
    USED, and the limits WARN and MOST.

    Examples:
      allot usage
      allot usage --since 2026-10-01 --until 2026-11-01 --by tenant,user
      allot usage --by job --csv > october.csv
    """
    first, last = period(since, until)
    if as_csv and as_json:
        raise Misused("--csv and --json are two different forms.")
    with Client(state=state) as client:
        found = client.usage(max(0, first), last if until else None, by)
    if as_json:
        say_json(found)
    elif as_csv:
        _csv(found)
    else:
        _table(found)
        _budgets(found)
    warn_of_forgotten(found)


def _csv(found: UsageReport) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(FIELDS)
    for row in found.rows:
        values = msgspec.structs.asdict(row)
        values["job"] = row.job or ""
        writer.writerow([_cell(value) for value in values.values()])


def _cell(value: object) -> object:
    """Write hours to the millionth, without an exponent."""
    return f"{value:.6f}" if isinstance(value, float) else value


def _table(found: UsageReport) -> None:
    say(paint(f"{date(found.since)} to {date(found.until)}", "bold"))
    if not found.rows:
        say("No job held anything.")
        return
    names = list(dict.fromkeys(name for what in found.by for name in NAMES[what]))
    seen = (SEEN,) if found.total.gpu_h_seen else ()
    columns = [Column(name.upper(), flexible=name != "job") for name in names]
    columns += [*NUMBERS, *seen]
    rows = [
        [*(_name(row, name) for name in names), *_numbers(found, row)] for row in found.rows
    ]
    if len(rows) > 1:
        rows.append(["all", *[""] * (len(names) - 1), *_numbers(found, found.total)])
    print_table(columns, rows)


def _budgets(found: UsageReport) -> None:
    """Print how budgets stand now, if there are any."""
    if not found.budgets:
        return
    say()
    say(paint("Budgets now", "bold"))
    print_table(BUDGETS, [_budget(budget) for budget in found.budgets])


def _budget(budget: BudgetUse) -> list[str]:
    whole = budget.hard_gpu_h or budget.soft_gpu_h
    every = "" if budget.every is Every.NEVER else budget.every.value
    return [
        budget.tenant,
        budget.queue or NOTHING_THERE,
        budget.user or NOTHING_THERE,
        every or "once",
        _hours(budget.used_gpu_h),
        _hours(budget.soft_gpu_h) if budget.soft_gpu_h else NOTHING_THERE,
        _hours(budget.hard_gpu_h) if budget.hard_gpu_h else NOTHING_THERE,
        f"{budget.used_gpu_h / whole:.0%}",
        STATES[budget.state],
        date(budget.until) if budget.until else NOTHING_THERE,
    ]


def _name(row: UsageRow, name: str) -> str:
    return str(getattr(row, name) or NOTHING_THERE)


def _numbers(found: UsageReport, row: UsageRow) -> list[str]:
    part = row.gpu_h / found.capacity_gpu_h if found.capacity_gpu_h else 0.0
    return [
        f"{row.jobs:,}",
        _hours(row.gpu_h),
        _hours(row.gpu_h_guaranteed),
        _hours(row.gpu_h_borrowed),
        _hours(row.gpu_h_lost),
        f"{row.evictions:,}",
        f"{part:.1%}",
        _hours(row.cpu_h),
        *([_use(row)] if found.total.gpu_h_seen else []),
    ]


def _use(row: UsageRow) -> str:
    """Return which part of the devices was at work, at most, where that was seen."""
    return f"≤ {row.gpu_h_busy / row.gpu_h_seen:.0%}" if row.gpu_h_seen else NOTHING_THERE


def _hours(hours: float) -> str:
    """Write hours with as many digits as matter."""
    if not hours:
        return "0"
    return f"{hours:,.1f}" if hours >= 1 else f"{hours:.3f}"
