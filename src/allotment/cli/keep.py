"""Verbs that keep the books safe: backup and restore."""

from pathlib import Path
from typing import Annotated

import typer

from allotment.cli.daemon import folder_of, health_of
from allotment.cli.options import AsJson, State, StateFolder
from allotment.cli.output import Failed, say, say_json, talk
from allotment.client import Client, Unreachable
from allotment.model.quantity import show_bytes

File = Annotated[Path, typer.Argument(metavar="FILE")]


def backup(
    file: File,
    without_secrets: Annotated[
        bool, typer.Option("--without-secrets", help="Leave the jobs' secrets out.")
    ] = False,
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Write a consistent copy of the service's database to a new file, while it runs.

    It has every job and event, not the logs and output files of jobs. It has the `secrets` of
    jobs in clear text: keep it as safe as the state folder, or leave them out. After a
    restore without secrets, jobs that need one are held until their users set it again.

    Examples:
      allot backup /backup/allot-$(date +%F).db
      allot backup /backup/allot.db --without-secrets
    """
    target = file.absolute()
    with Client(state=state) as client:
        try:
            client.backup(target, without_secrets=without_secrets)
        except Unreachable as error:
            raise Unreachable(
                error.message,
                "If the service is stopped, copy allot.db in its state folder.",
            ) from error
    size = target.stat().st_size if target.exists() else 0
    if as_json:
        say_json({"file": str(target), "bytes": size})
        return
    say(str(target))
    talk(f"Written: {show_bytes(size)}. To go back to it: allot restore {target}")
    if without_secrets:
        talk("The secrets of jobs are left out: after a restore, users have to set them again.")
    else:
        talk("It has the secrets of jobs in clear text. To leave them out: --without-secrets.")


def restore(file: File, state: StateFolder = "", as_json: AsJson = False) -> None:
    """Put a backup in place of a missing database, while no service runs.

    An existing database is never overwritten: move allot.db away first.

    Examples:
      allot down
      mv ~/.local/state/allotment/allot.db /tmp/old.db
      allot restore /backup/allot-2026-11-21.db && allot up
    """
    folder = folder_of(state)
    running = health_of(folder)
    if running is not None:
        raise Failed(
            f"A service uses {folder} (pid {running.pid}).", "Stop it first: allot down"
        )
    from allotment.wiring.service import restore as put_back  # noqa: PLC0415 - a whole world

    last = put_back(file.absolute(), folder)
    if as_json:
        say_json({"state_dir": str(folder), "last_event": last})
        return
    talk(f"Restored up to event {last} into {folder}.")
    talk("Start the service: allot up")
