"""`allot config`: the cluster's configuration file."""

from pathlib import Path
from typing import Annotated

import typer

from allotment.cli.options import AsJson
from allotment.cli.output import Failed, at_line, say_json, talk, warn
from allotment.cli.words import count
from allotment.model.quantity import show_resources

config = typer.Typer(
    help="Check the cluster's configuration file.", rich_markup_mode=None, no_args_is_help=True
)


@config.callback()
def _group() -> None:
    pass


@config.command(
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog="\b\nExamples:\n  allot config check cluster.yaml",
)
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE")], as_json: AsJson = False
) -> None:
    """Read a configuration as `allot up --config` would, and say what is in it."""
    from allotment.wire.config import config_to_wire, read_config  # noqa: PLC0415 - only here

    try:
        data = file.read_bytes()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise Failed(f"{file} cannot be read: {why}.", "Name a configuration file.") from error
    from allotment.wiring.service import this_machine  # noqa: PLC0415 - a whole world, only here

    found, warnings = read_config(data, source=str(file), machine=this_machine())
    for warning in warnings:
        warn(at_line(str(file), warning))
    if as_json:
        say_json(config_to_wire(found))
        return
    for node in found.nodes:
        talk(f"node {node.name}: {show_resources(node.total())}")
    for tenant in found.tenants:
        talk(f"tenant {tenant.name}: {show_resources(tenant.guaranteed)} guaranteed")
    nodes, tenants = count(len(found.nodes), "node"), count(len(found.tenants), "tenant")
    talk(f"{file} is fine: {nodes}, {tenants}.")
