"""`allot submit`: job files into jobs."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from allotment.cli.attach import Attached, detachable
from allotment.cli.eta import eta_lines
from allotment.cli.first import asked_first
from allotment.cli.grid import Grid, grid_of
from allotment.cli.job_json import as_object
from allotment.cli.options import AsJson, Changes, StateFolder
from allotment.cli.outcome import ending, exit_code
from allotment.cli.output import Failed, at_line, say, say_json, talk, warn
from allotment.cli.prepare import Prepared, prepare
from allotment.cli.surely import new_key, submit_surely
from allotment.cli.words import count
from allotment.client import Client
from allotment.service.views import Submitted


def submit(  # noqa: PLR0913 - one argument an option
    files: Annotated[
        list[str], typer.Argument(metavar="FILE…", help="Job files; `-` is standard input.")
    ],
    *,
    changes: Changes = None,
    form: Annotated[
        str, typer.Option("--form", help="auto, native (YAML) or classic (JSON).")
    ] = "auto",
    held: Annotated[
        bool, typer.Option("--held", help="Hold the job: it starts only after `allot release`.")
    ] = False,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label", metavar="KEY=VALUE", help="A label to find the job by. Repeatable."
        ),
    ] = None,
    grid: Grid = None,
    key: Annotated[
        str,
        typer.Option("--key", metavar="TEXT", help="The same key gives the same job again."),
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show its output, end with its exit code.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show where and when it would start.")
    ] = False,
    state: StateFolder = "",
    as_json: AsJson = False,
) -> None:
    """Submit job files; print the ids of the new jobs.

    Files are checked first: mistakes are reported with their line, and nothing is submitted
    while any file is wrong. Relative data, code, output and workdir paths are taken from
    the file's own folder. A secret {from_env: NAME} is looked up in your environment.
    If no service runs, one is started.

    With --dry-run nothing is submitted: each job is checked, and its start is estimated as by
    `allot eta`, each job by itself.

    While the service cannot say whether a job was accepted (its disk is full), this asks
    again, and prints the key for later questions: allot show --key KEY.

    Examples:
      allot submit train.yaml
      allot submit train.yaml --dry-run
      allot submit train.yaml --set env.LR=0.05 --set priority=high
      allot submit --form classic legacy.json --follow
      allot submit train.yaml --grid lr=0.1,0.01 --grid seed=1..5
      make-job | allot submit - --key nightly-2026-11-21
    """
    if len(files) > 1 and (follow or key):
        raise Failed("--follow and --key are for one job.", "Submit the files one by one.")
    if dry_run and (follow or key):
        raise Failed("--follow and --key are for jobs that are submitted.")
    changes = [*(changes or []), *(f"labels.{label}" for label in labels or [])]
    parameters = grid_of(grid or [])
    ready = [_read(file, form, changes, parameters) for file in files]
    if dry_run:
        _try(ready, held, state, as_json)
        return
    with Client(state=state) as client:
        made = [
            asked_first(client, state, partial(_submit, job=job, key=key, held=held))
            for job in ready
        ]
        if follow:
            _follow(client, made[0], as_json)
    if as_json:
        say_json(made[0] if len(made) == 1 else made)
        return
    for found in made:
        announce(found)
        for job in found.ids:
            say(str(job))


def _try(ready: list[Prepared], held: bool, state: str, as_json: bool) -> None:
    """Report each job whether, where and when it would start."""
    with Client(state=state) as client:
        found = [client.dry_run(job.body, form=job.form, held=held) for job in ready]
    for job, each in zip(ready, found, strict=True):
        _warn_of(job, each.warnings)
    if as_json:
        say_json(found[0] if len(found) == 1 else found)
        return
    for each in found:
        for line in eta_lines(each):
            say(line)


def _read(file: str, form: str, changes: list[str], parameters: dict[str, object]) -> Prepared:
    """Read one file completely, and print what its reader had to say."""
    if file == "-":
        data, source, folder = sys.stdin.buffer.read(), "<stdin>", Path.cwd()
    else:
        try:
            data = Path(file).read_bytes()
        except OSError as error:
            raise Failed(
                f"{file} cannot be read: {(error.strerror or str(error)).lower()}.",
                "Name a job file; docs/guide/first-job.md shows one.",
            ) from error
        source, folder = file, Path(file).absolute().parent
    ready = prepare(data, source, folder, form, changes, os.environ, parameters)
    for warning in ready.warnings:
        warn(at_line(source, warning))
    return ready


def _submit(client: Client, job: Prepared, key: str, held: bool) -> Submitted:
    made = submit_surely(client, job.body, key or new_key(), form=job.form, held=held)
    _warn_of(job, made.warnings)
    return made


def _warn_of(job: Prepared, warnings: tuple[str, ...]) -> None:
    """Print what the service warns of, and its reader did not."""
    known = {str(warning) for warning in job.warnings} | {w.message for w in job.warnings}
    for warning in warnings:
        if warning not in known:
            warn(warning)


def _follow(client: Client, made: Submitted, as_json: bool) -> NoReturn:
    announce(made)
    with detachable(made.id):
        done = Attached(client, client.job(made.id), talk).until_the_end()
    for line in ending(done):
        talk(line)
    if as_json:
        say_json(as_object(done))
    raise typer.Exit(exit_code(done))


def announce(made: Submitted) -> None:
    """Print what was made."""
    again = " (submitted before with this key)" if made.repeated else ""
    many = f", an array of {count(len(made.ids), 'job')}" if len(made.ids) > 1 else ""
    talk(f"job {made.id} ({made.name}) {made.state}{many}{again}")
