"""`allot objectives`: were the service objectives met?"""

from allotment.cli.instants import date
from allotment.cli.options import AsJson, State
from allotment.cli.output import paint, say, say_json, talk
from allotment.cli.period import Since, Until, period, warn_of_forgotten
from allotment.cli.table import Column, print_table
from allotment.cli.words import NOTHING_THERE, show_span
from allotment.client import Client
from allotment.metrics.objectives import Measured
from allotment.model.objectives import Objective
from allotment.service.objectives_view import ObjectivesReport

COLUMNS = (
    Column("TENANT", flexible=True),
    Column("OBJECTIVE"),
    Column("TARGET", right=True),
    Column("KEPT"),
    Column("WORST", right=True),
    Column("P99", rank=1, right=True),
    Column("CASES", rank=2, right=True),
    Column("BROKEN", rank=2, right=True),
)
WORDS = {
    Objective.GUARANTEE_BACK: "guarantee back",
    Objective.WAIT: "wait within guarantee",
    Objective.AVAILABILITY: "availability",
}
MOST_NAMED = 5
"""Jobs that are named for an objective that was not met."""


def objectives(
    since: Since = "7d", until: Until = "", state: State = "", as_json: AsJson = False
) -> None:
    """Show whether the service objectives of tenants were met, and for which jobs not.

    Objectives are `objectives` of tenants in the configuration: how soon a guarantee is given
    back, how long a job within the guarantee waits at most, and how much of the guarantee is
    on working hardware. WORST and P99 are over all cases of the period; for availability, the
    part available at the worst moment, and for 99 % of the time.

    Examples:
      allot objectives
      allot objectives --since 2026-10-01 --until 2026-11-01 --json
    """
    first, last = period(since, until)
    with Client(state=state) as client:
        found = client.objectives(max(0, first), last if until else None)
    if as_json:
        say_json(found)
        return
    _table(found)
    warn_of_forgotten(found)


def _table(found: ObjectivesReport) -> None:
    say(paint(f"{date(found.since)} to {date(found.until)}", "bold"))
    if not found.rows:
        say("No tenant has service objectives.")
        talk("To set some: `objectives` of a tenant in the configuration.")
        return
    print_table(COLUMNS, [_row(row) for row in found.rows])
    say()
    broken = [row for row in found.rows if not row.kept]
    if not broken:
        say("Every objective was met.")
    for row in broken:
        say(_verdict(row))
        for job in row.jobs[:MOST_NAMED]:
            still = "" if job.until else ", and still waits"
            say(f"  job {job.job} ({job.name}) waited {show_span(job.ms)}{still}")
        if len(row.jobs) < row.broken or len(row.jobs) > MOST_NAMED:
            talk(f"  {row.broken} cases in all; the worst {len(row.jobs)} with --json.")


def _verdict(row: Measured) -> str:
    who = paint(row.tenant, "bold")
    if row.objective is Objective.AVAILABILITY:
        return (
            f"{who} could have {_amount(row, row.measured)} of its guarantee; the objective "
            f"is {_amount(row, row.target)}."
        )
    times = "once" if row.broken == 1 else f"{row.broken:,} times"
    what = (
        "what it had lent was not back"
        if row.objective is Objective.GUARANTEE_BACK
        else "a job within its guarantee had not started"
    )
    return f"{who}: {times} of {row.cases:,} {what} within {_amount(row, row.target)}."


def _row(row: Measured) -> tuple[str, ...]:
    return (
        row.tenant,
        WORDS[row.objective],
        _amount(row, row.target),
        ("yes" if row.kept else "NO") if row.cases else NOTHING_THERE,
        _amount(row, row.worst) if row.cases else NOTHING_THERE,
        _amount(row, row.p99) if row.cases else NOTHING_THERE,
        f"{row.cases:,}",
        f"{row.broken:,}",
    )


def _amount(row: Measured, amount: int) -> str:
    """Write a length of time, or of availability hundredths down to the fourth digit."""
    if row.objective is Objective.AVAILABILITY:
        return f"{amount // 10_000}.{amount % 10_000:04d}".rstrip("0").rstrip(".") + "%"
    return show_span(amount)
