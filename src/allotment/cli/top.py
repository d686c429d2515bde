"""`allot top`: what running tasks use now."""

import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated

import typer

from allotment.cli.options import AsJson, State
from allotment.cli.output import say, say_json
from allotment.cli.table import Column, print_table
from allotment.cli.watching import Every, watch
from allotment.cli.words import NOTHING_THERE, count, harmless, show_span
from allotment.client import Client
from allotment.model.quantity import show_bytes, show_milli
from allotment.service.gain_words import times
from allotment.service.live_view import LiveTask
from allotment.service.views import JobRow

COLUMNS = (
    Column("JOB", right=True),
    Column("NAME", flexible=True),
    Column("TASK"),
    Column("USER", rank=6),
    Column("TENANT", rank=7),
    Column("NODE", rank=8),
    Column("CPU", right=True),
    Column("MEMORY", right=True),
    Column("GPU", right=True),
    Column("GPU MEM", rank=4, right=True),
    Column("STEP", rank=3, right=True),
    Column("STEPS/H", rank=2, right=True),
    Column("LEFT", rank=1, right=True),
    Column("RAN", rank=5, right=True),
)
TURN = Column("TURN", rank=1, right=True)
GAIN = Column("GAIN", rank=1, right=True)


class By(StrEnum):
    """What comes first."""

    CPU = "cpu"
    MEMORY = "memory"
    GPU = "gpu"
    JOB = "job"


def top(  # noqa: PLR0913 - one argument an option
    jobs: Annotated[
        list[int] | None, typer.Argument(metavar="JOB", help="Only these, by id.")
    ] = None,
    *,
    by: Annotated[By, typer.Option(help="Sort by this.")] = By.CPU,
    mine: Annotated[bool, typer.Option("--mine", "-m", help="Only my own.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Show it once, and end.")] = False,
    every: Every = 2.0,
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Show what running tasks use now: CPU, memory, devices, steps, time left.

    CPU and MEMORY are used/allowed. GPU is how busy the devices of the task are, if their
    driver says so. STEP, STEPS/H and LEFT are the progress that the job reports; without it
    STEP and STEPS/H come from its checkpoints. If jobs take turns, TURN is the rest of a job's
    turn, or `over` when other jobs may have theirs. GAIN is the speed of a job against its
    speed before it moved or grew; for a job that runs beside another, the speed of both
    together against their turns. Below, suspended jobs are listed. The page is refreshed every
    2 s until Ctrl-C; a file gets it once.

    Examples:
      allot top
      allot top --mine --by memory
      allot top --once --json
    """
    with Client(state=state) as client:
        if as_json:
            say_json(_chosen(client.live_use(), jobs, mine=mine))
            return

        def draw() -> None:
            _draw(_chosen(client.live_use(), jobs, mine=mine), by)
            _say_suspended(client.jobs(refs=jobs or (), states=["suspended"], mine=mine))

        if once:
            draw()
        else:
            watch(draw, every)


def _chosen(
    tasks: Sequence[LiveTask], jobs: Sequence[int] | None, *, mine: bool
) -> list[LiveTask]:
    import getpass  # noqa: PLC0415 - rarely needed

    user = getpass.getuser() if mine else ""
    return [
        task
        for task in tasks
        if (not jobs or task.job in jobs) and (not user or task.user == user)
    ]


FIRST: dict[By, Callable[[LiveTask], int]] = {
    By.CPU: lambda task: -task.cpu_milli,
    By.MEMORY: lambda task: -task.memory,
    By.GPU: lambda task: -sum(device.busy_milli for device in task.devices),
    By.JOB: lambda task: 0,
}


def _draw(tasks: Sequence[LiveTask], by: By) -> None:
    cpus = show_milli(_tenths(sum(task.cpu_milli for task in tasks)))
    memory = show_bytes(sum(task.memory for task in tasks))
    clock = time.strftime("%H:%M:%S")
    say(
        f"{clock}  {count(len(tasks), 'task')} running: {cpus} CPUs at work, {memory} in memory"
    )
    ordered = sorted(tasks, key=lambda task: (FIRST[by](task), task.job, task.task))
    columns, rows = list(COLUMNS), [list(as_row(task)) for task in ordered]
    for column, cell in ((TURN, _turn), (GAIN, _gain)):
        cells = [cell(task) for task in ordered]
        if any(cells):
            columns.append(column)
            for row, text in zip(rows, cells, strict=True):
                row.append(text or NOTHING_THERE)
    if tasks:
        print_table(columns, rows)


def _say_suspended(jobs: Sequence[JobRow]) -> None:
    """Name the jobs that use nothing now, and go on where they were."""
    if jobs:
        named = ", ".join(f"{job.id} {harmless(job.name)}" for job in reversed(jobs))
        say(f"{count(len(jobs), 'job')} suspended: {named} (allot why JOB)")


def as_row(task: LiveTask) -> tuple[str, ...]:
    """Return the cells of one task's row."""
    allowed = task.may_use
    return (
        str(task.job),
        task.name,
        task.task,
        task.user,
        task.tenant,
        task.node,
        f"{show_milli(_tenths(task.cpu_milli))}/{show_milli(allowed.cpu_milli)}",
        f"{_short(task.memory)}/{_short(allowed.memory)}",
        _busy(task),
        _device_memory(task),
        _step(task),
        NOTHING_THERE if task.steps_per_hour is None else f"{task.steps_per_hour:,}",
        NOTHING_THERE if task.left_ms is None else show_span(task.left_ms),
        show_span(task.ran_ms),
    )


def _turn(task: LiveTask) -> str:
    if task.turn_left_ms is None:
        return ""
    return show_span(task.turn_left_ms) if task.turn_left_ms else "over"


def _gain(task: LiveTask) -> str:
    return "" if task.gain_milli is None else times(task.gain_milli)


def _step(task: LiveTask) -> str:
    if not task.step:
        return NOTHING_THERE
    return f"{task.step}/{task.total}" if task.total else str(task.step)


def _busy(task: LiveTask) -> str:
    if not task.devices:
        return NOTHING_THERE
    return f"{sum(device.busy_milli for device in task.devices) // (10 * len(task.devices))} %"


def _device_memory(task: LiveTask) -> str:
    if not task.devices:
        return NOTHING_THERE
    return _short(sum(device.memory for device in task.devices))


def _tenths(milli: int) -> int:
    """Round to tenths of a whole: more is noise."""
    return round(milli, -2)


def _short(amount: int) -> str:
    return show_bytes(amount).replace(" ", "").replace(".0", "")
