"""`allot env`: the environments that the machine keeps."""

import time
from pathlib import Path
from typing import Annotated

import typer

from allotment.cli.options import AsJson, State
from allotment.cli.output import Failed, say, say_json, talk
from allotment.cli.steps import steps
from allotment.cli.table import Column, print_table
from allotment.cli.words import count, harmless, show_span
from allotment.client import Client
from allotment.client.step import Step
from allotment.model.quantity import show_bytes
from allotment.service.environments.view import EnvironmentRow

COLUMNS = (
    Column("KEY"),
    Column("PYTHON"),
    Column("REQUIREMENTS", flexible=True),
    Column("PACKAGES", right=True, rank=1),
    Column("SIZE", right=True),
)
_SHORT = 12
Key = Annotated[str, typer.Argument(metavar="KEY", help="A key, or its beginning.")]

env = typer.Typer(
    help="Environments of packages that jobs ask for: list, build, show, remove.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@env.command()
def ls(state: State = "", as_json: AsJson = False) -> None:
    """List the environments that your jobs asked for, or all for the administrator."""
    with Client(state=state) as client:
        found = client.environments()
    if as_json:
        say_json(found)
    elif found:
        print_table(COLUMNS, [_row(one) for one in found])
    else:
        talk("no environments are here")


def _row(one: EnvironmentRow) -> tuple[str, ...]:
    return (
        one.key[:_SHORT],
        _python(one),
        harmless(", ".join(one.requirements)),
        str(len(one.packages)),
        show_bytes(one.bytes),
    )


def _python(one: EnvironmentRow) -> str:
    """Write which Python it is for: of an image, with its C library."""
    return f"{one.python} ({one.platform})" if one.platform else one.python


@env.command()
def build(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A requirements file, or pyproject.toml beside its uv.lock."
        ),
    ],
    python: Annotated[
        str, typer.Option("--python", metavar="VERSION", help="3.11, or >=3.10,<3.13.")
    ] = "",
    image: Annotated[
        str, typer.Option("--image", metavar="IMAGE", help="For the Python of this image.")
    ] = "",
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Build an environment ahead, so that no job waits for it."""
    with Client(state=state) as client, steps(as_json=as_json) as tell:
        began = time.monotonic()
        found = client.build_environment(
            file, python, image, lambda now: tell(_step(now, began))
        )
    if as_json:
        say_json(found)
    else:
        talk(f"{found.key} is here: {count(len(found.packages), 'package')}")


def _step(found: EnvironmentRow, began: float) -> Step:
    after = show_span(int((time.monotonic() - began) * 1000))
    more = f"{count(len(found.packages), 'package')}, {after} so far"
    return Step(f"building {found.key}", more=more)


@env.command()
def show(key: Key, state: State = "", as_json: AsJson = False) -> None:
    """Show the packages of an environment."""
    with Client(state=state) as client:
        found = [one for one in client.environments() if one.key.startswith(key)]
    if len(found) != 1:
        raise Failed(f"{len(found)} environments begin with {key}.", "See `allot env ls`.")
    if as_json:
        say_json(found[0])
        return
    say(f"{found[0].key}  Python {_python(found[0])}, {show_bytes(found[0].bytes)}")
    if found[0].build:
        say(f"  Python from {found[0].build}")
    for package in found[0].packages:
        say(f"  {package}")


@env.command()
def rm(key: Key, state: State = "", as_json: AsJson = False) -> None:
    """Remove an environment that no job needs. For the administrator."""
    with Client(state=state) as client:
        client.remove_environment(key)
        left = client.environments()
    if as_json:
        say_json(left)
    else:
        talk(f"{key} is gone")
