"""`allot submit`: job files into jobs."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple, NoReturn

import typer

from allotment.cli.attach import Attached, detachable
from allotment.cli.eta import eta_lines
from allotment.cli.first import asked_first
from allotment.cli.grid import Grid, grid_of
from allotment.cli.job_json import as_object
from allotment.cli.options import AsJson, Changes, Labels, StateFolder
from allotment.cli.outcome import ending, exit_code
from allotment.cli.output import Failed, at_line, say, say_json, talk, warn
from allotment.cli.prepare import Prepared, prepare
from allotment.cli.surely import new_key, submit_surely
from allotment.cli.taking import UsualFolder, look_at_code, with_code
from allotment.cli.words import count, harmless
from allotment.client import Client
from allotment.service.selector import Selector
from allotment.service.views import Submitted
from allotment.wire.batch.wish import BatchWish, Submitter
from allotment.wire.job import Form, is_batch_script


def submit(  # noqa: PLR0913 - one argument an option
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Job files; `-` is standard input.")
    ],
    *,
    changes: Changes = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-O",
            metavar="OPTION",
            help="An option of a batch script, such as --time=1:00:00; it wins over the "
            "script's own. Repeatable.",
        ),
    ] = None,
    ignored: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore",
            metavar="OPTION",
            help="Ignore an option of a batch script, with a warning: exclusive. Repeatable.",
        ),
    ] = None,
    arguments: Annotated[
        list[str] | None,
        typer.Option(
            "--arg", metavar="TEXT", help="An argument of a batch script. Repeatable."
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--form", help="auto, native (YAML), classic (JSON), or a script: slurm, lsf."
        ),
    ] = "auto",
    held: Annotated[
        bool, typer.Option("--held", help="Hold the job: it starts only after `allot release`.")
    ] = False,
    labels: Labels = None,
    grid: Grid = None,
    code: UsualFolder = None,
    key: Annotated[
        str,
        typer.Option("--key", metavar="TEXT", help="The same key gives the same job again."),
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show its output, end with its exit code.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Only show the job, and where and when it would start.",
        ),
    ] = False,
    state: StateFolder = "",
    as_json: AsJson = False,
) -> None:
    """Submit job files or batch scripts; print the ids of the new jobs.

    Files are checked first: mistakes are reported with their line, and nothing is submitted
    while any file is wrong. Relative data, code, output and workdir paths are taken from
    the file's own folder. A secret {from_env: NAME} is looked up in your environment.
    If no service runs, one is started.

    A script with #SBATCH or #BSUB lines runs as in Slurm or LSF: once, from this folder, with
    your environment, its output in the file that it names. Each of its options is used,
    warned of, or refused with its line.

    A PyTorchJob, TFJob, MPIJob, TrainJob, JobSet, Framework or Job of Kubernetes runs
    without its operator.

    With --code, or `code: {take: FOLDER}` in the file, a folder is taken along as it is now:
    what git ignores stays out. The job runs in a copy of it. ALLOT_CODE=. in your environment
    does so for each file that names neither `code` nor `workdir`.

    With --dry-run nothing is submitted: each job is checked, and its start is estimated as by
    `allot eta`, each job by itself. For a script, the job file that it becomes is shown.

    While the service cannot say whether a job was accepted (its disk is full), this asks
    again, and prints the key for later questions: allot show --key KEY.

    Examples:
      allot submit train.yaml
      allot submit train.yaml --dry-run
      allot submit train.yaml --set env.LR=0.05 --set priority=high
      allot submit --form classic legacy.json --follow
      allot submit train.yaml --code .
      allot submit job.sbatch
      allot submit job.sbatch -O --time=30 -O --array=0-3 --arg data.csv
      allot submit job.bsub -O -W -O 0:30 --ignore x
      allot submit train.yaml --grid lr=0.1,0.01 --grid seed=1..5
      make-job | allot submit - --key nightly-2026-11-21
    """
    if len(files) > 1 and (follow or key):
        raise Failed("--follow and --key are for one job.", "Submit the files one by one.")
    if dry_run and (follow or key):
        raise Failed(
            "--follow and --key are for jobs that are submitted.",
            "Leave them out, or --dry-run.",
        )
    changes = [*(changes or []), *(f"labels.{label}" for label in labels or [])]
    parameters = grid_of(grid or [])
    said = Said(tuple(options or ()), tuple(ignored or ()), tuple(arguments or ()))
    ready = [_read(file, form, changes, parameters, said) for file in files]
    if dry_run:
        _try(ready, held, state, code, as_json)
        return
    with Client(state=state) as client:
        made = [
            asked_first(client, state, partial(_submit, job=job, key=key, held=held, code=code))
            for job in ready
        ]
        if follow:
            _follow(client, made[0], as_json)
        _tell_of(made, ready, as_json)
        waited = [each for each, job in zip(made, ready, strict=True) if job.waits]
        if status := _await(client, waited):
            raise typer.Exit(status)


def _try(
    ready: list[Prepared], held: bool, state: str, code: str | None, as_json: bool
) -> None:
    """Report each job whether, where and when it would start."""
    with Client(state=state) as client:
        looked = [look_at_code(client, job.body, code) for job in ready]
        found = [
            client.dry_run(body, form=job.form, held=held or job.held)
            for job, (body, _) in zip(ready, looked, strict=True)
        ]
    for job, each in zip(ready, found, strict=True):
        _warn_of(job, each.warnings)
    if as_json:
        say_json(found[0] if len(found) == 1 else found)
        return
    for job, each, (_, words) in zip(ready, found, looked, strict=True):
        if job.script:
            say(job.script)
        for line in (words, *each.brings):
            if line:
                say(harmless(line))
        for line in eta_lines(each):
            say(line)


class Said(NamedTuple):
    """What the command line adds to a batch script."""

    options: tuple[str, ...]
    ignored: tuple[str, ...]
    arguments: tuple[str, ...]


def _read(
    file: str, form: str, changes: list[str], parameters: dict[str, object], said: Said
) -> Prepared:
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
    if any(said) and not is_batch_script(data) and form not in SCRIPTS:
        raise Failed(
            f"{source} is not a batch script, and --option, --ignore and --arg are for those.",
            "Use --set to change a job file.",
        )
    wish = BatchWish(_submitter(file, said.arguments), said.options, said.ignored)
    ready = prepare(data, source, folder, form, changes, os.environ, parameters, wish)
    for warning in ready.warnings:
        warn(at_line(source, warning))
    return ready


SCRIPTS = (Form.SLURM, Form.LSF)


def _submitter(file: str, arguments: tuple[str, ...]) -> Submitter:
    """Return from where a batch script is submitted: this folder, as its user wrote it."""
    script = "" if file == "-" else Path(file).name
    return Submitter(str(Path.cwd()), os.uname().nodename, script, os.environ, arguments)


def _submit(client: Client, job: Prepared, key: str, held: bool, code: str | None) -> Submitted:
    held = held or job.held
    body = with_code(client, job.body, code)
    made = submit_surely(client, body, key or new_key(), form=job.form, held=held)
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


def _tell_of(made: list[Submitted], ready: list[Prepared], as_json: bool) -> None:
    """Print what was made; of a batch script just the one number that sbatch prints."""
    if as_json:
        say_json(made[0] if len(made) == 1 else made)
        return
    for found, job in zip(made, ready, strict=True):
        announce(found)
        for each in found.ids[:1] if job.script else found.ids:
            say(str(each))
    sys.stdout.flush()


def _await(client: Client, made: list[Submitted]) -> int:
    """Wait for jobs that ask for it; return the highest exit code."""
    codes: list[int] = []
    for each in made:
        with detachable(each.id):
            client.wait_all(Selector(ids=((each.ids[0], each.ids[-1]),)), None)
        codes += [exit_code(client.job(job)) for job in each.ids]
    return max(codes, default=0)


def announce(made: Submitted) -> None:
    """Print the ids of the new jobs."""
    again = " (submitted before with this key)" if made.repeated else ""
    many = f", an array of {count(len(made.ids), 'job')}" if len(made.ids) > 1 else ""
    talk(f"job {made.id} ({made.name}) {made.state}{many}{again}")
