"""`allot fairness`: is every team getting its share, now?"""

from allotment.cli.options import AsJson, State
from allotment.cli.output import paint, say, say_json, talk
from allotment.cli.table import Column, print_table
from allotment.cli.words import NOTHING_THERE, count, show_span
from allotment.client import Client
from allotment.model.quantity import Resources, show_milli, show_resources
from allotment.service.fairness_view import FairnessReport, Served, TenantFairness

COLUMNS = (
    Column("TENANT", flexible=True),
    Column("GUARANTEED", right=True),
    Column("WANTS", rank=3, right=True),
    Column("DESERVES", right=True),
    Column("USES", right=True),
    Column("BORROWED", rank=2, right=True),
    Column("LENT", rank=2, right=True),
    Column("SHARE", rank=1, right=True),
    Column("SERVED"),
    Column("STARVED", right=True),
)
PPM = 1_000_000
WORST = (Served.STARVED, Served.UNDER, Served.OVER, Served.EVEN)
"""The order of the rows."""


def fairness(state: State = "", as_json: AsJson = False) -> None:
    """Show what each tenant deserves of the cluster now, what it has, and which are starved.

    DESERVES divides the cluster among all running and eligible jobs: first the guarantees,
    then the rest by dominant resource fairness. No tenant deserves more than it WANTS. SHARE
    compares the dominant share that a tenant has with the one that it deserves. STARVED is
    how long a job has waited that would be within what its tenant deserves. Amounts are
    GPUs, or CPUs if the cluster has no GPU. Tenants are compared, not the queues or users of
    a tenant: for queues see `allot queues`.

    Examples:
      allot fairness
      allot fairness --json
    """
    with Client(state=state) as client:
        found = client.fairness()
    if as_json:
        say_json(found)
        return
    in_gpus = found.capacity.gpu_milli > 0
    rows = sorted(found.tenants, key=lambda tenant: WORST.index(tenant.served))
    print_table(COLUMNS, [_row(tenant, in_gpus=in_gpus) for tenant in rows])
    say()
    for line in verdict(found):
        say(line)
    if not in_gpus:
        talk("Amounts are CPUs: the cluster has no GPU.")


def _row(tenant: TenantFairness, *, in_gpus: bool) -> tuple[str, ...]:
    def amount(held: Resources) -> str:
        return _short(held.gpu_milli if in_gpus else held.cpu_milli)

    starved = tenant.served is Served.STARVED
    return (
        tenant.tenant,
        amount(tenant.guaranteed),
        amount(tenant.wanted),
        amount(tenant.deserved),
        amount(tenant.used),
        amount(tenant.borrowed),
        amount(tenant.lent),
        f"{_percent(tenant.used_ppm)}/{_percent(tenant.deserved_ppm)}",
        tenant.served.value,
        show_span(tenant.starved_ms) if starved else NOTHING_THERE,
    )


def _short(milli: int) -> str:
    """Write thousandths with one digit at most: what is deserved is seldom whole."""
    return show_milli(milli if milli % 1000 == 0 else round(milli, -2))


def _percent(ppm: int) -> str:
    return f"{ppm / PPM:.0%}"


def verdict(found: FairnessReport) -> list[str]:
    """Return in words whether every tenant gets its share, and which do not."""
    starved = [each for each in found.tenants if each.served is Served.STARVED]
    short = [each for each in found.tenants if each.served is Served.UNDER]
    if not starved and not short:
        return ["Every tenant gets its share: no job waits for what its tenant deserves."]
    lines = [
        paint(each.tenant, "bold")
        + f" is starved: {count(each.starved_jobs, 'job')} within what it deserves, "
        f"{_longest(each)} for {show_span(each.starved_ms)}."
        for each in sorted(starved, key=lambda each: -each.starved_ms)
    ]
    lines += [_short_of(each) for each in short]
    over = [each for each in found.tenants if each.served is Served.OVER]
    if over:
        most = max(over, key=lambda each: each.used_ppm - each.deserved_ppm)
        more = _percent(most.used_ppm - most.deserved_ppm)
        lines.append(f"{most.tenant} has most beyond its fair share: {more} of the cluster.")
    if not starved:
        lines.append("No tenant is starved: no waiting job is within what its tenant deserves.")
    return [*lines, "To see why a job waits: `allot why JOB`."]


def _short_of(each: TenantFairness) -> str:
    """Return why a tenant below what it deserves is not starved: its jobs are larger."""
    due = _percent(each.deserved_ppm)
    has = f"{paint(each.tenant, 'bold')} has {_percent(each.used_ppm)} of the {due} it deserves"
    if not each.eligible:
        return f"{has}, and no job waits for the rest."
    return (
        f"{has}: the rest is too little for its waiting jobs, the smallest of which asks for "
        f"{show_resources(each.smallest)}. Smaller jobs would fit."
    )


def _longest(each: TenantFairness) -> str:
    return "one" if each.starved_job is None else f"job {each.starved_job}"
