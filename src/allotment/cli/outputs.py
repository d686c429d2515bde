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
from allotment.model.quantity import show_bytes
from allotment.service.views import OutputFile

COLUMNS = (
    Column("ATTEMPT", right=True),
    Column("SIZE", right=True),
    Column("AGE", rank=1, right=True),
    Column("PATH"),
)


def outputs(
    job: Job,
    fetch: Annotated[
        Path | None, typer.Option("--fetch", metavar="DIR", help="Copy them into this folder.")
    ] = None,
    paths: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="PATTERN", help="Like *.pt or logs/*. Repeatable."),
    ] = None,
    attempt: Annotated[
        int,
        typer.Option("--attempt", "-a", min=0, help="Of this attempt; 0: see above."),
    ] = 0,
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """List the files a job left in its output folder, or fetch them.

    The list has all attempts. --fetch copies those of the newest attempt that left any,
    unless --attempt names another; files of the same name are replaced.

    Examples:
      allot outputs last
      allot outputs 12 --fetch results --only '*.npz'
    """
    with Client(state=state) as client:
        found = [file for file in client.outputs(job) if _wanted(file, paths, attempt)]
        if fetch is None:
            _list(found, as_json)
            return
        newest = max((file.attempt for file in found), default=0)
        chosen = [file for file in found if file.attempt == newest]
        if not chosen:
            raise Failed(f"Job {job} left no such file.", f"allot outputs {job}")
        targets = [client.fetch(job, file, fetch) for file in chosen]
    if as_json:
        say_json([str(target) for target in targets])
        return
    for target in targets:
        say(str(target))
    size = show_bytes(sum(file.size for file in chosen))
    talk(f"{count(len(targets), 'file')} of attempt {newest}, {size}")


def _wanted(file: OutputFile, patterns: list[str] | None, attempt: int) -> bool:
    from fnmatch import fnmatch  # noqa: PLC0415 - only here

    if attempt and file.attempt != attempt:
        return False
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
                harmless(file.path),
            )
            for file in found
        ],
    )
    if not found:
        talk("No files yet. A job's tasks find the folder in ALLOT_OUTPUT_DIR.")
