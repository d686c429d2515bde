"""`allot sweep`: trials of parameters, compared by what they report."""

import os
import secrets
import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated, cast

import msgspec
import typer

from allotment.cli.first import asked_first
from allotment.cli.options import AsJson, Changes, State
from allotment.cli.output import Failed, say, say_json, talk, warn
from allotment.cli.prepare import with_absolute_paths, with_requirements
from allotment.cli.selecting import in_states
from allotment.cli.submit import announce
from allotment.cli.surely import new_key, submit_surely
from allotment.cli.sweep_words import SWEEPS, lines_of, sweep_cells, trial_table
from allotment.cli.table import print_table
from allotment.cli.taking import UsualFolder, with_code
from allotment.cli.watching import Every, watch
from allotment.client import Client
from allotment.service.sweep_view import SweepView
from allotment.sweeps.draw import trials
from allotment.wire.job import JobFile, apply_set, job_to_wire, read_job, read_job_json
from allotment.wire.sweep_write import sweep_to_wire
from allotment.wire.tree import Plain

SEEDS = 1 << 31
NOT_SAID: tuple[object, ...] = (None, "", [])
Ref = Annotated[
    str, typer.Argument(metavar="SWEEP", help="Its id, its name, one of its jobs, or `last`.")
]

sweep = typer.Typer(
    help="Sweeps: try parameters, stop the bad trials early, find the best.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@sweep.command(
    epilog="\b\nExamples:\n"
    "  allot sweep submit tune.yaml --dry-run\n"
    "  allot sweep submit job.yaml --param lr=0.1,0.01 --param seed=1..5\n"
    "  allot sweep submit job.yaml --param lr=log:1e-5..0.1 --random 27 \\\n"
    "    --metric loss --rungs 100,300",
)
def submit(  # noqa: PLR0913, PLR0917 - one argument an option
    file: Annotated[str, typer.Argument(metavar="FILE", help="A job file; `-` is stdin.")],
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            metavar="NAME=VALUES",
            help="lr=0.1,0.01 or lr=log:1e-5..0.1; repeatable.",
        ),
    ] = None,
    count: Annotated[
        int,
        typer.Option(
            "--random", metavar="N", show_default=False, help="Draw this many trials at random."
        ),
    ] = 0,
    studied: Annotated[
        int,
        typer.Option(
            "--optuna",
            metavar="N",
            show_default=False,
            help="Let Optuna propose this many trials, each from earlier results.",
        ),
    ] = 0,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="The same seed draws the same trials."),
    ] = None,
    metric: Annotated[
        str, typer.Option("--metric", metavar="NAME", help="The metric that compares trials.")
    ] = "",
    maximize: Annotated[
        bool, typer.Option("--maximize", help="More of the metric is better.")
    ] = False,
    rungs: Annotated[
        str,
        typer.Option(
            "--rungs", metavar="STEPS", help="Compare at steps 100,300,900 or after 1min,3min."
        ),
    ] = "",
    eta: Annotated[
        int,
        typer.Option(
            "--eta",
            metavar="N",
            show_default=False,
            help="At a rung one in N continues; 3 if not given.",
        ),
    ] = 0,
    max_running: Annotated[
        int,
        typer.Option(
            "--max-running",
            metavar="N",
            show_default=False,
            help="At most this many trials at a time.",
        ),
    ] = 0,
    gpu_hours: Annotated[
        float,
        typer.Option(
            "--gpu-hours",
            metavar="N",
            show_default=False,
            help="Stop all trials when these are used.",
        ),
    ] = 0,
    cpu_hours: Annotated[
        float,
        typer.Option(
            "--cpu-hours", metavar="N", show_default=False, help="The same for CPU-hours."
        ),
    ] = 0,
    changes: Changes = None,
    code: UsualFolder = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list the trials, with their parameters.")
    ] = False,
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Submit a sweep: a job file with `sweep` in it, or with these options added.

    Each trial is a job of one array: it waits in its queue, is retried and shown like any
    other. Its parameters replace {NAME} in the command, and are variables of its tasks. With
    --rungs, trials that report the metric with allotment.progress are compared at these
    steps, and only the best continue.
    """
    given: dict[str, object] = {
        "parameters": _parameters(parameters or []),
        "random": {"count": count or None},
        "optuna": {"count": studied or None},
        "metric": metric,
        "goal": "maximize" if maximize else "",
        "halving": {"rungs": rungs.split(",") if rungs else [], "eta": eta or None},
        "gpu_hours": gpu_hours,
        "cpu_hours": cpu_hours,
    }
    job, body = _prepared(file, changes or [], given, max_running, seed)
    assert job.sweep is not None
    if dry_run:
        _list(job, as_json)
        return
    with Client(state=state) as client:
        sent = with_code(client, body, code)
        made = asked_first(client, state, partial(submit_surely, job=sent, key=new_key()))
    for warning in made.warnings:
        warn(warning)
    if as_json:
        say_json(made)
        return
    announce(made)
    if job.sweep.is_study:
        talk(
            "Each trial is held until Optuna has proposed its parameters, from those before it."
        )
    talk(f"allot sweep show {made.id}    allot sweep stop {made.id}")
    say(str(made.id))


@sweep.command()
def ls(state: State = "", as_json: AsJson = False) -> None:
    """List the newest sweeps: how far they are, what they used, the best trial."""
    with Client(state=state) as client:
        found = client.sweeps()
    if as_json:
        say_json(found)
    elif found:
        now = time.time_ns() // 1_000_000
        print_table(SWEEPS, [sweep_cells(one, now) for one in found])
    else:
        talk("no sweeps are here")


@sweep.command(
    epilog="\b\nExamples:\n  allot sweep show 8\n  allot sweep show tune --watch",
)
def show(
    ref: Ref,
    watching: Annotated[
        bool, typer.Option("--watch", "-w", help="Refresh it until Ctrl-C.")
    ] = False,
    every: Every = 2.0,
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Show a sweep: its trials with parameters and last value of the metric, the best first."""
    with Client(state=state) as client:
        if as_json:
            say_json(client.sweep(ref))
        elif watching:
            watch(lambda: _show(client.sweep(ref)), every)
        else:
            _show(client.sweep(ref))


