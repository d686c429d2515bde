"""`allot run`: a command as a job, as if it ran right here."""

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from allotment.cli.attach import Attached, detachable
from allotment.cli.first import asked_first
from allotment.cli.grid import Grid, grid_of
from allotment.cli.job_json import as_object
from allotment.cli.options import (
    AsJson,
    Detach,
    Labels,
    Priority,
    Queue,
    Raw,
    StateFolder,
    Tenant,
)
from allotment.cli.outcome import ending, exit_code
from allotment.cli.output import Failed, say, say_json, talk, warn
from allotment.cli.surely import new_key, submit_surely
from allotment.cli.taking import UsualFolder, below, usual, with_code
from allotment.client import Client, Refused
from allotment.client.packages import read_packages
from allotment.client.request import PASSED_ON
from allotment.model.errors import Problem
from allotment.service.views import Submitted

WRAPPERS = re.compile(r"(.*/)?(python|bash|sh|env|torchrun|mpirun|accelerate|uv)[0-9.]*$")
SHELL = re.compile(r"(.*/)?(ba|da|z)?sh")
LONGEST_NAME = 60


def run(  # noqa: PLR0913 - one argument an option
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND",
            help="The command; one quoted text is a shell line. An image may have its own.",
        ),
    ] = None,
    *,
    gpus: Annotated[
        str, typer.Option("--gpus", "-g", metavar="N", help="GPUs of each task.")
    ] = "",
    cpus: Annotated[
        str, typer.Option("--cpus", "-c", metavar="N", help="CPUs of each task.")
    ] = "",
    memory: Annotated[
        str, typer.Option("--memory", metavar="SIZE", help="Memory of each task: 8GiB.")
    ] = "",
    tasks: Annotated[
        int, typer.Option("--tasks", "-n", metavar="N", help="Tasks, started together.")
    ] = 1,
    name: Annotated[
        str, typer.Option(help="The name of the job; otherwise made from the command.")
    ] = "",
    tenant: Tenant = "",
    queue: Queue = "",
    priority: Priority = "",
    time: Annotated[
        str, typer.Option("--time", metavar="LENGTH", help="Stop the job after this time: 4h.")
    ] = "",
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            "-e",
            metavar="NAME[=VALUE]",
            help="Set a variable, or pass yours on. Repeatable.",
        ),
    ] = None,
    grid: Grid = None,
    labels: Labels = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            "--secret",
            metavar="NAME[=FILE]",
            help="A variable that is never shown: from your environment, from FILE, or from "
            "standard input (-). Repeatable.",
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(
            "--image",
            metavar="IMAGE",
            help="Run in this image; it begins in the image's folder, or with --code there.",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="NAME=PATH|DIR",
            help="A dataset and where to find it, read-only (PATH:rw: to write, too). "
            "Repeatable. Or one folder of the machine.",
        ),
    ] = None,
    save: Annotated[
        str,
        typer.Option(
            "--save",
            metavar="NAME",
            help="Make its outputs a version of a dataset when it succeeds.",
        ),
    ] = "",
    code: UsualFolder = None,
    requirements: Annotated[
        Path | None,
        typer.Option(
            "--requirements",
            "-r",
            metavar="FILE",
            help="Run with the packages in this file; pyproject.toml: with those of its lock.",
        ),
    ] = None,
    python: Annotated[
        str,
        typer.Option(
            "--python", metavar="VERSION", help="The Python for these packages: 3.11."
        ),
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="The folder for output files."),
    ] = None,
    mpi: Annotated[
        str,
        typer.Option(
            "--mpi",
            metavar="HOW",
            help="pmix or pmi2: its tasks are MPI ranks. mpirun: its first task starts them. "
            "Only on Slurm.",
        ),
    ] = "",
    retry: Annotated[
        int,
        typer.Option("--retry", metavar="N", min=0, help="Number of retries after a failure."),
    ] = 0,
    checkpoint: Annotated[
        str,
        typer.Option(
            "--checkpoint",
            metavar="KEY=VALUE,…",
            help="The warning before an eviction: signal=USR1,grace=60s; dir, every, keep; "
            "save=NAME makes each a version of a dataset.",
        ),
    ] = "",
    hold_on_failure: Annotated[
        bool,
        typer.Option(
            "--hold-on-failure",
            help="Keep a failed task, and its place, for an hour, so that you can look inside.",
        ),
    ] = False,
    detach: Detach = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only the output of the job.")
    ] = False,
    raw: Raw = False,
    state: StateFolder = "",
    as_json: AsJson = False,
) -> None:
    """Run a command as a job; show its output, end with its exit code.

    The job runs in this folder, or with --code in a copy of a folder as it is now, which
    `allot clone` runs again. With ALLOT_CODE=. in your environment every job takes this folder
    along. It has your PATH, VIRTUAL_ENV, CONDA_PREFIX, PYTHONPATH and LANG, and runs as soon as
    there is room. If no service runs, one is started. The exit code is that of the task that
    failed first, or 128 + n if signal n ended it. Ctrl-C does not stop the job.

    With --image it runs in an image, and sees nothing of this folder or your variables except
    what --code, --data, --env and --secret bring along. Without a command it runs the entry
    point and the command of the image; a command takes the place of both.

    The value of a --secret is never on a command line, because other users can see it there. It
    is read from your environment, a file (without the end of its last line) or standard
    input.

    Examples:
      allot run -- python train.py --epochs 10
      allot run --gpus 2 --memory 32GiB --time 4h -- python train.py
      allot run -n 4 --gpus 1 -e WANDB_MODE=offline -- python -m worker
      allot run --secret WANDB_API_KEY --secret TOKEN=~/.token -- python train.py
      allot run --retry 2 --checkpoint signal=USR1,grace=60s -- python train.py
      allot run --code . --gpus 1 -- python train.py
      allot run --code . -r requirements.txt -- python train.py
      allot run --image python:3.12-slim --code . -- python train.py
      allot run --image vision/train:2
      allot run 'seq 3 | tac'
      allot run -n 8 --gpus 1 --mpi pmix -- ./train
      allot run --grid lr=0.1,0.01 --grid seed=1..5 -- python train.py --lr {lr}
    """
    code = usual(code)
    if image == "":
        raise Failed("--image is empty", "leave it out to run on the machine itself")
    spec = job_of(
        command or [], name=name,
        env=environment(os.environ, env or [], () if image else PASSED_ON),
        folder=_folder(code, image or ""),
        tasks=tasks,
        resources=given_parts(gpu=gpus, cpu=cpus, memory=memory),
        rest=given_parts(
            image=image, tenant=tenant, queue=queue, max_run_time=time,
            output=str(output.absolute()) if output else "",
            data=data_of(data or []),
            save=save,
            secrets=secrets_of(secret or [], os.environ),
            mpi=mpi, retry=retry,
            checkpoint=checkpoint_of(checkpoint), hold_on_failure=hold_on_failure,
        )
        | level_of(priority)
        | environment_of(requirements, python)
        | ({"labels": labels_of(labels)} if labels else {})
        | ({"grid": grid_of(grid)} if grid else {}),
    )  # fmt: skip
    see_through(
        spec, state=state, code=code, is_array=bool(grid), detach=detach, quiet=quiet, raw=raw,
        as_json=as_json,
    )  # fmt: skip


