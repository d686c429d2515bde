"""`allot health`: hardware that is not well, and an administrator's word on it."""

import time
from collections.abc import Iterator
from typing import Annotated

import typer

from allotment.cli.options import AsJson, State, complete_node
from allotment.cli.output import say_json, talk
from allotment.cli.table import Column, print_table
from allotment.client import Client
from allotment.model.quantity import show_millis
from allotment.service.hardware_view import HardwareView, HealthNote

COLUMNS = (
    Column("HARDWARE"),
    Column("HEALTH"),
    Column("FOR", right=True),
    Column("30 DAYS", rank=4, right=True),
    Column("BY", rank=2),
    Column("JOBS", rank=1, flexible=True),
    Column("BECAUSE", rank=3, flexible=True),
)

health = typer.Typer(
    help="List hardware that is not healthy, or report that it is bad or ok.\n\n"
    "Suspect and bad hardware gets no new work; running jobs continue. Doubted hardware is "
    "still used: only jobs of one user report it, or more hardware would be out of use than "
    "the breaker allows. "
    "30 DAYS is how often it was suspect or bad; three times or more stay in the list.\n\n"
    "\b\nExamples:\n  allot health\n"
    '  allot health bad n3:5 --because "fan"\n  allot health ok n3:5',
    rich_markup_mode=None,
    invoke_without_command=True,
)
Where = Annotated[
    str,
    typer.Argument(
        metavar="WHERE",
        help="NODE, NODE:DEVICE, or a cell by its path from the root: r1/2/0.",
        autocompletion=complete_node,
    ),
]


@health.callback()
def _list(context: typer.Context, state: State = "", as_json: AsJson = False) -> None:
    if context.invoked_subcommand is not None:
        return
    with Client(state=state) as client:
        found = client.hardware()
    if as_json:
        say_json(found)
    elif found:
        now = time.time_ns() // 1_000_000
        print_table(COLUMNS, [row_of(one, now) for one in found])
        for note in notes(found):
            talk(note)
    else:
        talk("all hardware is healthy")


def row_of(one: HardwareView, now: int) -> tuple[str, ...]:
    """Return the cells of one row. `now` is in milliseconds since the epoch."""
    return (
        name_of(one),
        one.health.value,
        show_millis(max(0, now - one.since)) if one.since else "",
        str(one.suspected),
        one.who or (one.by.value if one.by else ""),
        ", ".join(str(job) for job in one.jobs),
        one.words or one.code,
    )


def notes(found: list[HardwareView]) -> Iterator[str]:
    """Return what an administrator has to decide."""
    held_back = [name_of(one) for one in found if one.held_back]
    if held_back:
        yield (
            f"{listed(held_back)} would be out of use, but that is more than reports alone may "
            f"take (limits.breaker). Check it: `allot health bad {held_back[0]}` takes it out "
            f"of use, `allot health ok {held_back[0]}` deletes the reports."
        )


def listed(names: list[str]) -> str:
    """Return some names, and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def name_of(one: HardwareView) -> str:
    """Return the name of hardware as `bad` and `ok` take it."""
    return one.node if one.device is None else f"{one.node}:{one.device}"


@health.command(
    epilog='\b\nExamples:\n  allot health bad n3 --because "new power supply"\n'
    '  allot health bad n3:5 --because "ECC errors"',
)
def bad(
    where: Where,
    because: Annotated[
        str,
        typer.Option("--because", "-b", metavar="TEXT", help="The reason. Other users see it."),
    ] = "",
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Keep new work off hardware until `allot health ok`; running jobs continue."""
    _note(HealthNote(where, ok=False, because=because), state, as_json=as_json)


@health.command(epilog="\b\nExamples:\n  allot health ok n3:5")
def ok(where: Where, state: State = "", as_json: AsJson = False) -> None:
    """Let hardware take work again, and delete the reports about it.

    `ok` for a node is also for all its devices.
    """
    _note(HealthNote(where, ok=True), state, as_json=as_json)


def _note(note: HealthNote, state: str, *, as_json: bool) -> None:
    with Client(state=state) as client:
        found = client.note_health(note)
    if as_json:
        say_json(found)
        return
    for one in found:
        jobs = f"; still there: job {', '.join(map(str, one.jobs))}" if one.jobs else ""
        talk(f"{name_of(one)} is {one.health.value}{'' if note.ok else jobs}")
