"""Verbs that change what a job asks for: edit and clone."""

from allotment.cli.job_json import as_object
from allotment.cli.options import AsJson, Changes, Job, State
from allotment.cli.output import Failed, say, say_json, talk, warn
from allotment.cli.taking import CodeFolder, code_change
from allotment.client import Client


def edit(job: Job, changes: Changes = None, state: State = "", as_json: AsJson = False) -> None:
    """Change a waiting job.

    The job keeps its place in the queue. A running job cannot be changed: clone it. An empty
    value sets a key back to its default.

    Examples:
      allot edit 12 --set priority=high
      allot edit last --set roles.worker.count=2 --set max_run_time=4h
    """
    if not changes:
        raise Failed("Nothing to change was named.", f"allot edit {job} --set priority=high")
    with Client(state=state) as client:
        changed = client.edit(job, changes)
    if as_json:
        say_json(as_object(changed))
        return
    talk(f"job {changed.id} ({changed.row.name}) changed; see it with: allot show {changed.id}")


def clone(
    job: Job,
    changes: Changes = None,
    code: CodeFolder = None,
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Submit a job again, perhaps with changes; print the new id.

    A job of an array keeps its index, so that it does the same work again. A job that took its
    code along runs the same code, even if the folder has changed; --code takes it again.

    Examples:
      allot clone 12
      allot clone 12 --code .
      allot clone last --set env.LR=0.05 --set name=lower-rate
    """
    with Client(state=state) as client:
        made = client.clone(job, [*(changes or []), *code_change(client, code)])
    for warning in made.warnings:
        warn(warning)
    if as_json:
        say_json(made)
        return
    say(str(made.id))
    talk(f"job {made.id} ({made.name}) {made.state}")