def see_through(  # noqa: PLR0913 - as options say it
    spec: Mapping[str, object],
    *,
    state: str,
    code: str = "",
    is_array: bool = False,
    detach: bool = False,
    quiet: bool = False,
    raw: bool = False,
    as_json: bool = False,
) -> NoReturn:
    """Submit a job, show its output, and end with its exit code. Raises typer.Exit."""
    tell = _mute if quiet else talk
    with Client(state=state) as client:
        sent = new_key()  # One for all tries: the first may have made the job, its answer lost.
        made = asked_first(
            client,
            state,
            lambda service: _submit(service, with_code(service, spec, code, quiet=quiet), sent),
        )
        for warning in made.warnings:
            warn(warning)
        if is_array:
            tell(f"An array of {len(made.ids):,} jobs: see it with allot ps {made.id}")
        if detach or is_array:
            say_json(made) if as_json else say(str(made.id))
            tell(f"Follow it: allot logs -f {made.id}    End it: allot cancel {made.id}")
            raise typer.Exit
        tell(f"job {made.id} ({made.name}) {made.state}")
        with detachable(made.id):
            done = Attached(client, client.job(made.id), tell, raw=raw).until_the_end()
    for line in ending(done):
        tell(line)
    if as_json:
        say_json(as_object(done))
    raise typer.Exit(exit_code(done))


