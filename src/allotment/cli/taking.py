"""Code that jobs take along, for the verbs that submit."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, cast

import msgspec
import typer

from allotment.cli.output import Failed
from allotment.cli.steps import steps
from allotment.client import Client

HABIT = "ALLOT_CODE"
"""A variable: the folder that is taken along where nothing else is said."""

_HELP = "Take this folder along as it is now, without what git or .allotignore exclude."
CodeFolder = Annotated[str | None, typer.Option("--code", metavar="DIR", help=_HELP)]
UsualFolder = Annotated[
    str | None,
    typer.Option("--code", metavar="DIR", help=f"{_HELP} Also {HABIT}; '' takes none."),
]


def usual(code: str | None) -> str:
    """Return the folder to take along: what was said, else what always is; '' for none."""
    return os.environ.get(HABIT, "") if code is None else code


def below(code: str) -> Path:
    """Return where this folder lies in the code that is taken: `.` if it does not."""
    here, top = Path.cwd(), Path(os.path.abspath(code))  # noqa: PTH100 - links stay
    return here.relative_to(top) if here.is_relative_to(top) else Path()


def with_code(
    client: Client, job: Mapping[str, object] | bytes, code: str | None, *, quiet: bool = False
) -> dict[str, object] | bytes:
    """Return a job with its code sent, where it takes any along."""
    folder = _folder_of(job, code)
    if folder is None or isinstance(job, bytes):
        _check_text(job, code)
        return job if isinstance(job, bytes) else dict(job)
    with steps(quiet=quiet) as tell:
        return {**job, "code": client.take_code(folder, tell).code}


def look_at_code(
    client: Client, job: Mapping[str, object] | bytes, code: str | None
) -> tuple[dict[str, object] | bytes, str]:
    """Return a job without its code, and in words what would be sent of that."""
    folder = _folder_of(job, code)
    if folder is None or isinstance(job, bytes):
        _check_text(job, code)
        return (job if isinstance(job, bytes) else dict(job)), ""
    from allotment.model.quantity import show_bytes  # noqa: PLC0415 - rarely needed

    found = client.look_at_code(folder)
    left = {key: value for key, value in job.items() if key not in ("code", "workdir")}
    sent = f"{show_bytes(found.sent)} of it would be sent" if found.sent else "it is here"
    files = "1 file" if found.files == 1 else f"{found.files:,} files"
    return left, f"code: {files}, {show_bytes(found.bytes)}; {sent}"


def code_change(client: Client, code: str | None) -> list[str]:
    """Return the change of a job that takes a folder along."""
    if not code:
        return []
    with steps() as tell:
        return [f"code={msgspec.json.encode(client.take_code(Path(code), tell).code).decode()}"]


def _folder_of(job: Mapping[str, object] | bytes, code: str | None) -> Path | None:
    """Return the folder to take along; None where there is none, or it was sent already.

    What is always taken is for jobs that do not say themselves where they begin.
    """
    if code:
        return Path(code)
    if isinstance(job, bytes):
        return None
    named = job.get("code")
    if not named and not job.get("workdir") and (folder := usual(code)):
        return Path(folder)
    if not isinstance(named, dict):
        return None
    told = cast("dict[str, object]", named)
    return None if told.get("bundle") else Path(str(told.get("take", ".")))


def _check_text(job: Mapping[str, object] | bytes, code: str | None) -> None:
    if isinstance(job, bytes) and code:
        raise Failed(
            "--code is for job files in the native form.",
            "Write the job as YAML: docs/guide/job-spec.md.",
        )
