"""`allot wait`: until jobs have finished."""

from typing import Annotated

import typer

from allotment.cli.attach import detachable
from allotment.cli.job_json import as_object
from allotment.cli.options import AsJson
from allotment.cli.outcome import ending, exit_code
from allotment.cli.output import Failed, say_json, talk
from allotment.cli.selecting import OPTIONS, Choice, choosing, in_states, must_choose, shown_ids
from allotment.cli.words import count
from allotment.client import Client
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import SECOND
from allotment.service.selector import Chosen, Selector
from allotment.service.views import JobView

TIMED_OUT = 124
"""As `timeout` has it."""

MOST_TOLD = 5
"""Of more jobs than this it is only said how many ended how."""


@choosing(OPTIONS)
def wait(
    choice: Choice,
    timeout: Annotated[
        str,
        typer.Option("--timeout", metavar="LENGTH", help="Give up after: 90s, 2h; 0 is never."),
    ] = "0",
    as_json: AsJson = False,
) -> None:
    """Wait until jobs have finished, through restarts of the service.

    The exit code is that of the job: 0 if it succeeded; that of the task that failed first,
    or 128 + n if signal n ended it; 1 in all other cases; 124 after --timeout. For several
    jobs it is the first one that is not 0.

    Examples:
      allot wait last && allot outputs last --fetch .
      allot wait 12 13 14 --timeout 1h
      allot wait '8[12-49]'
    """
    must_choose(choice)
    seconds = _seconds(timeout)
    with Client(state=choice.folder) as client:
        ids = _ids(client.choose(choice.jobs))
        chosen = Selector(ids=ids)
        with detachable(ids[0][0]):
            found = _wait(client, chosen, seconds)
        jobs = _told(client, chosen, found)
    many = found.count > MOST_TOLD
    for line in [] if as_json else _lines(found, jobs):
        talk(line)
    if as_json:
        one = as_object(jobs[0]) if found.count == 1 else [as_object(job) for job in jobs]
        say_json(found if many else one)
    raise typer.Exit(next((code for job in jobs if (code := exit_code(job))), 0))


def _seconds(text: str) -> float:
    """Read a length of time; a plain number is seconds."""
    if text == "0":
        return 0
    from allotment.wire.amiss import Amiss  # noqa: PLC0415 - rarely needed
    from allotment.wire.amounts import read_duration_or_none  # noqa: PLC0415

    try:
        return read_duration_or_none(text) / SECOND
    except Amiss as error:
        raise Failed(
            f"--timeout: {error.message}", "Write it like 90s, 2h30m or 1d."
        ) from error


def _ids(chosen: Chosen) -> tuple[tuple[JobId, JobId], ...]:
    if not chosen.ids:
        raise Failed("No job fits these options.", "See `allot ps` for a list of jobs.")
    return chosen.ids


def _wait(client: Client, jobs: Selector, timeout: float) -> Chosen:
    try:
        return client.wait_all(jobs, timeout or None)
    except TimeoutError:
        left = client.choose(jobs).going_on
        one = len(left) == 1 and left[0][0] == left[0][1]
        what = f"Job {left[0][0]} has" if one else f"Jobs {shown_ids(left)} have"
        raise TimedOut(
            f"{what} not finished within {timeout:g} s; {'it goes' if one else 'they go'} on.",
            f"allot show {left[0][0]}" if left else "",
        ) from None


def _told(client: Client, jobs: Selector, found: Chosen) -> list[JobView]:
    """Fetch the jobs to tell of: all of a few, else the first that did not succeed."""
    if found.count > MOST_TOLD:
        failed = tuple(state for state in JobState if state is not JobState.SUCCEEDED)
        ids = client.choose(Selector(ids=jobs.ids, states=failed)).ids
        return [client.job(ids[0][0])] if ids else []
    return [client.job(job) for first, last in found.ids for job in range(first, last + 1)]


def _lines(found: Chosen, jobs: list[JobView]) -> list[str]:
    lines = [line for job in jobs for line in ending(job)]
    if found.count > MOST_TOLD:
        lines.append(f"{count(found.count, 'job')}: {in_states(found.states)}")
    return lines


class TimedOut(Failed):
    """The time a person wanted to wait is over."""

    exit_code = TIMED_OUT
