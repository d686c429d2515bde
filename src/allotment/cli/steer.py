"""Verbs that tell a job what to do: cancel, hold, release, suspend, resume."""

from collections.abc import Callable, Sequence

from allotment.cli.job_json import as_object
from allotment.cli.options import AsJson, Jobs, State
from allotment.cli.output import say_json, talk, tell
from allotment.client import Client, Refused
from allotment.service.views import JobView


def cancel(jobs: Jobs, state: State = "", as_json: AsJson = False) -> None:
    """End jobs, wherever they stand.

    A waiting job ends at once. A running one gets its warning signal and its grace, so
    that it can save its work; it shows as `stopping` until then.

    Examples:
      allot cancel 12
      allot cancel last train-resnet
    """
    _each(jobs, state, as_json, Client.cancel)


def hold(jobs: Jobs, state: State = "", as_json: AsJson = False) -> None:
    """Take waiting jobs out of the line, until they are released.

    Examples:
      allot hold 12 13
    """
    _each(jobs, state, as_json, Client.hold)


def release(jobs: Jobs, state: State = "", as_json: AsJson = False) -> None:
    """Put held jobs back in line.

    Examples:
      allot release 12
    """
    _each(jobs, state, as_json, Client.release)


def suspend(jobs: Jobs, state: State = "", as_json: AsJson = False) -> None:
    """Freeze running jobs and free their devices; they keep their memory.

    Where an owner in cells needs what a suspended job keeps, that job is queued again.

    Examples:
      allot suspend 12
      allot resume 12
    """
    _each(jobs, state, as_json, Client.suspend)


def resume(jobs: Jobs, state: State = "", as_json: AsJson = False) -> None:
    """Let suspended jobs go on as soon as their devices are free.

    Examples:
      allot resume 12
    """
    _each(jobs, state, as_json, Client.resume)


def _each(
    refs: Sequence[str], state: str, as_json: bool, act: Callable[[Client, str], JobView]
) -> None:
    """Do it to each job; one that refuses does not keep the others from it."""
    done: list[JobView] = []
    refused: list[Refused] = []
    with Client(state=state) as client:
        for ref in refs:
            try:
                done.append(act(client, ref))
            except Refused as error:
                refused.append(error)
    if as_json and done:
        say_json(as_object(done[0]) if len(refs) == 1 else [as_object(job) for job in done])
    for job in done if not as_json else []:
        talk(f"job {job.id} ({job.row.name}): {after(job)}")
    for error in refused[1:]:
        tell(error)
    if refused:
        raise refused[0]


def after(job: JobView) -> str:
    """Say where a job stands now."""
    return f"{job.state}, {job.why.message}" if job.why else str(job.state)
