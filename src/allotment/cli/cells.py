"""`allot cells`: which hardware is whose now, and what it is used for."""

import time
from pathlib import Path
from typing import Annotated

import typer

from allotment.cli.cells_tree import (
    LEGEND,
    MOST_IN_FULL,
    SUM,
    TREE,
    nodes_in,
    sum_rows,
    tree_rows,
)
from allotment.cli.options import AsJson, State
from allotment.cli.output import Failed, say_json, talk
from allotment.cli.table import print_table
from allotment.client import Client


def cells(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Only this root or node, and what is in it.")
    ] = "",
    level: Annotated[
        str,
        typer.Option(
            "--level", "-l", help="How far down: a cell type, rack, socket, node, leaf."
        ),
    ] = "",
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page with a picture to this file.")
    ] = None,
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Show the cells: the tenant that has each now, the jobs in it, and what is down.

    A large cluster is summed up. Name a part of it, or a --level, to see each cell. Equal
    empty neighbours share a line.

    Examples:
      allot cells
      allot cells r3
      allot cells n7 --level leaf
      allot cells --html cells.html
    """
    with Client(state=state) as client:
        tree = client.cells(level, name)
    if as_json:
        say_json(tree)
        return
    if not tree.levels:
        talk("This cluster has no cells: see `allot tenants` and `allot nodes`.")
        return
    if html is not None:
        from allotment.cli.cells_page import page  # noqa: PLC0415 - only for a page

        _write(html, page(tree, int(time.time() * 1000)))
        return
    if level or name or nodes_in(tree) <= MOST_IN_FULL:
        print_table(TREE, tree_rows(tree, int(time.time() * 1000)))
        talk(LEGEND)
        return
    print_table(SUM, sum_rows(tree))
    talk("Leaf cells are counted. To see each: `allot cells NAME`, `allot cells --level node`.")


def _write(target: Path, text: str) -> None:
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failed(
            f"{target} cannot be written: {error.strerror}.", "Name another file."
        ) from error
    talk(f"wrote {target}")
