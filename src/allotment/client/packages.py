"""The packages that a file asks for: requirements, or the lock of a project.

A lock is read by uv, here and with the rights of whoever calls: it names folders of its
user's. The service gets lines with hashes. Nothing of the project is run for that: neither what
computes its description, nor a Python that it has or names.
"""

import contextlib
import os
import subprocess
from pathlib import Path
from typing import Final

from allotment.client.errors import Refused
from allotment.service.environments.requirements import is_python, lines_of

PROJECT: Final = ("pyproject.toml", "uv.lock")
ANY: Final = ">=3.9"
_NOWHERE: Final = "/proc/none"
"""In place of the project's virtual environment, whose Python uv would run."""
_PATIENCE_S: Final = 120.0
_MOST_LETTERS: Final = 250 << 10
"""Of all requirements: a job has 256 KiB, with all else in it."""


def read_packages(file: Path, python: str = "") -> tuple[str, tuple[str, ...]]:
    """Return which Python a file asks for, unless one is given, and its requirements.

    Raises Refused.
    """
    if file.name in PROJECT:
        takes = _python_of(file.parent)
        text = _locked(file.parent, takes if is_python(takes) else ANY)
        return python or takes, _bounded(file, lines_of(text))
    return python, _bounded(file, lines_of(_text(file)))


def _bounded(file: Path, lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return requirements that a job can have. Raises Refused."""
    if sum(map(len, lines)) > _MOST_LETTERS:
        raise Refused(
            "bad_request",
            f"The requirements in {file} have more than {_MOST_LETTERS >> 10} KiB, most of it "
            "hashes, and a job has room for no more.",
            "Write the versions without the hashes: `uv export --no-hashes "
            "--no-emit-workspace > requirements.txt`.",
        )
    return lines


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = (getattr(error, "strerror", "") or "it is not text").lower()
        raise Refused(
            "bad_request",
            f"The requirements in {file} cannot be read: {why}.",
            "Name a file of requirements, one a line (`framework==7`), or pyproject.toml.",
        ) from error


def _python_of(folder: Path) -> str:
    """Return the versions of Python that a project takes; '' where it does not say."""
    import tomllib  # noqa: PLC0415 - only for locks

    text = _text(folder / PROJECT[0])
    with contextlib.suppress(tomllib.TOMLDecodeError, AttributeError):  # uv will say it.
        project = tomllib.loads(text).get("project", {})
        return "".join(str(project.get("requires-python", "")).split())
    return ""


def _locked(folder: Path, python: str) -> str:
    """Return the lock of a project as uv writes it for pip. Raises Refused in uv's words."""
    from allotment.service.environments.uv import program, shortened  # noqa: PLC0415 - for locks

    uv = program()
    if not uv:
        raise Refused(
            "bad_request",
            f"uv, which reads {folder / PROJECT[1]}, is not installed here.",
            "pip install 'allotment[environments]'; or name a requirements file with hashes.",
        )
    words = ("export", "--locked", "--no-emit-workspace", "--no-header", "--no-annotate",
             "--no-build", "--no-progress")  # fmt: skip
    try:
        done = subprocess.run(
            [uv, *words, "--python", python, "--project", str(folder.absolute())],
            env={
                **os.environ,
                "UV_PYTHON_DOWNLOADS": "never",
                "UV_PROJECT_ENVIRONMENT": _NOWHERE,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        raise Refused(
            "bad_request",
            f"uv did not read the lock in {folder} within {_PATIENCE_S:.0f} s.",
            "Try `uv lock --check` there.",
        ) from None
    if done.returncode:
        raise Refused(
            "bad_request",
            f"The lock of {folder} cannot be used: {shortened(done.stderr)}",
            "That is uv's message. `uv lock` makes a lock, or brings it up to date.",
        )
    return done.stdout
