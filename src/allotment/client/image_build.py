"""The jobs that build an image of a Dockerfile, and send it to its registry.

A build is an ordinary job: its command is that of the Python that submits it
(docs/adr/0043-builds-are-jobs.md).
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from allotment.client.errors import Refused
from allotment.client.request import PASSED_ON
from allotment.model.image_names import HUB, BadReference, Reference, parse
from allotment.wire.amiss import Amiss
from allotment.wire.amounts import read_size

FILES: Final = ("Dockerfile", "Containerfile")
MEMORY: Final = "2GiB"
TIME: Final = "1h"
DISK: Final = "20GiB"
_LAYERS_ARE_IN: Final = "XDG_DATA_HOME"
_LONGEST_NAME: Final = 60


def build_job(  # noqa: PLR0913 - one argument a choice, all by name
    name: str,
    folder: str | Path = ".",
    *,
    file: str | Path = "",
    build_args: Mapping[str, str] | None = None,
    secrets: Mapping[str, str | Path] | None = None,
    target: str = "",
    no_cache: bool = False,
    push: bool = True,
    disk: str = DISK,
) -> dict[str, object]:
    """Return the job that builds an image from a folder. Raises Refused.

    `secrets` are files by the ids that `RUN --mount=type=secret` names them by.
    """
    top = Path(folder).absolute()
    words = [
        "--file", str(recipe_of(top, file)),
        *_each("--build-arg", [f"{key}={value}" for key, value in (build_args or {}).items()]),
        *_each("--secret", [_secret(*each) for each in (secrets or {}).items()]),
        *(["--target", target] if target else []),
        *(["--no-cache"] if no_cache else []),
        *([] if push else ["--no-push"]),
        ".",
    ]  # fmt: skip
    reference = named(name)
    return _job("build", reference, top, ["--tag", str(reference), *_disk(disk), *words])


def push_job(name: str, *, disk: str = DISK) -> dict[str, object]:
    """Return the job that sends an image to its registry. Raises Refused."""
    reference = named(name)
    return _job("push", reference, Path.cwd(), [str(reference), *_disk(disk)])


def named(name: str) -> Reference:
    """Read the name of an image that is to be pushed. Raises Refused."""
    try:
        found = parse(name)
    except BadReference as error:
        raise _refused(f"`{name}` {error}.", "Write registry/name:tag.") from error
    if found.digest:
        raise _refused(f"`{name}` has a digest: only its build gives it one.", "Leave it out.")
    if found.registry == HUB and found.repository.startswith("library/"):
        raise _refused(
            f"`{name}` names no registry, so it would be one of Docker's own images.",
            "Write registry/name:tag.",
        )
    return found


def recipe_of(folder: Path, file: str | Path = "") -> Path:
    """Return the Dockerfile of a folder, unless another is named. Raises Refused."""
    if not folder.is_dir():
        raise _refused(
            f"There is no folder {folder}.", "Name the folder from which COPY takes files."
        )
    tried = [Path(file).absolute()] if file else [folder / name for name in FILES]
    path = next((each for each in tried if each.exists()), tried[0])
    try:
        with path.open():
            return path
    except OSError as error:
        hint = "Name another file." if file else "Name it: -f FILE, in Python file=…."
        raise _refused(
            f"{path} cannot be read: {(error.strerror or '').lower()}.", hint
        ) from error


def _secret(name: str, source: str | Path) -> str:
    """Write a secret so that the job finds its file from wherever it is. Raises Refused."""
    path = Path(source).expanduser().absolute()
    if not path.is_file():
        raise _refused(f"Secret {name}: there is no file {path}.", "Name a file that holds it.")
    if "," in f"{name}{path}" or "=" in name:
        raise _refused(
            f"Secret {name}: neither its id nor its file may have a comma, or the id a `=`.",
            "Rename it.",
        )
    return f"id={name},src={path}"


def _disk(text: str) -> tuple[str, ...]:
    try:
        return ("--disk", str(read_size(text)))
    except Amiss as error:
        raise _refused(f"disk: {error}.", error.hint) from error


def _each(option: str, words: Sequence[str]) -> list[str]:
    return [part for word in words for part in (option, word)]


def _job(
    verb: str, reference: Reference, folder: Path, words: Sequence[str]
) -> dict[str, object]:
    short = f"{verb}-{reference.repository.rpartition('/')[2]}-{reference.tag}"
    passed = (*PASSED_ON, _LAYERS_ARE_IN)
    return {
        "name": re.sub(r"[^A-Za-z0-9._-]+", "-", short)[:_LONGEST_NAME].rstrip("-._"),
        "command": [sys.executable, "-I", "-m", "allotment.building", verb, *words],
        "workdir": str(folder),
        "env": {key: os.environ[key] for key in passed if os.environ.get(key)},
        "resources": {"memory": MEMORY},
        "max_run_time": TIME,
    }


def _refused(message: str, hint: str) -> Refused:
    return Refused("bad_request", message, hint)