def _folder(code: str, image: str) -> Path:
    """Return where a command begins: here, in the code that is taken, or as the image says."""
    if code:
        return below(code)
    return Path() if image else Path.cwd()


def _mute(text: str) -> None: ...


def given_parts(**parts: object) -> dict[str, object]:
    """Return the parts of a job that were said."""
    return {key: part for key, part in parts.items() if part}


def level_of(priority: str) -> dict[str, object]:
    """Return the priority of a job where one was said; 0 is one, too."""
    if not priority:
        return {}
    return {"priority": int(priority) if priority.isdecimal() else priority}


OPTIONS = {
    "resources.gpu": "--gpus", "resources.cpu": "--cpus", "resources.memory": "--memory",
    "count": "--tasks", "image": "--image", "name": "--name", "tenant": "--tenant",
    "queue": "--queue",
    "priority": "--priority", "max_run_time": "--time", "env": "--env", "output": "--output",
    "data": "--data", "save": "--save", "mpi": "--mpi", "retry": "--retry",
    "checkpoint": "--checkpoint", "secrets": "--secret",
}  # fmt: skip
"""Key of a job: the option it was said by."""


def _submit(client: Client, spec: Mapping[str, object] | bytes, key: str) -> Submitted:
    """Submit it; what is wrong is told of the options, not of a file that nobody wrote."""
    try:
        return submit_surely(client, spec, key)
    except Refused as error:
        if not error.problems:
            raise
        told = "; ".join(map(_of_option, error.problems))
        hints = dict.fromkeys(problem.hint for problem in error.problems if problem.hint)
        raise Refused(error.code, told, "; ".join(hints), (), error.status) from error


def _of_option(problem: Problem) -> str:
    """Name the option that a problem is about: `--env LR: must not be empty`."""
    at = f"{problem.path}."
    key = next((key for key in OPTIONS if at.startswith(f"{key}.")), "")
    rest = problem.path.removeprefix(key).strip(".")
    place = " ".join(filter(None, (OPTIONS.get(key, ""), rest)))
    return f"{place}: {problem.message}" if place else problem.message


def job_of(  # noqa: PLR0913 - a job is made of these
    command: list[str],
    *,
    name: str,
    env: Mapping[str, str],
    folder: Path,
    tasks: int,
    resources: Mapping[str, object],
    rest: Mapping[str, object],
) -> dict[str, object]:
    """Write a command as a job in the native form. One word with blanks is a shell line.

    Without one it is the image's, which then gives the name too. Raises Failed.
    """
    image = str(rest.get("image", ""))
    if not command and not image:
        raise Failed(
            "there is nothing to run",
            "allot run -- python train.py; an image (--image) may have a command of its own",
        )
    is_line = len(command) == 1 and any(letter.isspace() for letter in command[0].strip())
    words = command[0].split() if is_line else command
    job: dict[str, object] = {
        "name": name or name_of(words or [image_part(image)]),
        **({"command": command[0] if is_line else list(command)} if command else {}),
        "workdir": str(folder),
        "env": dict(env),
        **rest,
    }
    if job["workdir"] == ".":  # Of the code that is taken along.
        del job["workdir"]
    if tasks != 1:
        job["count"] = tasks
    if resources:
        job["resources"] = dict(resources)
    return job


