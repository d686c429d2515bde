"""`allot demo`: three teams' training jobs on this machine, on Slurm or on Kubernetes."""

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
    KUBERNETES = "kubernetes"


def demo(  # noqa: PLR0913 - one argument an option
    *,
    engine: Annotated[
        Engine, typer.Option("--engine", help="What runs the jobs: this machine, or a cluster.")
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
    kubeconfig: Annotated[
        str,
        typer.Option(
            "--kubeconfig",
            metavar="FILE",
            help="On Kubernetes: the cluster; otherwise that of kubectl.",
            show_default=False,
        ),
    ] = "",
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="On Kubernetes: where the pods are; otherwise as the kubeconfig says.",
            show_default=False,
        ),
    ] = "",
    image: Annotated[
        str,
        typer.Option(
            "--image",
            metavar="IMAGE",
            help="On Kubernetes: an image with python3 and numpy.",
            show_default=False,
        ),
    ] = "",
    volume: Annotated[
        str,
        typer.Option(
            "--volume",
            metavar="PATH=CLAIM",
            help="On Kubernetes: where checkpoints outlive pods, and the PersistentVolumeClaim "
            "that all nodes can write; or `host`: the nodes' own folder of that path.",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Run three teams' training jobs, and show what each gets.

    It takes about a minute, and uses its own service, which ends with it. The exit code is 0
    only if everything it shows really happened.

    With --engine slurm the jobs run on an existing Slurm cluster: with --native on six of its
    GPUs, otherwise on whole nodes that pilots hold meanwhile.

    With --engine kubernetes they are pods of an existing cluster, on six of its GPUs, or
    without GPUs if it has none.

    Examples:
      allot demo
      allot demo --engine slurm
      allot demo --engine slurm --native --partition gpu
      allot demo --engine kubernetes --image pytorch/pytorch:2.6.0
    """
    if engine is not Engine.SLURM and (native or partition or folder):
        raise Failed("--native, --partition and --folder are for Slurm.", "Add --engine slurm.")
    if engine is not Engine.KUBERNETES and (kubeconfig or namespace or image or volume):
        raise Failed(
            "--kubeconfig, --namespace, --image and --volume are for Kubernetes.",
            "Add --engine kubernetes.",
        )
    # By name: the demo stands beside the command line, neither imports the other.
    wanted = None
    if engine is Engine.SLURM:
        where = str(folder.absolute()) if folder is not None else ""
        wanted = import_module("allotment.demo.on_slurm").OnSlurm(partition, native, where)
    if engine is Engine.KUBERNETES:
        if not image:
            raise Failed(
                "On Kubernetes the demo needs an image with python3 and numpy.",
                "Name one that the nodes can pull: --image pytorch/pytorch:2.6.0",
            )
        wanted = import_module("allotment.demo.on_kubernetes").OnKubernetes(
            image, "" if kubeconfig == "default" else kubeconfig, namespace, _volume(volume)
        )
    raise typer.Exit(import_module("allotment.demo.story").main(wanted))


def _volume(word: str) -> tuple[str, str]:
    """Read PATH=CLAIM. Raises Failed."""
    path, _, claim = word.partition("=")
    if word and not (path.startswith("/") and path.strip("/") and claim):
        raise Failed(
            f"--volume {word} is not PATH=CLAIM.", "Write it so: /shared=training-data."
        )
    return path, claim
