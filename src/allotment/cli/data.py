"""`allot data`: datasets, their versions, and who may use them."""

import sys
import time
from getpass import getpass
from pathlib import Path
from typing import Annotated

import typer

from allotment.cli.options import AsJson, State
from allotment.cli.output import Failed, say, say_json, talk
from allotment.cli.steps import steps
from allotment.cli.table import Column, print_table
from allotment.cli.words import count, harmless, show_age
from allotment.client import Client
from allotment.model.datasets import DataKind
from allotment.model.quantity import show_bytes
from allotment.service.data.view import DataVersionView, DataView

COLUMNS = (
    Column("DATASET", flexible=True),
    Column("KIND"),
    Column("OWNER", rank=1),
    Column("VERSION", right=True),
    Column("FILES", right=True, rank=1),
    Column("SIZE", right=True),
    Column("YOU MAY"),
)
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="NAME or TENANT/NAME; NAME@3 for one version.")
]
Who = Annotated[str, typer.Argument(metavar="WHO", help="tenant:NAME or user:NAME.")]

data = typer.Typer(
    help="Datasets: data with names, versions that never change, and rights to use them.",
    epilog="\b\nExamples:\n"
    "  allot data create imagenet\n"
    "  allot data put imagenet ./imagenet\n"
    "  allot run --data imagenet=/data/imagenet -- python train.py",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@data.command(
    epilog="\b\nExamples:\n"
    "  allot data create imagenet\n"
    "  allot data create scratch --folder /srv/nfs/scratch --tenant vision\n"
    "  allot data create weights --s3 s3://models/bert --endpoint https://s3.lan",
)
def create(  # noqa: PLR0913, PLR0917 - options are the interface
    name: Name,
    tenant: Annotated[
        str,
        typer.Option(
            "--tenant", metavar="NAME", help="The tenant that owns it; yours by default."
        ),
    ] = "",
    folder: Annotated[
        str,
        typer.Option(
            "--folder", metavar="DIR", help="Register a folder of the machine (administrator)."
        ),
    ] = "",
    s3: Annotated[
        str,
        typer.Option(
            "--s3", metavar="s3://BUCKET/PREFIX", help="Register objects of an object store."
        ),
    ] = "",
    endpoint: Annotated[
        str,
        typer.Option("--endpoint", metavar="URL", help="Its address; Amazon's by default."),
    ] = "",
    region: Annotated[
        str,
        typer.Option(
            "--region", metavar="NAME", help="The bucket's region; otherwise us-east-1."
        ),
    ] = "",
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            metavar="NAME",
            help="The key in ~/.aws/credentials; otherwise default.",
        ),
    ] = "",
    public: Annotated[
        bool, typer.Option("--public", help="Ask the store without a key.")
    ] = False,
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Make a dataset, which has no version yet; or register a folder or an object store.

    An object store is read with your own key: `allot data login` stores one.
    """
    if not s3 and (endpoint or region or profile or public):
        raise Failed("There is no object store named.", "Add --s3 s3://BUCKET/PREFIX.")
    if public and profile:
        raise Failed("--public asks without a key, and --profile with one.", "Leave one out.")
    objects = {"url": s3, "endpoint": endpoint, "region": region, "profile": profile}
    objects = {key: word for key, word in objects.items() if word}
    objects |= {"profile": ""} if public else {}
    with Client(state=state) as client:
        found = client.create_dataset(
            name, tenant=tenant, folder=folder, objects=objects if s3 else None
        )
    if as_json:
        say_json(found)
        return
    full = f"{found.tenant}/{found.name}"
    if s3:
        newest = found.versions[-1] if found.versions else None
        has = (
            f"{count(newest.files, 'object')}, {show_bytes(newest.bytes)}"
            if newest
            else "nothing yet"
        )
        talk(f"{full} is {s3}, which has {has}; a job sees the objects of its submission")
        if not public:
            talk(f"add a version: allot data put {found.name} DIR")
    elif folder:
        talk(f"{full} is {folder}; all of tenant {found.tenant} may read it")
    else:
        talk(f"{full} is made; fill it: allot data put {found.name} DIR")


@data.command(
    epilog="\b\nExamples:\n"
    "  allot data put imagenet ./imagenet\n"
    "  allot data put weights model.safetensors",
)
def put(
    name: Name,
    source: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder with all its files; or one file.")
    ],
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Make a folder the next version of a dataset, which never changes again.

    Files that have not changed since your last `put` are not sent again.
    """
    with Client(state=state) as client, steps(as_json=as_json) as tell:
        done = client.put_data(name, source, tell)
    if as_json:
        say_json(done.version)
        return
    version = done.version
    base = name.partition("@")[0]
    talk(
        f"{base}@{version.number}: {count(version.files, 'file')}, "
        f"{show_bytes(version.bytes)}; {show_bytes(done.sent)} sent"
    )