def image_part(image: str) -> str:
    """Return what an image is called: `train` of registry.example.org/vision/train:2."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def name_of(command: Iterable[str]) -> str:
    """Name a job after its command: `python train.py --lr 1` becomes `train`."""
    words = [word for word in command if word and not word.startswith("-") and "=" not in word]
    chosen = next((word for word in words if not WRAPPERS.fullmatch(word)), "")
    if any(letter.isspace() for letter in chosen):  # the text after -c: shell, or Python
        chosen = chosen.split()[0] if SHELL.fullmatch(words[0]) else words[0]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(chosen or "run").name).strip("-._")
    return re.sub(r"\.(py|sh)$", "", name)[:LONGEST_NAME].strip("-._") or "run"


def environment_of(requirements: Path | None, python: str) -> dict[str, object]:
    """Write the packages that are asked for."""
    if requirements is None and not python:
        return {}
    lines: Sequence[str] = ()
    if requirements:
        python, lines = read_packages(requirements, python)
    return {"environment": {"python": python, "requirements": list(lines)}}


def data_of(words: Sequence[str]) -> str | dict[str, object]:
    """Read data: NAME=PATH for datasets, or one folder of the machine."""
    named = [word.partition("=") for word in words if "=" in word]
    if len(named) == len(words):
        return {
            name: {"at": path.removesuffix(":rw"), "write": True}
            if path.endswith(":rw")
            else path
            for name, _, path in named
        }
    if len(words) > 1:
        raise Failed(
            "--data is a folder of the machine once, or datasets: NAME=PATH each.",
            "--data imagenet=/data/imagenet --data words@2=/data/words",
        )
    folder = Path(words[0]).absolute()
    if not words[0].startswith(("/", ".")) and not folder.exists():
        raise Failed(
            f"--data {words[0]}: there is no such folder here.",
            f"A dataset needs a path in the job, too: --data {words[0]}=/data/NAME",
        )
    return str(folder)


def labels_of(words: Iterable[str]) -> dict[str, str]:
    """Read labels: KEY=VALUE each."""
    found = {key: value for key, equals, value in (w.partition("=") for w in words) if equals}
    if len(found) < len(list(words)):
        raise Failed("A label is KEY=VALUE, with each key only once.", "--label team=vision")
    return found


def environment(
    environ: Mapping[str, str], asked: Iterable[str], usual: Iterable[str] = PASSED_ON
) -> dict[str, str]:
    """Return variables to pass on, and those asked for: `NAME=VALUE`, or `NAME` as it is."""
    passed = {name: environ[name] for name in usual if environ.get(name)}
    for item in asked:
        name, equals, value = item.partition("=")
        if not equals and name not in environ:
            raise Failed(
                f"--env {name}: it is not set here.", f"Export it, or write --env {name}=VALUE."
            )
        passed[name] = value if equals else environ[name]
    return passed


def secrets_of(asked: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Read secrets, `NAME`, `NAME=FILE` or `NAME=-`. No value is ever part of a message."""
    if sum(item.endswith("=-") for item in asked) > 1:
        raise Failed(
            "Only one --secret can be read from standard input.",
            "Name files for the others: NAME=FILE.",
        )
    named = [item.partition("=") for item in asked]
    return {name: _secret(name, file, environ) for name, _, file in named}


def _secret(name: str, file: str, environ: Mapping[str, str]) -> str:
    if not file:
        if name not in environ:
            raise Failed(
                f"--secret {name}: it is not set here.",
                f"Export it, or name a file that holds it: --secret {name}=FILE",
            )
        return environ[name]
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).expanduser().read_bytes()
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise Failed(f"--secret {name}: it is not text.", "Secrets are UTF-8 text.") from None
    except (OSError, ValueError) as error:
        why = (getattr(error, "strerror", "") or "no such file").lower()
        raise Failed(
            f"--secret {name}: the source after `=` cannot be read: {why}.",
            "Name a file there, not the secret itself: others can see command lines.",
        ) from None


def checkpoint_of(text: str) -> dict[str, str | int]:
    """Read how a job saves its progress: `signal=USR1,grace=60s`, keys as in a job file."""
    parts = [part.partition("=") for part in text.split(",") if part.strip()]
    for key, equals, value in parts:
        if not equals or not value:
            raise Failed(
                f"--checkpoint: {key} is not KEY=VALUE.",
                "Write it like signal=USR1,grace=60s; keys: signal, grace, dir, every, keep, "
                "save.",
            )
    found: dict[str, str | int] = {key.strip(): value.strip() for key, _, value in parts}
    if isinstance(keep := found.get("keep"), str) and keep.isdecimal() and len(keep) < 10:
        found["keep"] = int(keep)
    return found
