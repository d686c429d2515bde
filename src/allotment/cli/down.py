"""`allot down`: stop the service. What it started runs on."""

from collections.abc import Sequence
from typing import Annotated

import typer

from allotment.cli.daemon import folder_of, wait_gone
from allotment.cli.options import AsJson, State
from allotment.cli.output import Failed, say_json, talk
from allotment.cli.words import count
from allotment.client import Client, Refused, Unreachable
from allotment.model.lifecycle import JobState
from allotment.service.views import JobRow

GONE_S = 30.0
ACTIVE = (JobState.STARTING, JobState.RUNNING, JobState.SUSPENDED, JobState.STOPPING)
WAITING = (JobState.QUEUED, JobState.HELD)
MOST = 100_000


def down(
    cancel_jobs: Annotated[
        bool,
        typer.Option(
            "--cancel-jobs", help="First cancel all jobs, and wait until they have ended."
        ),
    ] = False,
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Stop the service. Running tasks continue, and the next `up` adopts them.

    Examples:
      allot down
      allot down --cancel-jobs
    """
    with Client(state=state) as client:
        try:
            health = client.health()
        except Unreachable as error:
            talk(f"No service is running. {error.message}")
            return
        if cancel_jobs:
            _cancel(client, client.jobs(states=[*ACTIVE, *WAITING], limit=MOST))
        left = client.jobs(states=[*ACTIVE, *WAITING], limit=MOST)
        client.stop()
    if not wait_gone(health.pid, GONE_S):
        raise Failed(
            f"The service (pid {health.pid}) was told to stop and still runs.",
            f"See its log in {health.state_dir}; `kill {health.pid}` loses no job.",
        )
    running = sum(row.state in ACTIVE for row in left)
    if as_json:
        say_json({"stopped": health.pid, "running": running, "waiting": len(left) - running})
        return
    talk(f"The service has stopped. {_left(running, len(left) - running)}")
    if left:
        folder = (
            "" if health.state_dir == str(folder_of("")) else f" --state {health.state_dir}"
        )
        talk(f"To start it again: allot up{folder}")


def _left(running: int, waiting: int) -> str:
    if not running and not waiting:
        return "No job was left."
    parts = [f"{count(running, 'job')} run{'s' if running == 1 else ''} on"] if running else []
    parts += [f"{count(waiting, 'job')} wait{'s' if waiting == 1 else ''}"] if waiting else []
    return ", ".join(parts) + "."


def _cancel(client: Client, rows: Sequence[JobRow]) -> None:
    """Cancel jobs and wait until they are gone; one that just ended is no trouble."""
    if rows:
        talk(f"Cancelling {count(len(rows), 'job')} …")
    for row in rows:
        try:
            client.cancel(row.id)
        except Refused as error:
            if error.code != "wrong_state":
                raise
    for row in rows:
        client.wait(row.id)
