"""`allot code`: what would be taken along of a folder, and what a job took."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from allotment.cli.options import AsJson, Job, State
from allotment.cli.output import say, say_json, talk
from allotment.cli.words import count, harmless
from allotment.client import Client
from allotment.model.quantity import show_bytes

code = typer.Typer(
    help="Code that jobs take along: the files of a folder, or of a job.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@code.command()
def ls(
    folder: Annotated[Path, typer.Argument(metavar="DIR")] = Path(),
    as_json: AsJson = False,
) -> None:
    """List the files of a folder that would be taken along, the largest first."""
    top = folder.absolute()
    with Client() as client:
        names = client.code_files(top)
    sizes = sorted((((top / name).lstat().st_size, name) for name in names), reverse=True)
    if as_json:
        say_json([{"path": name, "bytes": size} for size, name in sizes])
        return
    for size, name in sizes:
        say(f"{show_bytes(size):>10}  {harmless(name)}")
    talk(f"{count(len(sizes), 'file')}, {show_bytes(sum(size for size, _ in sizes))}")


@code.command()
def show(job: Job, state: State = "", as_json: AsJson = False) -> None:
    """Show the code that a job took along: its folder, commit and files."""
    with Client(state=state) as client:
        found = client.code(job)
    if as_json:
        say_json(found)
        return
    told = found.code
    say(f"{told.bundle}")
    say(f"  folder      {harmless(told.folder)}")
    say(f"  size        {count(told.files, 'file')}, {show_bytes(told.bytes)}")
    if told.commit:
        say(f"  commit      {harmless(told.commit)} {harmless(told.branch)}".rstrip())
        say(f"  changed     {count(told.changed, 'file')}")
    for file in found.files:
        leads = f" -> {harmless(file.of)}" if file.kind == "l" else ""
        say(f"{show_bytes(file.size):>10}  {harmless(file.path)}{leads}")


@code.command()
def diff(job: Job, state: State = "", as_json: AsJson = False) -> None:
    """Print the uncommitted changes in the code that a job took along."""
    with Client(state=state) as client:
        found = client.code(job)
    if as_json:
        say_json({"difference": found.difference})
        return
    if not found.difference:
        talk("no tracked file differed from the commit; `allot code show` has all files")
        return
    is_shown = sys.stdout.isatty()  # Else it may be meant for `git apply`.
    say((harmless(found.difference) if is_shown else found.difference).rstrip("\n"))
