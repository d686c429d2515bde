"""`allot config import` and `discover`: a configuration from another system, or a machine."""

from pathlib import Path
from typing import Annotated

import typer

from allotment.cli.output import Failed, at_line, say, talk, warn
from allotment.cli.words import count

Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write to this file, not to standard output."
    ),
]
IMPORT_EXAMPLES = (
    "\b\nExamples:\n"
    "  allot config import hivedscheduler.yaml --output cluster.yaml\n"
    "  allot config import hived.yaml --cpus 5 --memory 56GiB > cluster.yaml"
)
DISCOVER_EXAMPLES = (
    "\b\nExamples:\n"
    "  allot config discover --output cluster.yaml\n"
    "  allot config discover --slurm gpu --output cluster.yaml"
)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    output: Output = None,
    cpus: Annotated[
        str, typer.Option("--cpus", metavar="N", help="CPUs of each device without a SKU.")
    ] = "4",
    memory: Annotated[
        str, typer.Option("--memory", metavar="SIZE", help="Memory of each such device.")
    ] = "8GiB",
) -> None:
    """Turn a configuration of HiveD (hivedscheduler.yaml) into one of Allotment.

    Keys without a counterpart, and assumptions, are listed on standard error. A configuration
    whose quotas cannot be met is refused.
    """
    from allotment.wire.amiss import Amiss  # noqa: PLC0415 - only here
    from allotment.wire.amounts import read_cpu, read_size  # noqa: PLC0415
    from allotment.wire.config_text import config_text  # noqa: PLC0415
    from allotment.wire.hived_config import read_hived  # noqa: PLC0415
    from allotment.wire.hived_nodes import Share  # noqa: PLC0415

    try:
        milli = read_cpu(cpus)
    except Amiss as amiss:
        raise typer.BadParameter(f"{amiss.message} {amiss.hint}", param_hint="--cpus") from None
    try:
        share = Share(milli, read_size(memory))
    except Amiss as amiss:
        hint = f"{amiss.message} {amiss.hint}"
        raise typer.BadParameter(hint, param_hint="--memory") from None
    found = read_hived(read_file(file), source=str(file), share=share)
    for warning in found.warnings:
        warn(at_line(str(file), warning))
    _put(config_text(found.written, f"Made of {file.name} by `allot config import`."), output)
    nodes, tenants = count(len(found.config.nodes), "node"), len(found.config.tenants)
    talk(f"{file}: {nodes}, {count(tenants, 'tenant')}.")


def discover(
    output: Output = None,
    slurm: Annotated[
        str,
        typer.Option(
            "--slurm", metavar="PARTITION", help="Describe the nodes of a Slurm partition."
        ),
    ] = "",
    kubernetes: Annotated[
        str,
        typer.Option(
            "--kubernetes",
            metavar="KUBECONFIG",
            help="Describe the nodes of a Kubernetes cluster; `default`: kubectl's own.",
        ),
    ] = "",
) -> None:
    """Describe this machine and how its devices lie together, as a configuration.

    For a cluster, put the output of several machines together under `nodes` and `cells`. With
    `--slurm`, describe the nodes of a partition, and its switches as cells; with
    `--kubernetes`, those of a cluster.
    """
    from allotment.wire.config_machine import machines_to_wire  # noqa: PLC0415 - only here
    from allotment.wire.config_text import config_text  # noqa: PLC0415
    from allotment.wiring.discovery import discovered  # noqa: PLC0415 - a whole world
    from allotment.wiring.slurm import described  # noqa: PLC0415

    if slurm:
        nodes, topology = described(slurm)
        head = f"Partition {slurm} as `allot config discover` found it."
    elif kubernetes:
        from allotment.wiring import kubernetes as cluster  # noqa: PLC0415 - only here

        nodes, topology = cluster.described(kubernetes)
        head = "The cluster as `allot config discover` found it."
    else:
        node, topology = discovered()
        nodes, head = (node,), f"{node.name} as `allot config discover` found it."
    _put(config_text(machines_to_wire(nodes, topology), head), output)


def read_file(file: Path) -> bytes:
    """Read a configuration file. Raises Failed."""
    try:
        return file.read_bytes()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise Failed(f"{file} cannot be read: {why}.", "Name a configuration file.") from error


def _put(text: str, output: Path | None) -> None:
    """Write it to a new file, or print it."""
    if output is None:
        say(text.rstrip("\n"))
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Failed(f"{output} is there already.", "Name another file.") from None
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise Failed(f"{output} cannot be written: {why}.", "Name another file.") from error
