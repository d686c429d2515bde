"""`allot ps`: one line a job."""

import sys
import time
from typing import Annotated

import typer

from allotment.cli.options import AsJson, State, complete_tenant
from allotment.cli.output import Failed, say_json, talk
from allotment.cli.table import Column, print_table
from allotment.cli.words import plain, show_age, show_gpus, show_span, some
from allotment.client import Client
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import JobState
from allotment.service.views import JobRow

COLUMNS = (
    Column("ID", right=True),
    Column("NAME", flexible=True),
    Column("TENANT", rank=3),
    Column("USER", rank=5),
    Column("STATE"),
    Column("GPU", rank=1, right=True),
    Column("AGE", rank=4, right=True),
    Column("RAN", rank=2, right=True),
    Column("NODE", rank=6),
    Column("WHY", flexible=True),
)


def ps(  # noqa: PLR0913 - one argument an option
    *,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also those that finished long ago.")
    ] = False,
    tenant: Annotated[
        str, typer.Option(help="Of this tenant.", autocompletion=complete_tenant)
    ] = "",
    user: Annotated[str, typer.Option(help="Of this user.")] = "",
    mine: Annotated[bool, typer.Option("--mine", "-m", help="Only my own.")] = False,
    name: Annotated[str, typer.Option(help="Whose name begins so.")] = "",
    states: Annotated[
        list[str] | None,
        typer.Option("--in", "-i", metavar="STATE", help="In this state. Repeatable."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 100,
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first: what runs, what waits and why.

    Shows live jobs and those that finished in the last hour. WHY says what a job waits
    for, how it ended, or that it runs on devices lent by another tenant.

    Examples:
      allot ps
      allot ps --mine --in queued --in held
      allot ps --all --tenant vision --json
    """
    wanted = [_state(word) for word in states or []]
    if state in tuple(JobState):
        raise Failed("--state names a service's folder.", f"You want: allot ps --in {state}")
    with Client(state=state) as client:
        rows = client.jobs(
            tenant=tenant,
            user=_me() if mine else user,
            name=name,
            states=wanted,
            finished=everything or any(JobState(word).finished for word in wanted),
            limit=limit,
        )
    if as_json:
        say_json(rows)
        return
    now = int(time.time() * 1000)
    print_table(COLUMNS, [as_row(row, now) for row in rows])
    if not rows and sys.stderr.isatty():
        talk("No jobs. Try: allot run -- echo hello")
    elif len(rows) == limit:
        talk(f"The newest {limit} are shown; --limit gives more.")


def _state(word: str) -> str:
    word = word.lower().replace("-", "_")
    if word not in tuple(JobState):
        raise Failed(f"There is no state {word}.", f"States: {', '.join(JobState)}.")
    return word


def _me() -> str:
    import getpass  # noqa: PLC0415 - rarely needed

    return getpass.getuser()


def as_row(row: JobRow, now: int) -> tuple[str, ...]:
    """Give the cells of one job."""
    return (
        str(row.id),
        row.name,
        row.tenant,
        row.user,
        row.state,
        show_gpus(row.total.gpu_milli),
        show_age(row.submitted_at, now),
        show_span(row.ran_ms) if row.started_at else "-",
        some(row.nodes),
        why_of(row),
    )


def why_of(row: JobRow) -> str:
    """Say in a word or two what is worth knowing about a job in its state."""
    if row.reason:
        return plain(row.reason)
    if row.entitlement is Entitlement.OPPORTUNISTIC and not row.state.finished:
        return "on lent devices" if row.total.gpu_milli else "on lent resources"
    return ""
