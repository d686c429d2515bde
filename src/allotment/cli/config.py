"""`allot config`: the cluster's configuration file."""

from pathlib import Path
from typing import Annotated

import typer

from allotment.cli.config_apply import apply, plan, show
from allotment.cli.config_import import (
    DISCOVER_EXAMPLES,
    IMPORT_EXAMPLES,
    discover,
    import_,
    read_file,
)
from allotment.cli.config_words import say_what_is_in
from allotment.cli.options import AsJson
from allotment.cli.output import at_line, say_json, warn

config = typer.Typer(
    help="The cluster's configuration: check a file, make one, plan a change, apply it.",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@config.command(epilog="\b\nExamples:\n  allot config check cluster.yaml")
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE")], as_json: AsJson = False
) -> None:
    """Read a configuration as `allot up --config` would, and say what is in it."""
    from allotment.wire.config import config_to_wire  # noqa: PLC0415 - only here

    data = read_file(file)
    from allotment.wiring.engines import find_engines  # noqa: PLC0415 - a whole world, only here
    from allotment.wiring.service import this_machine  # noqa: PLC0415

    found, warnings = find_engines(None, data, "", this_machine()).read(data, str(file))
    for warning in warnings:
        warn(at_line(str(file), warning))
    if as_json:
        say_json(config_to_wire(found))
        return
    say_what_is_in(found, str(file))


config.command(epilog="\b\nExamples:\n  allot config plan cluster.yaml")(plan)
config.command(
    epilog="\b\nExamples:\n  allot config plan cluster.yaml && allot config apply cluster.yaml",
)(apply)
config.command(epilog="\b\nExamples:\n  allot config show > cluster.yaml")(show)
config.command("import", epilog=IMPORT_EXAMPLES)(import_)
config.command(epilog=DISCOVER_EXAMPLES)(discover)
