"""`allot events`: what happened."""

from datetime import datetime
from typing import Annotated

import typer

from allotment.cli.options import AsJson, State, complete_job
from allotment.cli.output import paint, say, say_json_line, talk
from allotment.cli.words import harmless
from allotment.client import Client
from allotment.service.views import EventView

EVERYTHING = 1 << 62


def events(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB",
            help="Only events of this job.",
            show_default=False,
            autocompletion=complete_job,
        ),
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new events.")] = False,
    after: Annotated[
        int, typer.Option("--after", metavar="SEQ", min=-1, help="Only events after this one.")
    ] = -1,
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            "-n",
            min=1,
            help="The number of events: the newest, or with --after the next.",
        ),
    ] = 100,
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Show what happened, oldest first: of one job, or the newest of the whole cluster.

    With --json, print one object a line; pass its `seq` to --after.

    Examples:
      allot events 12
      allot events -f
      allot events --after 4711 --json
    """  # fmt: skip
    with Client(state=state) as client:
        if job and after < 0:
            after, limit = 0, EVERYTHING
        elif after < 0:
            after = max(0, client.health().events - limit)
        try:
            for event in client.events(job or None, after=after, limit=limit, follow=follow):
                if as_json:
                    say_json_line(event)
                else:
                    say(event_line(event))
        except KeyboardInterrupt:
            talk("")
            raise typer.Exit(130) from None


def event_line(event: EventView) -> str:
    """Return one event as a line: when, what it is about, what, and which user."""
    at = datetime.fromtimestamp(event.at / 1000).astimezone()
    subject = f"job {event.job}" if event.job is not None else "cluster"
    who = "" if event.user in ("", "allot") else paint(f"  ({event.user})", "dim")
    when = paint(at.strftime("%m-%d %H:%M:%S"), "dim")
    return f"{when}  {subject:<9} {harmless(event.text)}{who}"
