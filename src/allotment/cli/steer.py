"""Verbs that tell jobs what to do: cancel, hold, release, suspend, resume, retry."""

from collections.abc import Iterator

from allotment.cli.job_json import as_object
from allotment.cli.options import AsJson
from allotment.cli.output import say, say_json, talk, tell
from allotment.cli.selecting import (
    ASKING,
    Choice,
    agreed,
    choosing,
    in_states,
    must_choose,
    shown_ids,
)
from allotment.cli.words import count
from allotment.client import Client, Refused
from allotment.service.selector import Selector, Steered, Verb
from allotment.service.views import JobView


@choosing(ASKING)
def cancel(choice: Choice, as_json: AsJson = False) -> None:
    """End jobs in any state.

    A waiting job ends at once. A running job gets its warning signal and grace time, so
    that it can save its work; until its end it is `stopping`. Cancelled again, a second or
    more later, it is killed.

    Examples:
      allot cancel 12
      allot cancel last train-resnet
      allot cancel '8[12-49]' '9[queued]'
      allot cancel --mine --name 'sweep-*' --state queued
    """
    _do(Verb.CANCEL, choice, as_json)


@choosing(ASKING)
def hold(choice: Choice, as_json: AsJson = False) -> None:
    """Keep waiting jobs from starting, until they are released.

    Examples:
      allot hold 12 13
      allot hold --mine --name 'sweep-*'
    """
    _do(Verb.HOLD, choice, as_json)


@choosing(ASKING)
def release(choice: Choice, as_json: AsJson = False) -> None:
    """Allow held jobs to start again.

    Examples:
      allot release 12
      allot release --mine
    """
    _do(Verb.RELEASE, choice, as_json)


@choosing(ASKING)
def suspend(choice: Choice, as_json: AsJson = False) -> None:
    """Freeze running jobs and free their devices; they keep their memory.

    With cells, a suspended job is queued again if a tenant needs its cells with the memory
    that the job keeps there.

    Examples:
      allot suspend 12
      allot suspend --all --tenant vision
    """
    _do(Verb.SUSPEND, choice, as_json)


@choosing(ASKING)
def resume(choice: Choice, as_json: AsJson = False) -> None:
    """Continue suspended jobs as soon as their devices are free.

    Examples:
      allot resume 12
    """
    _do(Verb.RESUME, choice, as_json)


@choosing(ASKING)
def retry(choice: Choice, as_json: AsJson = False) -> None:
    """Submit your failed or timed-out jobs again; print the new ids.

    The new jobs are unchanged, with new ids. Jobs of an array make a new array with the same
    indices, so each finds its own ALLOT_ARRAY_INDEX. Cancelled jobs are included only if you
    choose that state.

    Examples:
      allot retry 12
      allot retry 8
      allot retry '8[failed,cancelled]'
      allot retry --mine --name 'sweep-*' --state timed_out
    """
    _do(Verb.RETRY, choice, as_json)


def _do(verb: Verb, choice: Choice, as_json: bool) -> None:
    """Do it to what was chosen; one job that refuses does not keep the others from it."""
    must_choose(choice)
    done: list[Steered] = []
    refused: list[Refused] = []
    with Client(state=choice.folder) as client:
        for jobs in _wishes(agreed(client, verb, choice)):
            try:
                done.append(client.steer(verb, jobs))
            except Refused as error:
                refused.append(error)
    refused += [Refused(no.code, no.message, no.hint) for each in done for no in each.refused]
    _print(done, as_json)
    for error in refused[1:]:
        tell(error)
    if refused:
        raise refused[0]


def _wishes(jobs: Selector) -> Iterator[Selector]:
    """Ask for each reference by itself, unless others choose among them too."""
    if not jobs.refs or jobs.filters:
        yield jobs
    else:
        yield from (Selector(refs=(ref,)) for ref in jobs.refs)


def _print(done: list[Steered], as_json: bool) -> None:
    jobs = [job for each in done for job in each.jobs]
    few = len(jobs) == sum(each.count for each in done)
    if as_json and done:
        if not few or any(each.made for each in done):
            say_json(done[0] if len(done) == 1 else done)
        elif jobs:
            say_json(as_object(jobs[0]) if len(jobs) == 1 else [as_object(job) for job in jobs])
        return
    for each in done:
        for line in _lines(each):
            talk(line)
        for first, last in each.made:
            for job in range(first, last + 1):
                say(str(job))


DONE = {
    Verb.CANCEL: "cancelled",
    Verb.HOLD: "held",
    Verb.RELEASE: "released",
    Verb.SUSPEND: "suspended",
    Verb.RESUME: "resumed",
    Verb.RETRY: "retried",
}


def _lines(done: Steered) -> list[str]:
    lines = [f"job {job.id} ({job.row.name}): {after(job)}" for job in done.jobs]
    if done.count and not done.jobs:
        jobs = f"{count(done.count, 'job')} ({shown_ids(done.ids)})"
        again = f" as {shown_ids(done.made)}" if done.made else ""
        lines = [f"{DONE[done.verb]}: {jobs}{again}"]
    if done.left:
        lines.append(f"left unchanged: {in_states(done.left)}")
    return lines


def after(job: JobView) -> str:
    """Return where a job stands now."""
    return f"{job.state}, {job.why.message}" if job.why else str(job.state)
