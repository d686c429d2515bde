"""`allot wait`: until jobs have finished."""

from typing import Annotated

import typer

from allotment.cli.attach import detachable
from allotment.cli.job_json import as_object
from allotment.cli.options import AsJson, Jobs, State
from allotment.cli.outcome import ending, exit_code
from allotment.cli.output import Failed, say_json, talk
from allotment.client import Client
from allotment.service.views import JobView

TIMED_OUT = 124
"""As `timeout` has it."""


def wait(
    jobs: Jobs,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", help="Give up after; 0 is never."),
    ] = 0,
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Wait until jobs have finished, through restarts of the service.

    Exits with the job's exit code: 0 when it succeeded; that of the task that failed first,
    128 + n when signal n ended it; 1 for everything else; 124 when --timeout struck. Of
    several jobs the first that is not 0.

    Examples:
      allot wait last && allot outputs last --fetch .
      allot wait 12 13 14 --timeout 3600
    """
    done: list[JobView] = []
    with Client(state=state) as client:
        found = [client.job(ref) for ref in jobs]
        for job in found:
            with detachable(job.id):
                done.append(_wait(client, job, timeout))
            if not as_json:
                for line in ending(done[-1]):
                    talk(line)
    if as_json:
        say_json(as_object(done[0]) if len(jobs) == 1 else [as_object(job) for job in done])
    raise typer.Exit(next((code for job in done if (code := exit_code(job))), 0))


def _wait(client: Client, job: JobView, timeout: float) -> JobView:
    try:
        return client.wait(job.id, timeout or None)
    except TimeoutError:
        error = Failed(
            f"Job {job.id} has not finished within {timeout:g} s; it goes on.",
            f"allot show {job.id}",
        )
        raise TimedOut(error.message, error.hint) from None


class TimedOut(Failed):
    """The time a person wanted to wait is over."""

    exit_code = TIMED_OUT