@data.command(
    epilog="\b\nExamples:\n  allot data get weights@2 ./weights",
)
def get(
    name: Name,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write the files.")],
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Write the files of a version, the newest unless one is named, into a folder.

    What is there already is not fetched again: repeat it if it was interrupted.
    """
    with Client(state=state) as client, steps(as_json=as_json) as tell:
        page = client.get_data(name, folder, tell)
    if as_json:
        say_json(page.version)
        return
    exact = f"{page.tenant}/{page.name}@{page.version.number}"
    talk(f"{exact}: {count(page.version.files, 'file')} in {folder}")


@data.command(
    epilog="\b\nExamples:\n  allot data ls\n  allot data ls imagenet@3",
)
def ls(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="List the files of a version.")
    ] = "",
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """List the datasets that you may use; or the files of a version, by default the newest."""
    with Client(state=state) as client:
        if name:
            page = client.data_files(name)
            if as_json:
                say_json(page)
                return
            for file in page.files:
                leads = f" -> {harmless(file.of)}" if file.kind == "l" else ""
                say(f"{show_bytes(file.size):>10}  {harmless(file.path)}{leads}")
            return
        found = client.datasets()
    if as_json:
        say_json(found)
    elif found:
        print_table(COLUMNS, [_row(one) for one in found])
    else:
        talk("there are no datasets that you may use")


def _row(one: DataView) -> tuple[str, ...]:
    newest = one.versions[-1] if one.versions else None
    return (
        f"{one.tenant}/{one.name}",
        one.kind.value,
        harmless(one.user),
        f"@{newest.number}" if newest else "",
        f"{newest.files:,}" if newest else "",
        show_bytes(newest.bytes) if newest else "",
        "read, write" if one.write else "read",
    )


@data.command()
def show(name: Name, state: State = "", as_json: AsJson = False) -> None:
    """Show a dataset and its versions; the owner also sees its users."""
    with Client(state=state) as client:
        found = client.dataset(name)
    if as_json:
        say_json(found)
        return
    now = int(time.time() * 1000)
    say(f"{found.tenant}/{found.name}  {found.kind.value}")
    say(f"  owner       {harmless(found.user)}, and tenant {found.tenant} to read")
    if found.folder:
        say(f"  folder      {harmless(found.folder)}")
    if found.objects:
        place = found.objects
        key = f"profile {place.profile}" if place.profile else "without a key"
        say(f"  objects     {harmless(str(place))} at {harmless(place.endpoint)}, {key}")
    for grant in found.grants:
        right = "reads and writes" if grant.write else "reads"
        say(f"  granted     {grant.to.value} {harmless(grant.name)} {right}")
    if found.disk:
        is_fetched = found.kind is DataKind.OBJECTS
        what = "of it, fetched for jobs" if is_fetched else "for all versions together"
        say(f"  on disk     {show_bytes(found.disk)} {what}")
    for each in found.putting:
        part = f"{show_bytes(each.sent)} of {show_bytes(each.bytes)}"
        say(f"  being put   {part} sent to the store, {harmless(each.user)}")
    for version in reversed(found.versions):
        say(
            f"  @{version.number:<10} {count(version.files, 'file')}, "
            f"{show_bytes(version.bytes)}, {harmless(version.user)}, "
            f"{show_age(version.closed_at, now)} ago{_of_job(version)}"
        )


def _of_job(version: DataVersionView) -> str:
    of = version.checkpoint
    return f", checkpoint of job {of.job} at step {of.step}" if of is not None else ""


@data.command(
    epilog="\b\nExamples:\n"
    "  allot data grant imagenet tenant:speech\n"
    "  allot data grant imagenet user:ann --write",
)
def grant(
    name: Name,
    who: Who,
    write: Annotated[
        bool, typer.Option("--write", help="Also allow to add versions, or to write.")
    ] = False,
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Let the members of another tenant, or a user, read a dataset, or write too."""
    tenant, user = _who(who)
    with Client(state=state) as client:
        found = client.grant_data(name, tenant=tenant, user=user, write=write)
    if as_json:
        say_json(found)
        return
    talk(f"{who} may {'read and write' if write else 'read'} {found.tenant}/{found.name}")


@data.command(
    epilog="\b\nExamples:\n"
    "  allot data login\n"
    "  allot data login --profile lab --key-id AKIAEXAMPLE",
)
def login(
    profile: Annotated[
        str, typer.Option("--profile", metavar="NAME", help="The name of the profile.")
    ] = "default",
    key_id: Annotated[
        str,
        typer.Option(
            "--key-id", metavar="ID", help="Its access key id; otherwise you are asked."
        ),
    ] = "",
    secret_stdin: Annotated[
        bool, typer.Option("--secret-stdin", help="Read the secret key from stdin.")
    ] = False,
) -> None:
    """Store your key for an object store in ~/.aws/credentials, as AWS's tools do.

    The service reads it there with your rights, when a job uses a dataset of yours.
    """
    if not key_id:
        if secret_stdin or not sys.stdin.isatty():
            raise Failed("There is no terminal to ask for the key.", "Add --key-id.")
        key_id = typer.prompt("Access key id")
    if secret_stdin:
        secret = sys.stdin.readline().rstrip("\r\n")
    elif not sys.stdin.isatty():
        raise Failed("There is no terminal to ask for the secret key.", "Add --secret-stdin.")
    else:
        secret = getpass(f"Secret key of {key_id}: ")
    with Client() as client:
        path = client.log_in_to_store(key_id, secret, profile=profile)
    talk(f"kept in {path}, for you alone, as profile {profile}")


@data.command(
    epilog="\b\nExamples:\n  allot data revoke imagenet tenant:speech",
)
def revoke(name: Name, who: Who, state: State = "", as_json: AsJson = False) -> None:
    """Take a right back. Running tasks keep their data; no new task gets it."""
    tenant, user = _who(who)
    with Client(state=state) as client:
        found = client.revoke_data(name, tenant=tenant, user=user)
    if as_json:
        say_json(found)
        return
    talk(f"{who} has no right to {found.tenant}/{found.name} by a grant any more")


def _who(text: str) -> tuple[str, str]:
    kind, _, name = text.partition(":")
    if kind not in ("tenant", "user") or not name:
        raise Failed(f"{text!r} is not a user or a tenant.", "Write tenant:NAME or user:NAME.")
    return (name, "") if kind == "tenant" else ("", name)


@data.command(
    epilog="\b\nExamples:\n  allot data rm imagenet@1\n  allot data rm imagenet",
)
def rm(name: Name, state: State = "", as_json: AsJson = False) -> None:
    """Remove a version, or a dataset with all its versions, unless a job needs it.

    The files of a registered folder stay.
    """
    with Client(state=state) as client:
        client.remove_data(name)
        left = client.datasets()
    if as_json:
        say_json(left)
    else:
        talk(f"{name} is gone")
