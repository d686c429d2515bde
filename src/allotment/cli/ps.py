"""`allot ps`: one line a job."""

import sys
import time
from collections.abc import Mapping
from typing import Annotated

import typer

from allotment.cli.options import AsJson
from allotment.cli.output import say_json, talk
from allotment.cli.selecting import OPTIONS as SELECTING
from allotment.cli.selecting import Choice, choosing, in_states
from allotment.cli.table import Column, print_table
from allotment.cli.watching import Every, watch
from allotment.cli.words import (
    NOTHING_THERE,
    borrows,
    harmless,
    not_heard,
    pairs,
    plain,
    show_age,
    show_gpus,
    show_span,
    some,
)
from allotment.client import Client
from allotment.model.lifecycle import JobState
from allotment.service.views import JobRow

COLUMNS = (
    Column("ID", right=True),
    Column("NAME", flexible=True),
    Column("TENANT", rank=3),
    Column("USER", rank=5),
    Column("STATE"),
    Column("GPU", rank=1, right=True),
    Column("AGE", rank=4, right=True),
    Column("RAN", rank=2, right=True),
    Column("NODE", rank=6),
    Column("WHY", flexible=True),
)


OPTIONS = tuple(option for option in SELECTING if option[0] != "all_")
"""Everybody's jobs are shown anyway: here --all means those of all times."""


@choosing(OPTIONS)
def ps(  # noqa: PLR0913 - one argument an option
    choice: Choice,
    *,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also those that finished long ago.")
    ] = False,
    elements: Annotated[
        bool, typer.Option("--elements", "-e", help="A line for each job of an array.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="At most this many.")
    ] = 100,
    watching: Annotated[
        bool, typer.Option("--watch", "-w", help="Refresh it until Ctrl-C.")
    ] = False,
    every: Every = 2.0,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first: their states, and why they wait.

    The list has live jobs and those that finished in the last hour. An array is one line; if
    you name it, its jobs are listed. WHY says what a job waits for, how it ended, or what it
    borrows: the resources beyond its tenant's guarantee, until another tenant reclaims them. A
    state with a question mark is the last known one: the engine of the job does not answer.

    Examples:
      allot ps
      allot ps --watch
      allot ps 8
      allot ps '8[failed]'
      allot ps --mine --state queued --state held
      allot ps --all --tenant vision --name 'train-*' --json
    """
    jobs = choice.jobs
    with Client(state=choice.folder) as client:

        def found() -> list[JobRow]:
            return client.jobs(
                refs=jobs.refs,
                tenant=jobs.tenant,
                user=jobs.user,
                mine=jobs.mine,
                pattern=jobs.name,
                states=jobs.states,
                labels=jobs.labels,
                finished=everything or any(state.finished for state in jobs.states),
                arrays=not (elements or jobs.refs),
                limit=limit,
            )

        if as_json:
            say_json(found())
        elif watching:
            watch(lambda: _draw(found(), limit), every)
        else:
            _draw(found(), limit)


def _draw(rows: list[JobRow], limit: int) -> None:
    now = int(time.time() * 1000)
    _print(rows, now)
    if not rows and sys.stderr.isatty():
        talk("No jobs. Try: allot run -- echo hello")
    elif len(rows) == limit:
        talk(f"The newest {limit} are shown; --limit gives more.")


def as_row(row: JobRow, now: int) -> tuple[str, ...]:
    """Return the cells of one job's row."""
    return (
        str(row.id),
        name_of(row),
        row.tenant,
        row.user,
        f"{row.state}?" if row.unheard else row.state,
        show_gpus(row.total.gpu_milli),
        show_age(row.submitted_at, now),
        show_span(row.ran_ms) if row.started_at else "-",
        some(row.nodes),
        why_of(row),
    )


def _print(rows: list[JobRow], now: int) -> None:
    """Print the table, with what only some jobs have where one of them has it."""
    columns, lines = list(COLUMNS), [list(as_row(row, now)) for row in rows]
    extra = {
        "PARAMS": (0, [row.array.params if row.array else {} for row in rows]),
        "LABELS": (7, [row.labels for row in rows]),
    }
    for header, (rank, cells) in extra.items():
        if any(cells):
            columns.insert(-1, Column(header, rank=rank, flexible=True))
            for line, cell in zip(lines, cells, strict=True):
                line.insert(-1, harmless(pairs(cell)) or NOTHING_THERE)
    print_table(columns, lines)


def name_of(row: JobRow) -> str:
    """Write a job's name; of an array with its size."""
    jobs = sum(row.counts.values())
    return f"{row.name} ×{jobs:,}" if row.array and jobs else row.name


BAR = 12
MARKS = (
    ("=", (JobState.SUCCEEDED,)),
    ("x", (JobState.FAILED, JobState.TIMED_OUT, JobState.CANCELLED)),
    (">", (JobState.RUNNING, JobState.STOPPING, JobState.STARTING, JobState.SUSPENDED)),
    (".", (JobState.QUEUED, JobState.HELD)),
)
"""How a bar shows states: succeeded, failed, running, waiting."""


def bar(counts: Mapping[str, int]) -> str:
    """Draw how far an array is: `[====x>>.....]`. What there is at all has a mark."""
    total = sum(counts.values())
    parts = [(mark, sum(counts.get(state, 0) for state in states)) for mark, states in MARKS]
    widths = {mark: max(1, number * BAR // total) if number else 0 for mark, number in parts}
    while (over := sum(widths.values()) - BAR) != 0:
        widest = max(widths, key=lambda mark: widths[mark])
        widths[widest] -= 1 if over > 0 else -1
    return f"[{''.join(mark * widths[mark] for mark, _ in parts)}]"


def why_of(row: JobRow) -> str:
    """Return in a word or two what matters about a job in its state."""
    if row.counts:
        return f"{bar(row.counts)} {in_states(row.counts)}"
    if row.unheard:
        return not_heard(row.unheard)
    if row.reason == "holding":
        return "failed, kept for a look"
    if row.reason:
        return plain(row.reason)
    return borrows(row.borrowed) if row.borrowed else ""
