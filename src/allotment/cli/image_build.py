"""`allot image build` and `push`: jobs that make an image of a Dockerfile, and send it away."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, cast

import typer

from allotment.building.dockerfile import Dockerfile, read
from allotment.cli.eta import eta_lines
from allotment.cli.options import AsJson, Detach, Priority, Queue, StateFolder, Tenant
from allotment.cli.output import Failed, say, say_json
from allotment.cli.run import environment, given_parts, level_of, see_through
from allotment.cli.words import count
from allotment.client import Client, Refused
from allotment.client.image_build import (
    DISK,
    MEMORY,
    TIME,
    build_job,
    named,
    push_job,
    recipe_of,
)
from allotment.model.quantity import show_bytes

MOST_COUNTED = 100_000
"""Files of a folder, for a dry run."""

EXAMPLES = (
    "\b\nExamples:\n"
    "  allot image build -t registry.example.org/vision/torch:2.9\n"
    "  allot image build -t registry.example.org/x:1 -f train.dockerfile --time 4h\n"
    "  allot image build -t registry.example.org/x:1 --dry-run\n"
    "  allot image build -t registry.example.org/x:1 --secret id=pip,src=~/.token\n"
)
Disk = Annotated[
    str,
    typer.Option("--disk", metavar="SIZE", help="The largest size of your layers."),
]
Cpus = Annotated[str, typer.Option("--cpus", "-c", metavar="N", help="CPUs of the job.")]
Memory = Annotated[str, typer.Option("--memory", metavar="SIZE", help="Memory of the job.")]
Time = Annotated[
    str, typer.Option("--time", metavar="LENGTH", help="Stop the job after this time.")
]
Env = Annotated[
    list[str] | None,
    typer.Option(
        "--env", "-e", metavar="NAME[=VALUE]",
        help="Set a variable of the job, such as HTTPS_PROXY. Repeatable.",
    ),
]  # fmt: skip


def build(  # noqa: PLR0913 - one argument an option
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder from which COPY takes files.")
    ] = Path(),
    *,
    name: Annotated[
        str, typer.Option("--tag", "-t", metavar="IMAGE", help="registry/name:tag")
    ],
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Otherwise the Dockerfile of DIR."),
    ] = None,
    build_args: Annotated[
        list[str] | None,
        typer.Option(
            "--build-arg", metavar="NAME=VALUE", help="NAME=VALUE for an ARG. Repeatable."
        ),
    ] = None,
    secrets: Annotated[
        list[str] | None,
        typer.Option(
            "--secret",
            metavar="id=NAME,src=FILE",
            help="A file for RUN --mount=type=secret,id=NAME; in no layer. Repeatable.",
        ),
    ] = None,
    target: Annotated[
        str, typer.Option("--target", metavar="STAGE", help="Build only up to this stage.")
    ] = "",
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Use no layer of an earlier build.")
    ] = False,
    push: Annotated[
        bool, typer.Option(help="Push it to its registry when it is built.")
    ] = True,
    cpus: Cpus = "",
    memory: Memory = MEMORY,
    time: Time = TIME,
    disk: Disk = DISK,
    tenant: Tenant = "",
    queue: Queue = "",
    priority: Priority = "",
    env: Env = None,
    detach: Detach = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be built, and when.")
    ] = False,
    state: StateFolder = "",
    as_json: AsJson = False,
) -> None:
    """Build an image from a Dockerfile, and push it to its registry.

    A job builds it with the machine's buildah, within its limits and its tenant's quota.
    Unchanged steps of an earlier build are reused. The password for the registry is that of
    `allot image login`. Ctrl-C does not stop the job.
    """
    given = dict(_pair(each) for each in build_args or [])
    made = build_job(
        name, folder, file=file or "", build_args=given,
        secrets=dict(map(_secret, secrets or [])), target=target, no_cache=no_cache,
        push=push, disk=disk,
    )  # fmt: skip
    found = _recipe(recipe_of(folder.absolute(), file or ""), given)
    job = _with(made, env, cpus, memory, time) | _of(tenant, queue, priority)
    if dry_run:
        _foretell(job, name, found, folder.absolute(), state, as_json=as_json)
        return
    see_through(job, state=state, detach=detach, as_json=as_json)


def push(  # noqa: PLR0913 - one argument an option
    name: Annotated[str, typer.Argument(metavar="IMAGE", help="registry/name:tag")],
    *,
    time: Time = TIME,
    disk: Disk = DISK,
    tenant: Tenant = "",
    queue: Queue = "",
    priority: Priority = "",
    env: Env = None,
    detach: Detach = False,
    state: StateFolder = "",
    as_json: AsJson = False,
) -> None:
    """Push an image that you have built to its registry.

    `allot image build` does this itself, except with --no-push or after a failed push.
    """
    job = _with(push_job(name, disk=disk), env, "", MEMORY, time)
    see_through(job | _of(tenant, queue, priority), state=state, detach=detach, as_json=as_json)


def _recipe(path: Path, arguments: Mapping[str, str]) -> Dockerfile:
    """Read a Dockerfile. Raises Failed."""
    try:
        found = read(path.read_text(), arguments)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "") or "it is not text"
        raise Failed(f"{path} cannot be read: {why.lower()}.", "Name another file.") from error
    if not found.steps:
        raise Failed(f"{path} has no steps.", "A Dockerfile begins with FROM.")
    return found


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not (name and equals):
        raise Failed(f"--build-arg {name} is not NAME=VALUE.", "--build-arg VERSION=2.9")
    return name, value


def _secret(word: str) -> tuple[str, str]:
    pairs = (part.partition("=") for part in word.split(","))
    parts = {key: value for key, _, value in pairs}
    if set(parts) != {"id", "src"} or not all(parts.values()):
        raise Failed("A --secret is id=NAME,src=FILE.", "--secret id=pip,src=~/.pip/token")
    return parts["id"], parts["src"]


def _with(
    made: Mapping[str, object], env: Sequence[str] | None, cpus: str, memory: str, time: str
) -> dict[str, object]:
    """Return a job with the limits and variables that options say."""
    passed = cast("dict[str, str]", made["env"]) | environment(os.environ, env or [], ())
    resources = {"memory": memory} | ({"cpu": cpus} if cpus else {})
    return {**made, "env": passed, "resources": resources, "max_run_time": time}


def _of(tenant: str, queue: str, priority: str) -> dict[str, object]:
    return given_parts(tenant=tenant, queue=queue) | level_of(priority)


def _foretell(
    job: Mapping[str, object],
    name: str,
    found: Dockerfile,
    folder: Path,
    state: str,
    *,
    as_json: bool,
) -> None:
    """Print what would be built, from what, and when the job would start."""
    with Client(state=state) as client:
        estimate = client.dry_run(job)
        bases = [_base(client, base) for base in found.bases]
    if as_json:
        say_json(estimate)
        return
    say(f"{named(name)}: {count(found.steps, 'step')}, from {folder}")
    say(f"  {_contents(folder)}, before .dockerignore")
    for line in bases:
        say(f"  {line}")
    for line in eta_lines(estimate):
        say(line)


def _contents(folder: Path) -> str:
    """Return in words what lies in a folder; it does not count for ever."""
    files = size = 0
    for top, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                size += Path(top, name).lstat().st_size
        files += len(names)
        if files > MOST_COUNTED:
            return f"more than {MOST_COUNTED:,} files, {show_bytes(size)}"
    return f"{files:,} file{'' if files == 1 else 's'}, {show_bytes(size)}"


def _base(client: Client, name: str) -> str:
    try:
        seen = client.inspect_image(name)
    except Refused as error:
        return f"base {name}: {error.message}"
    size = show_bytes(sum(layer.size for layer in seen.layers))
    return f"base {name}: {count(len(seen.layers), 'layer')}, {size} as they come"
