"""`allot image build` and `push`: jobs that make an image of a Dockerfile, and send it away."""

import contextlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from allotment.building.dockerfile import Dockerfile, read
from allotment.cli.eta import eta_lines
from allotment.cli.options import AsJson, Detach, Priority, Queue, StateFolder, Tenant
from allotment.cli.output import Failed, say, say_json
from allotment.cli.run import LONGEST_NAME, environment, given_parts, level_of, see_through
from allotment.cli.words import count
from allotment.client import Client, Refused
from allotment.model.image_names import HUB, BadReference, Reference, parse
from allotment.model.quantity import show_bytes
from allotment.wire.amiss import Amiss
from allotment.wire.amounts import read_size

FILES = ("Dockerfile", "Containerfile")
MEMORY = "2GiB"
TIME = "1h"
DISK = "20GiB"
MOST_COUNTED = 100_000
"""Files of a folder, for a dry run."""
PASSED_ON = "XDG_DATA_HOME"
"""Beside what every command of `allot run` gets: it says where the layers are kept."""

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
    reference = _named(name)
    folder = folder.absolute()
    recipe, found = _recipe(folder, file, build_args or [])
    words = [
        "build", "--tag", str(reference), "--file", str(recipe), *_disk(disk),
        *_each("--build-arg", build_args or []),
        *_each("--secret", map(_secret, secrets or [])),
        *(["--target", target] if target else []),
        *(["--no-cache"] if no_cache else []),
        *([] if push else ["--no-push"]),
        ".",
    ]  # fmt: skip
    job = _job(words, reference, folder, env or [], _limits(cpus, memory, time)) | _of(
        tenant, queue, priority
    )
    if dry_run:
        _foretell(job, reference, found, folder, state, as_json=as_json)
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
    reference = _named(name)
    words = ["push", str(reference), *_disk(disk)]
    job = _job(words, reference, Path.cwd(), env or [], _limits("", MEMORY, time))
    see_through(job | _of(tenant, queue, priority), state=state, detach=detach, as_json=as_json)


def _named(name: str) -> Reference:
    """Read the name of an image that is to be pushed."""
    try:
        found = parse(name)
    except BadReference as error:
        raise Failed(f"`{name}` {error}.", "Write registry/name:tag.") from error
    if found.digest:
        raise Failed(f"`{name}` has a digest: only its build gives it one.", "Leave it out.")
    if found.registry == HUB and found.repository.startswith("library/"):
        raise Failed(
            f"`{name}` names no registry, so it would be one of Docker's own images.",
            "Write registry/name:tag.",
        )
    return found


def _recipe(
    folder: Path, file: Path | None, arguments: Sequence[str]
) -> tuple[Path, Dockerfile]:
    """Find and read the Dockerfile. Raises Failed."""
    if not folder.is_dir():
        raise Failed(
            f"There is no folder {folder}.", "Name the folder from which COPY takes files."
        )
    tried = [file.absolute()] if file else [folder / name for name in FILES]
    path = next((each for each in tried if each.exists()), tried[0])
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "") or "it is not text"
        hint = "Name it: -f FILE." if file is None else "Name another file."
        raise Failed(f"{path} cannot be read: {why.lower()}.", hint) from error
    given = [each.partition("=") for each in arguments]
    if wrong := [name for name, equals, _ in given if not equals or not name]:
        raise Failed(f"--build-arg {wrong[0]} is not NAME=VALUE.", "--build-arg VERSION=2.9")
    found = read(text, {name: value for name, _, value in given})
    if not found.steps:
        raise Failed(f"{path} has no steps.", "A Dockerfile begins with FROM.")
    return path, found


def _secret(word: str) -> str:
    """Check a secret, and write its file so that the job finds it from wherever it is."""
    parts: dict[str, str] = {}
    for part in word.split(","):
        key, _, value = part.partition("=")
        parts[key] = value
    if set(parts) != {"id", "src"} or not all(parts.values()):
        raise Failed("A --secret is id=NAME,src=FILE.", "--secret id=pip,src=~/.pip/token")
    path = Path(parts["src"]).expanduser().absolute()
    if not path.is_file():
        raise Failed(f"--secret {parts['id']}: there is no file {path}.", "Name one: src=FILE.")
    return f"id={parts['id']},src={path}"


def _disk(text: str) -> tuple[str, ...]:
    try:
        return ("--disk", str(read_size(text)))
    except Amiss as error:
        raise Failed(f"--disk: {error}.", error.hint) from error


def _each(option: str, words: "Sequence[str] | map[str]") -> list[str]:
    return [part for word in words for part in (option, word)]


def _limits(cpus: str, memory: str, time: str) -> dict[str, object]:
    resources = {"memory": memory} | ({"cpu": cpus} if cpus else {})
    return {"resources": resources, "max_run_time": time}


def _of(tenant: str, queue: str, priority: str) -> dict[str, object]:
    return given_parts(tenant=tenant, queue=queue) | level_of(priority)


def _job(
    words: Sequence[str],
    reference: Reference,
    folder: Path,
    env: Sequence[str],
    limits: Mapping[str, object],
) -> dict[str, object]:
    """Write the job; its command is that of the Python that runs this."""
    short = f"{words[0]}-{reference.repository.rpartition('/')[2]}-{reference.tag}"
    passed = [*([PASSED_ON] if os.environ.get(PASSED_ON) else []), *env]
    return {
        "name": re.sub(r"[^A-Za-z0-9._-]+", "-", short)[:LONGEST_NAME].rstrip("-._"),
        "command": [sys.executable, "-I", "-m", "allotment.building", *words],
        "workdir": str(folder),
        "env": environment(os.environ, passed),
        **limits,
    }


def _foretell(
    job: Mapping[str, object],
    reference: Reference,
    found: Dockerfile,
    folder: Path,
    state: str,
    *,
    as_json: bool,
) -> None:
    """Print what would be built, from what, and when the job would start."""
    with Client(state=state) as client:
        estimate = client.dry_run(job)
        bases = [_base(client, name) for name in found.bases]
    if as_json:
        say_json(estimate)
        return
    say(f"{reference}: {count(found.steps, 'step')}, from {folder}")
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
