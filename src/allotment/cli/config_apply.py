"""`allot config plan`, `apply` and `show`: changing the cluster while jobs run."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from allotment.cli.config_import import read_file
from allotment.cli.options import AsJson, State
from allotment.cli.output import say, say_json, talk, warn
from allotment.cli.words import count
from allotment.client import Client, Refused
from allotment.model.errors import BadInput
from allotment.model.ids import JobId
from allotment.service.config_view import ConfigPlan

File = Annotated[Path, typer.Argument(metavar="FILE", help="The new configuration.")]
MOST_JOBS = 10
"""Jobs that are named; of the others only the number is told."""


def plan(file: File, state: State = "", as_json: AsJson = False) -> None:
    """Show what a new configuration would change, and for which jobs; change nothing.

    The service tries it on a copy of its own state, so this is exactly what would happen now.
    The exit code is 1 if the configuration could not be applied now.
    """
    text = read_file(file).decode(errors="replace")
    with Client(state=state) as client, _problems_in(file):
        found = client.plan_config(text, str(file))
    if as_json:
        say_json(found)
    else:
        _say(found)
        if not found.refusal and found.changes:
            talk(f"To do it: allot config apply {file} --expect {found.current}")
    if found.refusal:
        raise typer.Exit(1)


def apply(
    file: File,
    expect: Annotated[
        str,
        typer.Option(
            "--expect",
            metavar="DIGEST",
            help="Replace only the configuration with this digest; by default the present one.",
        ),
    ] = "",
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Put a new configuration in force while jobs run. They all run on.

    All of it is applied, or nothing. Jobs beyond a smaller guarantee of their tenant become
    borrowers: they may be evicted when another tenant reclaims its guarantee. Nodes that run
    jobs cannot be removed. The file is kept for the next start. If another configuration was
    put in force meanwhile, nothing is applied.
    """
    with Client(state=state) as client, _problems_in(file):
        expect = expect or client.config().digest
        text = read_file(file).decode(errors="replace")
        done = client.apply_config(text, str(file), expect)
    if as_json:
        say_json(done)
        return
    _say(done)
    talk(f"in force: {done.proposed}" if done.changes else "nothing had to change")


@contextmanager
def _problems_in(file: Path) -> Generator[None, None, None]:
    """Return what the service finds wrong in a file just as `config check` does."""
    try:
        yield
    except Refused as refusal:
        if not refusal.problems:
            raise
        raise BadInput(refusal.problems, str(file)) from refusal


def show(state: State = "", as_json: AsJson = False) -> None:
    """Print the configuration in force, in full."""
    with Client(state=state) as client:
        found = client.config()
    if as_json:
        say_json(found)
        return
    say(found.text)
    talk(f"in force: {found.digest}")


def _say(plan: ConfigPlan) -> None:
    _say_changes(plan)
    if plan.refusal:
        talk(f"It cannot be applied now. {plan.refusal}")
        return
    by_tenant: dict[str, list[JobId]] = {}
    for job in plan.demoted:
        by_tenant.setdefault(job.tenant, []).append(job.job)
    for tenant, jobs in by_tenant.items():
        say(f"! {_jobs(jobs)} of {tenant} would lose the guarantee and run on as borrowers")
    for jobs, words in (
        (plan.unreserved, "would lose a reserved place; another is searched for"),
        (plan.borrowing, "would no longer fit in their tenant's cells, only borrow"),
        (plan.stranded, "would not fit anywhere any more, and wait"),
    ):
        if jobs:
            say(f"! {_jobs(list(jobs))} {words}")
    for tenant, why, jobs in _stuck(plan):
        say(f"! {_jobs(jobs)} of {tenant} could not start any more: {why}")
    if plan.changes and not (
        plan.demoted or plan.unreserved or plan.borrowing or plan.stranded or plan.stuck
    ):
        say("No job is worse off.")


def _stuck(plan: ConfigPlan) -> Iterator[tuple[str, str, list[JobId]]]:
    """Group jobs by what keeps them, in the order of the first of each."""
    found: dict[tuple[str, str], list[JobId]] = {}
    for job in plan.stuck:
        found.setdefault((job.tenant, job.why), []).append(job.job)
    for (tenant, why), jobs in found.items():
        yield tenant, why, jobs


def _say_changes(plan: ConfigPlan) -> None:
    for warning in plan.warnings:
        warn(warning)
    for change in plan.changes:
        say(f"{change.sign} {change.what}" + (f": {change.detail}" if change.detail else ""))
    if not plan.changes:
        say("This configuration is in force already.")
    for each in plan.coming:
        say(f"@ {each.when}: {each.what}: {each.detail}")


def _jobs(jobs: list[JobId]) -> str:
    named = ", ".join(str(job) for job in jobs[:MOST_JOBS])
    more = f" and {len(jobs) - MOST_JOBS} more" if len(jobs) > MOST_JOBS else ""
    return f"{count(len(jobs), 'job')} ({named}{more})"
