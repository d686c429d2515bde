"""`allot run`: a command as a job, as if it ran right here."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from allotment.cli.attach import Attached, detachable
from allotment.cli.job_json import as_object
from allotment.cli.options import AsJson, StateFolder, complete_tenant
from allotment.cli.outcome import ending, exit_code
from allotment.cli.output import Failed, say, say_json, talk, warn
from allotment.client import Client, Unreachable
from allotment.service.views import Submitted

PASSED_ON = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LANG")
"""What of the caller's environment a command needs to be found and to work as it does here."""

WRAPPERS = re.compile(r"(.*/)?(python|bash|sh|env|torchrun|mpirun|accelerate|uv)[0-9.]*$")
SHELL = re.compile(r"(.*/)?(ba|da|z)?sh")
LONGEST_NAME = 60


def run(  # noqa: PLR0913 - one argument an option
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND…", help="What to run; one quoted text is a shell line."
        ),
    ],
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
    name: Annotated[str, typer.Option(help="Its name; otherwise from the command.")] = "",
    tenant: Annotated[
        str, typer.Option(help="Whose share it uses.", autocompletion=complete_tenant)
    ] = "",
    queue: Annotated[str, typer.Option(help="The tenant's queue.")] = "",
    priority: Annotated[str, typer.Option(help="low, normal, high or a number.")] = "",
    time: Annotated[
        str, typer.Option("--time", metavar="LENGTH", help="Ended after so long: 4h.")
    ] = "",
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env", "-e", metavar="NAME[=VALUE]", help="Set, or pass on. Repeatable."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Keep outputs here.")
    ] = None,
    hold_on_failure: Annotated[
        bool, typer.Option("--hold-on-failure", help="Keep a failed task's surroundings.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Print the id, and do not wait.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only its output.")] = False,
    state: StateFolder = "",
    as_json: AsJson = False,
) -> None:
    """Run a command as a job; show its output, give its exit code.

    It runs in this folder with your PATH, VIRTUAL_ENV, CONDA_PREFIX, PYTHONPATH and LANG,
    when there is room for it. Where no service runs, one is started. Exits with the code of
    the task that failed first; 128 + n when signal n ended it. Ctrl-C leaves the job alone.

    Examples:
      allot run -- python train.py --epochs 10
      allot run --gpus 2 --memory 32GiB --time 4h -- python train.py
      allot run --tasks 4 --gpus 1 -e WANDB_MODE=offline -- python -m worker
      allot run 'seq 3 | tac'
    """
    spec = job_of(
        command, name=name, env=environment(os.environ, env or []), folder=Path.cwd(),
        tasks=tasks,
        resources=_given(gpu=gpus, cpu=cpus, memory=memory),
        rest=_given(
            tenant=tenant, queue=queue, priority=priority, max_run_time=time,
            output=str(output.absolute()) if output else "",
        )
        | ({"hold_on_failure": True} if hold_on_failure else {}),
    )  # fmt: skip
    tell = _mute if quiet else talk
    with Client(state=state) as client:
        made = _submit(client, spec, state)
        for warning in made.warnings:
            warn(warning)
        if detach:
            say_json(made) if as_json else say(str(made.id))
            tell(f"Follow it: allot logs -f {made.id}    End it: allot cancel {made.id}")
            return
        tell(f"job {made.id} ({made.name}) {made.state}")
        with detachable(made.id):
            done = Attached(client, client.job(made.id), tell).until_the_end()
    for line in ending(done):
        tell(line)
    if as_json:
        say_json(as_object(done))
    raise typer.Exit(exit_code(done))


def _mute(text: str) -> None: ...


def _given(**parts: str) -> dict[str, object]:
    return {key: part for key, part in parts.items() if part}


def _submit(client: Client, spec: Mapping[str, object], state: str) -> Submitted:
    try:
        return client.submit(spec)
    except Unreachable:
        if os.environ.get("ALLOT_URL") and not state:
            raise
    from allotment.cli.daemon import Settings, folder_of, start  # noqa: PLC0415 - rarely needed

    folder = folder_of(state)
    health = start(Settings(folder))
    talk(f"No service was running, so one was started (state in {health.state_dir}).")
    talk("It stays for the next job; `allot down` stops it.")
    with Client(state=str(folder)) as started:
        return started.submit(spec)


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
    """Write a command as a job in the native form. One word with blanks is a shell line."""
    is_line = len(command) == 1 and any(letter.isspace() for letter in command[0].strip())
    job: dict[str, object] = {
        "name": name or name_of(command[0].split() if is_line else command),
        "command": command[0] if is_line else list(command),
        "workdir": str(folder),
        "env": dict(env),
        **rest,
    }
    if tasks != 1:
        job["count"] = tasks
    if resources:
        job["resources"] = dict(resources)
    return job


def name_of(command: Iterable[str]) -> str:
    """Name a job after its command: `python train.py --lr 1` becomes `train`."""
    words = [word for word in command if word and not word.startswith("-") and "=" not in word]
    chosen = next((word for word in words if not WRAPPERS.fullmatch(word)), "")
    if any(letter.isspace() for letter in chosen):  # the text after -c: shell, or Python
        chosen = chosen.split()[0] if SHELL.fullmatch(words[0]) else words[0]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(chosen or "run").name).strip("-._")
    return re.sub(r"\.(py|sh)$", "", name)[:LONGEST_NAME].strip("-._") or "run"


def environment(environ: Mapping[str, str], asked: Iterable[str]) -> dict[str, str]:
    """Give the variables to pass on, and those asked for: `NAME=VALUE`, or `NAME` as it is."""
    passed = {name: environ[name] for name in PASSED_ON if environ.get(name)}
    for item in asked:
        name, equals, value = item.partition("=")
        if not equals and name not in environ:
            raise Failed(
                f"--env {name}: it is not set here.", f"Export it, or write --env {name}=VALUE."
            )
        passed[name] = value if equals else environ[name]
    return passed
