"""What the verbs of `allot sim` share: options, how misuse is told, how far a run is."""

import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from allotment.cli.output import BadFile, Failed
from allotment.model.errors import BadInput
from allotment.sim.bad import BadScenario

LONG = 20_000
"""Jobs to be played from which on it is worth while to show how far it is."""

POLICIES = ", ".join((
    "fifo", "backfill", "easy", "conservative", "priority", "sjf", "srtf", "srsf", "las",
    "las2d", "ftf", "maxmin", "gavel", "round_robin", "gandiva", "gavel-pack",
))  # fmt: skip
SETTINGS = """\b
Settings (KEY=VALUE; lengths as 30s, 6min, 2d), see docs/guide/simulate.md:
  placement      within, prefer, tasks, placing, types, migrate
  growth         grow, grow_to, scaling
  job order      priorities, order, turns, round, lead, queues, first, promote
  run times      estimates, noise
  preemption     eviction, warned, start, resume, switch, stop, checkpoint
  speed          across_nodes, across_switches, across_racks, interference
  failures       mtbf, mttr, job_failure, retries
"""
"""Written out: `--help` shall not wait for a world of policies to be loaded."""

# Names of files are texts here: Typer converts paths with pydantic, which takes longer to
# import than a small trace to play.
TraceFile = Annotated[
    str,
    typer.Option(
        "--trace", metavar="FILE", help="A trace, plain, .gz or .zst, in any known format."
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format", metavar="NAME", help="Its format, if the first line does not show it."
    ),
]
Rates = Annotated[
    str,
    typer.Option(
        "--throughputs",
        metavar="FILE",
        help="Speeds by device type and model, in Gavel's form; its traces need them.",
    ),
]
ClusterText = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="16x8|FILE",
        help="16 nodes of 8 devices; 4x8xA100+2x4xV100; or a file. A device brings 16 CPU and "
        "128 GiB, unless a file sets other amounts.",
    ),
]
PolicyName = Annotated[
    str,
    typer.Option("--policy", metavar="NAME|FILE.py", help=f"One of {POLICIES}; or your own."),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A setting, such as round=10min; any number of them. `allot sim run --help` "
        "lists them.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed", metavar="N", help="The random seed: the same number gives the same run."
    ),
]
Report = Annotated[
    str,
    typer.Option(
        "--report", metavar="FILE.html", help="Write a report with pictures: one file."
    ),
]
JobsOut = Annotated[
    str, typer.Option("--jobs-out", metavar="FILE.csv", help="Write a row for each job.")
]


Workers = Annotated[
    int, typer.Option("--workers", metavar="N", help="Processes; 0: one for each CPU.")
]


class Misused(Failed):
    """A verb was called with values that cannot be used."""

    exit_code = 2


@contextmanager
def told_as_misuse() -> Generator[None]:
    """Report a scenario that cannot be as of a wrong call."""
    try:
        yield
    except BadScenario as error:
        raise Misused(str(error)) from error
    except BadInput as error:
        raise BadFile(error.problems, error.source) from error


def processes(workers: int) -> int:
    """Return how many processes `--workers` stands for. Raises Misused."""
    if workers < 0:
        raise Misused("--workers: it cannot be negative.", "Write 0 for one for each CPU.")
    return workers or len(os.sched_getaffinity(0))


@contextmanager
def progress(total: int) -> Generator[Callable[[int, int], None]]:
    """Show how far a long run is, on a terminal."""
    with progresses(["jobs"], total) as told:
        yield lambda come, _all: told(0, come)


@contextmanager
def progresses(names: Sequence[str], total: int) -> Generator[Callable[[int, int], None]]:
    """Show how far each of several runs is, on a terminal, if together they are long.

    Told the place of a run, and how many of its `total` jobs have come.
    """
    if not sys.stderr.isatty() or total * len(names) < LONG:
        yield lambda _place, _come: None
        return
    from rich.console import Console  # noqa: PLC0415 - only for long runs
    from rich.progress import Progress  # noqa: PLC0415

    # Drawn when told, not by a thread: processes are forked meanwhile.
    with Progress(console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        tasks = [bar.add_task(name, total=total) for name in names]
        yield lambda place, come: bar.update(tasks[place], completed=come, refresh=True)
