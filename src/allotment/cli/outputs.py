"""`allot outputs`: the files a job left, and a copy of them."""

import time
from pathlib import Path
from typing import Annotated

import typer

from allotment.cli.options import AsJson, Job, State
from allotment.cli.output import Failed, say, say_json, talk
from allotment.cli.table import Column, print_table
from allotment.cli.words import count, harmless, show_age
from allotment.client import Client
from allotment.client.client import MOST_FILES
from allotment.client.errors import Refused, Unreadable
from allotment.model.quantity import show_bytes
from allotment.service.views import OutputFile

COLUMNS = (
    Column("ATTEMPT", right=True),
    Column("SIZE", right=True),
    Column("AGE", rank=1, right=True),
    Column("PATH"),
)


def outputs(  # noqa: PLR0913, PLR0917 - one parameter an option
    job: Job,
    fetch: Annotated[
        Path | None, typer.Option("--fetch", metavar="DIR", help="Copy them into this folder.")
    ] = None,
    paths: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="PATTERN", help="Only files like *.pt or logs/*. Repeatable."
        ),
    ] = None,
    attempt: Annotated[
        int,
        typer.Option("--attempt", "-a", min=0, help="Of this attempt; 0: see above."),
    ] = 0,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=200_000, help="List at most this many files.")
    ] = MOST_FILES,
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """List the files in a job's output folder, or fetch them.

    The list has the files of all attempts. --fetch copies those of the newest attempt with
    files, unless --attempt names another; files of the same name are replaced.

    Examples:
      allot outputs last
      allot outputs 12 --fetch results --only '*.npz'
    """
    with Client(state=state) as client:
        page = client.output_page(job, attempt=attempt, limit=limit)
        found = [file for file in page.items if _wanted(file, paths)]
        if not page.complete:
            talk(f"The job left more files: only {limit:,} were listed. See --limit.")
        if fetch is None:
            _list(found, as_json)
        else:
            _fetch(client, job, found, fetch, as_json)


def _fetch(
    client: Client, job: str, found: list[OutputFile], folder: Path, as_json: bool
) -> None:
    """Copy the files of the newest attempt. One that cannot be fetched keeps no other back."""
    newest = max((file.attempt for file in found), default=0)
    chosen = [file for file in found if file.attempt == newest]
    if not chosen:
        raise Failed(f"Job {job} left no such file.", f"allot outputs {job}")
    targets: list[Path] = []
    size = 0
    for file in chosen:
        try:
            targets.append(client.fetch(job, file, folder))
        except (Refused, Unreadable) as error:
            talk(f"{_on_a_line(file.path)}: {_on_a_line(str(error))}")
        else:
            size += file.size
    if as_json:
        say_json([str(target) for target in targets])
    else:
        for target in targets:
            say(_on_a_line(str(target)))
    talk(f"{count(len(targets), 'file')} of attempt {newest}, {show_bytes(size)}")
    if len(targets) < len(chosen):
        left = count(len(chosen) - len(targets), "file")
        raise Failed(f"{left} could not be fetched, as said above.")


def _on_a_line(text: str) -> str:
    """Make a name that a job gave safe for a terminal, and one line of it."""
    return harmless(text).replace("\n", "\\n")


def _wanted(file: OutputFile, patterns: list[str] | None) -> bool:
    from fnmatch import fnmatch  # noqa: PLC0415 - only here

    return not patterns or any(fnmatch(file.path, pattern) for pattern in patterns)


def _list(found: list[OutputFile], as_json: bool) -> None:
    if as_json:
        say_json(found)
        return
    now = int(time.time() * 1000)
    print_table(
        COLUMNS,
        [
            (
                str(file.attempt),
                show_bytes(file.size),
                show_age(file.modified_at, now),
                _on_a_line(file.path),
            )
            for file in found
        ],
    )
    if not found:
        talk("No files yet. A job's tasks find the folder in ALLOT_OUTPUT_DIR.")
