"""A bar that is redrawn in its place: what, how much, how fast, and the time that is left."""

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from allotment.cli.words import harmless
from allotment.client.step import Step, Tell
from allotment.model.quantity import show_bytes

_WIDE = 80
"""Columns of a terminal that has room for all; a narrower one has no bar and no rate."""


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{show_bytes(int(task.speed))}/s" if task.speed else "")


@contextmanager
def a_bar() -> Generator[Tell]:
    """Show the present step; nothing of it stays."""
    console = Console(stderr=True)
    part = TextColumn("{task.fields[part]}", markup=False)
    what = TextColumn("{task.description}", markup=False)
    all_of_it = (what, BarColumn(), part, _Rate(), TimeRemainingColumn())
    columns = all_of_it if console.width >= _WIDE else (what, part)
    with Progress(*columns, console=console, transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def tell(step: Step) -> None:
            what, part = harmless(step.what), harmless(step.part or step.more)
            if what not in tasks:
                for each in tasks.values():
                    bar.remove_task(each)
                tasks.clear()
                tasks[what] = bar.add_task(what, total=step.total or None, part=part)
            bar.update(
                tasks[what],
                completed=step.done,
                total=step.total or None,
                part=part,
            )

        yield tell