@sweep.command()
def stop(ref: Ref, state: State = "", as_json: AsJson = False) -> None:
    """End all trials of a sweep: those that run get their grace time."""
    with Client(state=state) as client:
        found = client.stop_sweep(ref)
    if as_json:
        say_json(found)
        return
    talk(f"sweep {found.row.id} ({found.row.name}) is stopped: {in_states(found.row.counts)}")


def _show(found: SweepView) -> None:
    for line in lines_of(found, time.time_ns() // 1_000_000):
        say(line)
    columns, rows = trial_table(found)
    print_table(columns, rows)


# ── what is submitted ───────────────────────────────────────────────────────────────────


def _prepared(
    file: str,
    changes: list[str],
    given: dict[str, object],
    max_running: int,
    seed: int | None,
) -> tuple[JobFile, dict[str, object]]:
    """Return the sweep that a file and options make, and the body to send."""
    job, folder = _read(file)
    spec = apply_set(job.spec, changes) if changes else job.spec
    spec = with_requirements(with_absolute_paths(spec, folder), folder)
    if job.grid and job.sweep is None:
        hint = "Move it to `sweep: {parameters: …}`; docs/guide/sweeps.md."
        raise Failed(f"{file} has a `grid`, which alone does not make a sweep.", hint)
    written = sweep_to_wire(job.sweep) if job.sweep is not None else {}
    wish = _merged(written, given)
    if not wish.get("parameters"):
        raise Failed(
            f"{file} has no `sweep`, and no parameter is given.",
            "Add one: --param lr=0.1,0.01; docs/guide/sweeps.md shows a file.",
        )
    chosen = "optuna" if "optuna" in wish else "random"
    if chosen in wish or seed is not None:
        drawn = {"seed": secrets.randbelow(SEEDS), **dict(_items(wish.get(chosen)))}
        wish[chosen] = drawn if seed is None else {**drawn, "seed": seed}
    body: dict[str, object] = {
        **job_to_wire(spec, redact=False),
        "sweep": wish,
        "array": {"max_running": max_running or job.max_running},
    }
    return read_job_json(msgspec.json.encode(body)), body


def _read(file: str) -> tuple[JobFile, Path]:
    if file == "-":
        return read_job(
            sys.stdin.buffer.read(), source="<stdin>", environ=os.environ
        ), Path.cwd()
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise Failed(
            f"{file} cannot be read: {(error.strerror or str(error)).lower()}.",
            "Name a job file; docs/guide/sweeps.md shows one.",
        ) from error
    return read_job(data, source=file, environ=os.environ), Path(file).absolute().parent


def _merged(written: dict[str, Plain], given: dict[str, object]) -> dict[str, object]:
    """Return a sweep with what the command line adds, where it says something."""
    found: dict[str, object] = dict(written)
    for key, value in given.items():
        said = {name: each for name, each in _items(value) if each not in NOT_SAID}
        if said:
            found[key] = {**dict(_items(found.get(key))), **said}
        elif value and not isinstance(value, dict):
            found[key] = value
    return found


def _items(value: object) -> list[tuple[str, object]]:
    found = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    return list(found.items())


def _parameters(words: list[str]) -> dict[str, object]:
    """Read `lr=0.1,0.01`, `seed=1..5` and `lr=log:1e-5..0.1`."""
    found: dict[str, object] = {}
    for word in words:
        name, equals, values = word.partition("=")
        if not (name and equals and values) or name in found:
            raise Failed(
                f"--param {word}: it is NAME=VALUES, each name once.",
                "--param lr=0.1,0.01 or --param lr=log:1e-5..0.1",
            )
        scale, colon, ends = values.partition(":")
        if colon and scale in ("log", "uniform", "int"):
            found[name] = {scale: ends.split("..")}
        else:
            found[name] = values if ".." in values and "," not in values else values.split(",")
    return found


def _list(job: JobFile, as_json: bool) -> None:
    """Print the trials that a sweep would make."""
    assert job.sweep is not None
    made = trials(job.sweep)
    if job.sweep.is_study and not as_json:
        talk(
            f"{len(made):,} trial(s), proposed with --seed {job.sweep.seed} as results come; "
            "nothing is submitted"
        )
        return
    if as_json:
        say_json([dict(parameters) for parameters in made])
        return
    for index, parameters in enumerate(made):
        say(f"{index:>4}  " + "  ".join(f"{name}={value}" for name, value in parameters))
    drawn = f", drawn with --seed {job.sweep.seed}" if job.sweep.draws else ""
    talk(f"{len(made):,} trial(s){drawn}; nothing is submitted")
