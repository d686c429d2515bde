"""`allot image`: what the machine keeps of images, and the passwords for registries."""

import sys
from typing import Annotated

import typer

from allotment.cli.image_build import EXAMPLES, build, push
from allotment.cli.options import AsJson, State
from allotment.cli.output import Failed, say, say_json, talk
from allotment.cli.steps import steps
from allotment.cli.table import Column, print_table
from allotment.cli.words import count
from allotment.client import Client
from allotment.client.step import Step
from allotment.model.quantity import show_bytes
from allotment.service.image_view import ImageLayer, ImageRow, ImageView

COLUMNS = (
    Column("IMAGE", flexible=True),
    Column("DIGEST", rank=2),
    Column("SIZE", right=True),
    Column("OWN SIZE", rank=1, right=True),
    Column("USED", rank=3),
)
_SHORT = 19
Name = Annotated[str, typer.Argument(metavar="IMAGE", help="registry/name:tag")]
Registry = Annotated[
    str, typer.Argument(metavar="REGISTRY", help="As in image names: host:port.")
]

image = typer.Typer(
    help="Images of jobs: build, push, list, fetch ahead, inspect, remove; log in.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
image.command(epilog=EXAMPLES)(build)
image.command()(push)


@image.command()
def ls(state: State = "", as_json: AsJson = False) -> None:
    """List the images in the store: those you have used, or all for the administrator.

    SIZE is the size of all its layers, unpacked. OWN SIZE counts only the layers that no
    other image here has: removing the image frees that much.
    """
    with Client(state=state) as client:
        found = client.images()
    if as_json:
        say_json(found)
    elif found:
        print_table(COLUMNS, [_row(one) for one in found])
    else:
        talk("no images are here")


def _row(one: ImageRow) -> tuple[str, ...]:
    return (
        one.image.partition("@")[0],
        one.digest[:_SHORT],
        show_bytes(one.bytes),
        show_bytes(one.alone),
        "now" if one.in_use else "",
    )


@image.command()
def pull(name: Name, state: State = "", as_json: AsJson = False) -> None:
    """Fetch an image, so that it is there when a task needs it."""
    _fetch([name], state, as_json=as_json)


@image.command()
def warm(
    names: Annotated[list[str], typer.Argument(metavar="IMAGE", help="registry/name:tag")],
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Fetch images ahead, one after the other."""
    _fetch(names, state, as_json=as_json)


def _fetch(names: list[str], state: str, *, as_json: bool) -> None:
    with Client(state=state) as client, steps(as_json=as_json) as tell:
        found = [client.warm_image(name, lambda now: tell(_step(now))) for name in names]
    if as_json:
        say_json(found)
        return
    for one in found:
        talk(f"{one.image} is here: {count(len(one.layers), 'layer')}")


def _step(found: ImageView) -> Step:
    return Step(f"fetching {found.image.partition('@')[0]}", found.fetched, found.to_fetch)


@image.command()
def inspect(name: Name, state: State = "", as_json: AsJson = False) -> None:
    """Show an image's layers, their sizes, and what would be fetched."""
    with Client(state=state) as client:
        found = client.inspect_image(name)
    if as_json:
        say_json(found)
    else:
        say("\n".join(_lines(found)))


def _lines(found: ImageView) -> list[str]:
    lines = [found.image, f"  {_place(found)}"]
    for key, value in (
        ("entry point", " ".join(found.entrypoint)),
        ("command", " ".join(found.cmd)),
        ("workdir", found.workdir),
        ("variables", " ".join(word.partition("=")[0] for word in found.env)),
    ):
        if value:
            lines.append(f"  {key:<12}{value}")
    for layer in found.layers:
        size = show_bytes(layer.size)
        place = "" if layer.unpacked is None else f", {show_bytes(layer.unpacked)} on disk"
        lines.append(f"  {layer.digest[:_SHORT]}  {size}{place}{_sharing(layer, found)}")
    return lines


def _place(found: ImageView) -> str:
    """Return whether an image is here, and what it takes on disk."""
    size = show_bytes(found.bytes)
    if found.is_here:
        return f"here: {size} on disk, of which no other image has {show_bytes(found.alone)}"
    missing = f"{show_bytes(found.to_fetch)} would be fetched"
    return f"{missing}; {size} on disk are here already" if found.bytes else missing


def _sharing(layer: ImageLayer, found: ImageView) -> str:
    """Return which other images have a layer, as far as they may be named."""
    own = found.image.partition("@")[0]
    names = [name.partition("@") for name in layer.shared_by]
    said = [name if name != own else f"{name}@{digest[:_SHORT]}" for name, _, digest in names]
    if unnamed := layer.shared_with - len(said):
        said.append(f"{unnamed} of other users")
    return f", shared with {' and '.join(said)}" if said else ""


@image.command()
def rm(name: Name, state: State = "", as_json: AsJson = False) -> None:
    """Remove an image from the store, unless a task uses it. For the administrator."""
    with Client(state=state) as client:
        client.remove_image(name)
        left = client.images()
    if as_json:
        say_json(left)
    else:
        talk(f"{name} is gone from the store")


@image.command()
def login(
    registry: Registry,
    user: Annotated[str, typer.Option("--user", "-u", help="Your name there.")],
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password or token from stdin.")
    ] = False,
) -> None:
    """Store your password or token for a registry, where Docker stores it, too.

    It is written to ~/.docker/config.json, for you alone to read. The service reads it there
    with your rights when your jobs need it.
    """
    from allotment.client.image_login import registry_of  # noqa: PLC0415 - rarely needed

    registry = registry_of(registry)
    if password_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif not sys.stdin.isatty():
        raise Failed("There is no terminal to ask for the password.", "Add --password-stdin.")
    else:
        from getpass import getpass  # noqa: PLC0415 - rarely needed

        password = getpass(f"Password for {user} at {registry}: ")
    if not password:
        raise Failed("The password is empty.", "Give it on a line of stdin.")
    with Client() as client:
        path = client.log_in_to_registry(registry, user, password)
    talk(f"kept in {path}; `allot image inspect {registry}/NAME` tests it")


@image.command()
def logout(registry: Registry) -> None:
    """Forget your password for a registry."""
    with Client() as client:
        was_there = client.log_out_of_registry(registry)
    if not was_there:
        raise Failed(f"There is no password for {registry}.", "See ~/.docker/config.json.")
    talk(f"forgotten: {registry}")
