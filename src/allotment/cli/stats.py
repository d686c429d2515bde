"""`allot stats`: is every team getting its share, and how long do jobs wait?"""

from typing import Annotated

import typer

from allotment.cli.options import AsJson, State, complete_tenant
from allotment.cli.output import say_json
from allotment.cli.period import Since, Until, period
from allotment.client import Client

Tenant = Annotated[
    str,
    typer.Option(
        "--tenant", "-T", metavar="TENANT", help="One tenant's jobs only.", show_default=False,
        autocompletion=complete_tenant,
    ),
]  # fmt: skip


def stats(
    since: Since = "7d",
    until: Until = "",
    tenant: Tenant = "",
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Show how jobs waited and ran, and how much of its guarantee each tenant got.

    The numbers are those of `allot sim`, over the service's own event log, as if it began at
    --since: an earlier job counts from then on. GUARANTEED and GOT are GPUs, GOT on average.
    PACE is 1 if jobs were as fast as if the cluster had always been divided evenly among all
    jobs, and lower if they were slower.

    Examples:
      allot stats
      allot stats --since 1d --tenant vision
      allot stats --since 2026-10-01 --until 2026-11-01 --json
    """
    from allotment.cli import stats_words as words  # noqa: PLC0415 - Typer reads this first

    first, last = period(since, until)
    with Client(state=state) as client:
        found = client.statistics(max(0, first), last if until else None)
    if tenant:
        found = words.of_tenant(found, tenant)
    if as_json:
        say_json(found)
    else:
        words.in_words(found, tenant)
