"""`allot up`: start the service of a state folder."""

import getpass
import os
from pathlib import Path
from typing import Annotated

import typer

from allotment.cli.daemon import LOG, folder_of, health_of, start
from allotment.cli.options import AsJson, StateFolder
from allotment.cli.output import Failed, say, say_json, talk
from allotment.cli.words import count
from allotment.client import Client
from allotment.client.address import posted_in
from allotment.service.views import Health
from allotment.wiring.options import Options


def up(  # noqa: PLR0913 - one argument an option
    *,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="Tenants, nodes, limits."),
    ] = None,
    state: StateFolder = "",
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            "-p",
            min=0,
            max=65535,
            help="Also listen on this port of 127.0.0.1, with a token; 0: any free one.",
            show_default=False,
        ),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(
            "--gpus",
            min=0,
            max=1024,
            help="Virtual GPUs, if the machine has no real ones.",
            show_default=False,
        ),
    ] = None,
    slurm: Annotated[
        str,
        typer.Option(
            "--slurm",
            metavar="PARTITION",
            help="Run the jobs on the nodes of a Slurm partition.",
            show_default=False,
        ),
    ] = "",
    pilot: Annotated[
        bool,
        typer.Option(
            "--pilot",
            help="With --slurm: hold whole nodes, and run the jobs there by our own runner.",
        ),
    ] = False,
    kubernetes: Annotated[
        str,
        typer.Option(
            "--kubernetes",
            metavar="KUBECONFIG",
            help="Run the jobs as pods of a Kubernetes cluster; `default`: kubectl's own.",
            show_default=False,
        ),
    ] = "",
    foreground: Annotated[
        bool,
        typer.Option("--foreground", help="Stay in the foreground, and log here; for systemd."),
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Continue with the good part of a damaged event log."
        ),
    ] = False,
    ready_fd: Annotated[int, typer.Option("--ready-fd", hidden=True)] = -1,
    as_json: AsJson = False,
) -> None:
    """Start the service, and return when it takes jobs.

    It listens on a socket in its state folder; --port adds loopback TCP, with a token from
    the same folder. Without --config one tenant has the whole machine; if root runs the
    service and several people have accounts, there is one tenant for each group they share.
    If the service runs already, this says so and succeeds.

    A damaged event log is refused, with what is wrong and what to do. --accept-loss continues
    with the good part: jobs that only the lost part knew are forgotten. No file is deleted: a
    copy of the damaged files stays in the state folder.

    Examples:
      allot up
      allot up --config cluster.yaml --port 8100
      allot up --state /tmp/try --gpus 8
      allot up --state /shared/allotment --slurm gpu
      allot up --state /shared/allotment --slurm gpu --pilot
      allot up --kubernetes ~/.kube/config
    """  # fmt: skip
    if config is not None and not config.is_file():
        raise Failed(
            f"There is no configuration file {config}.", "docs/guide/config.md shows one."
        )
    if pilot and not slurm:
        raise Failed("--pilot holds nodes of a Slurm partition.", "Name it: --slurm PARTITION.")
    options = Options(
        folder_of(state).absolute(), config.absolute() if config else None, port, gpus, slurm,
        pilot, _cluster_file(kubernetes), accept_loss, ready_fd,
    )  # fmt: skip
    if foreground:
        from allotment.wiring.service import serve  # noqa: PLC0415 - a whole world

        raise typer.Exit(serve(options))
    running = health_of(options.folder)
    if running is not None:
        talk(f"It is up already: pid {running.pid}, version {running.version}.")
        if config or gpus is not None:
            talk("To change its configuration, stop it first: allot down")
    health = running or start(options)
    if running is None and gpus is not None:
        _tell_gpus(options.folder, gpus)
    if as_json:
        say_json({**_listening(options.folder), "health": health})
        return
    _tell(options.folder, health)


def _cluster_file(named: str) -> str:
    """Return the kubeconfig that is meant by its whole path: the service stands elsewhere."""
    if not named:
        return ""
    from allotment.backends.kubernetes.kubeconfig import found_file  # noqa: PLC0415 - only here

    return found_file("" if named == "default" else named)


def _tell_gpus(folder: Path, gpus: int) -> None:
    """Print which devices there are, where they are not those of --gpus."""
    with Client(state=str(folder)) as client:
        there = sum(len(node.devices) for node in client.nodes())
    if there != gpus:
        talk(
            f"--gpus {gpus} changes nothing: there are {count(there, 'GPU')}, "
            "by the configuration or in this machine."
        )


def _listening(folder: Path) -> dict[str, str]:
    posted = posted_in(folder)
    return {"socket": posted.socket or str(folder / "allot.sock"), "url": posted.url}


def _tell(folder: Path, health: Health) -> None:
    where = _listening(folder)
    say(where["socket"])
    if where["url"]:
        say(where["url"])
    talk(f"Allotment {health.version} is up: pid {health.pid}, {count(health.jobs, 'job')}.")
    talk(f"Its log: {folder / LOG}")
    if os.geteuid() and (folder / "slurm-pilot").exists():
        talk(
            f"Pilots and jobs run as {getpass.getuser()}, not as root: `allot doctor` says "
            "what holds on the nodes without."
        )
    if folder != folder_of(""):
        talk(f"For other commands: export ALLOT_STATE={folder}")
    if not health.jobs:
        talk("Try: allot run -- echo hello")
