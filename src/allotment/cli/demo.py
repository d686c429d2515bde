"""`allot demo`: three teams' training jobs on this machine, or on a Slurm cluster."""

from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from allotment.cli.output import Failed


class Engine(StrEnum):
    """What may run the jobs of the demo."""

    LOCAL = "local"
    SLURM = "slurm"


def demo(
    *,
    engine: Annotated[
        Engine, typer.Option("--engine", help="What runs the jobs: this machine, or Slurm.")
    ] = Engine.LOCAL,
    native: Annotated[
        bool,
        typer.Option(
            "--native", help="On Slurm: one job for each task; no pilots that hold whole nodes."
        ),
    ] = False,
    partition: Annotated[
        str,
        typer.Option(
            "--partition",
            metavar="PARTITION",
            help="On Slurm: the partition; otherwise the first that is large enough.",
            show_default=False,
        ),
    ] = "",
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder",
            metavar="FOLDER",
            help="On Slurm: a folder that all nodes see; otherwise your home folder.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run three teams' training jobs, and show what each gets.

    It takes about a minute, and uses its own service, which ends with it. The exit code is 0
    only if everything it shows really happened.

    With --engine slurm the jobs run on an existing Slurm cluster: with --native on six of its
    GPUs, otherwise on whole nodes that pilots hold meanwhile.

    Examples:
      allot demo
      allot demo --engine slurm
      allot demo --engine slurm --native --partition gpu
    """
    if engine is Engine.LOCAL and (native or partition or folder):
        raise Failed("--native, --partition and --folder are for Slurm.", "Add --engine slurm.")
    # By name: the demo stands beside the command line, neither imports the other.
    wanted = None
    if engine is Engine.SLURM:
        where = str(folder.absolute()) if folder is not None else ""
        wanted = import_module("allotment.demo.on_slurm").OnSlurm(partition, native, where)
    raise typer.Exit(import_module("allotment.demo.story").main(wanted))
