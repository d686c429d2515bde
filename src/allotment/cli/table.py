"""Tables: complete and aligned for a program or file, fitted to the screen on a terminal.

On a narrow screen the columns that matter least are left out, then the flexible ones are
cut. Nothing is ever cut where nobody looks at a screen.
"""

import shutil
import sys
from collections.abc import Sequence

import msgspec

from allotment.cli.output import has_colours, say
from allotment.cli.words import STATE_STYLES, harmless

GAP = 2
LEAST = 8
"""A flexible column is never narrower."""


class Column(msgspec.Struct, frozen=True):
    """One column. The higher its `rank`, the earlier it is left out; 0 always stays."""

    header: str
    rank: int = 0
    right: bool = False
    flexible: bool = False
    """May be cut short."""


Row = Sequence[str]


def print_table(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Print a table with a header."""
    if sys.stdout.isatty():
        _on_terminal(columns, rows, shutil.get_terminal_size().columns)
    else:
        for line in aligned([[column.header for column in columns], *rows], columns):
            say(line)


def aligned(rows: Sequence[Row], columns: Sequence[Column]) -> list[str]:
    """Pad each cell to the width of its column."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(columns))]
    lines: list[str] = []
    for row in rows:
        cells = [
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        ]
        lines.append((" " * GAP).join(cells).rstrip())
    return lines


def fitted(columns: Sequence[Column], widths: Sequence[int], room: int) -> dict[int, int]:
    """Choose which columns to show in how much width: place → width."""
    chosen = dict(enumerate(widths))
    while _over(chosen, room) > 0:
        flexible = [at for at in chosen if columns[at].flexible and chosen[at] > LEAST]
        spare = sum(chosen[at] - LEAST for at in flexible)
        droppable = [at for at in chosen if columns[at].rank]
        if spare >= _over(chosen, room) or (not droppable and flexible):
            widest = max(flexible, key=lambda at: chosen[at])
            chosen[widest] -= 1
        elif droppable:
            del chosen[max(droppable, key=lambda at: columns[at].rank)]
        else:
            break
    return chosen


def _over(chosen: dict[int, int], room: int) -> int:
    return sum(chosen.values()) + GAP * (len(chosen) - 1) - room


def _on_terminal(columns: Sequence[Column], rows: Sequence[Row], room: int) -> None:
    from rich.cells import cell_len  # noqa: PLC0415 - only where a table is looked at
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    rows = [[harmless(cell) for cell in row] for row in rows]
    widths = [
        max(cell_len(row[at]) for row in ([c.header for c in columns], *rows))
        for at in range(len(columns))
    ]
    chosen = fitted(columns, widths, room)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for at, width in chosen.items():
        table.add_column(
            columns[at].header,
            justify="right" if columns[at].right else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=width,
        )
    for row in rows:
        table.add_row(*(Text(row[at], STATE_STYLES.get(row[at], "")) for at in chosen))
    system = "auto" if has_colours(sys.stdout) else None
    Console(color_system=system, highlight=False, width=room).print(table)
