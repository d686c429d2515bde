"""Grids of parameters on the command line: `--grid lr=0.1,0.01 --grid seed=1..5`."""

from collections.abc import Iterable
from typing import Annotated

import typer

from allotment.cli.output import Failed

Grid = Annotated[
    list[str] | None,
    typer.Option(
        "--grid",
        metavar="NAME=VALUES",
        help="One job for each value: lr=0.1,0.01 or seed=1..5. Repeatable: all combinations.",
    ),
]


def grid_of(words: Iterable[str]) -> dict[str, object]:
    """Read parameters with their values."""
    grid: dict[str, object] = {}
    for word in words:
        name, equals, values = word.partition("=")
        if not (name and equals and values) or name in grid:
            raise Failed(
                f"--grid {word}: it is NAME=VALUES, each name once.", "--grid lr=0.1,0.01"
            )
        grid[name] = values if ".." in values and "," not in values else values.split(",")
    return grid
