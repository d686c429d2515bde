"""What a person sees: captions and events that scroll by, and below them a live table.

Where there is no terminal the table is left out and the lines stay the same.
"""

import time
from itertools import groupby
from textwrap import fill, indent

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from allotment.demo.cast import NAMES, PROCESSES, STEPS, in_short, team_of
from allotment.demo.facts import Fact
from allotment.demo.setting import PLACES, TEAMS
from allotment.demo.watch import Watch
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.service.views import JobRow

COLOURS: dict[str, str] = dict(zip(TEAMS, ("cyan", "magenta", "yellow"), strict=True))
STATES = {
    JobState.QUEUED: "dim",
    JobState.RUNNING: "green",
    JobState.STOPPING: "bold red",
    JobState.SUCCEEDED: "bold green",
    JobState.FAILED: "bold red",
}
TOLD = (
    e.JobSubmitted, e.AttemptPlaced, e.BarrierOpened, e.Reserved, e.StopRequested,
    e.AttemptEnded, e.JobRequeued, e.AttemptPromoted, e.JobSucceeded, e.JobFailed,
    e.JobCancelled, e.JobTimedOut,
)  # fmt: skip
"""Events worth a line; the others are in `allot events`."""

WIDTH = 100
MARGIN = 10
"""As wide as the time before each event."""
BAR = 12


class Screen:
    """Prints the story. A context: the live table stands while it is open."""

    def __init__(self, console: Console, watch: Watch) -> None:
        self._console = console
        self._watch = watch
        self._began = int(time.time() * 1000)
        self._live = Live(
            get_renderable=self._table,
            console=console,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> "Screen":
        self._watch.on_look = self._tell
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def act(self, title: str, text: str) -> None:
        """Begin a part of the story: what is happening, and why."""
        self._console.print()
        self._print(Text(title, "bold"))
        self.remark(text)

    def remark(self, text: str) -> None:
        """Report something about what is to be seen."""
        self._print(Text(fill(text, self._width)))

    def answer(self, command: str, lines: list[str]) -> None:
        """Show what a command says, as a person would see it."""
        self._print(Text(f"{'':{MARGIN}}$ {command}", "bold"))
        for line in lines:
            self._print(Text(indent(fill(line, self._width - MARGIN), " " * MARGIN), "italic"))

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)

    @property
    def _width(self) -> int:
        return min(WIDTH, self._console.width)

    def _tell(self, new: list[Fact]) -> None:
        for fact in new:
            if fact.job is not None and self._is_told(fact, fact.job):
                self._print(self._line(fact, fact.job))

    def _is_told(self, fact: Fact, job: JobId) -> bool:
        """Leave out what is only routine: a checkpoint counts once its job was warned."""
        name = self._watch.facts.names.get(job, "")
        if not isinstance(fact.event, e.CheckpointSaved):
            return name in NAMES and isinstance(fact.event, TOLD)
        return bool(self._watch.facts.of(e.StopRequested, name, fact.event.attempt))

    def _line(self, fact: Fact, job: JobId) -> Text:
        name = self._watch.facts.names.get(job, f"job {job}")
        at = (fact.at - self._began) / 1000
        return Text.assemble(
            (f"{at:6.1f} s  ", "dim"),
            (f"{name:<14}", COLOURS.get(team_of(name), "")),
            self._words(fact, name),
        )

    def _words(self, fact: Fact, name: str) -> str:
        """Return it as the service does, but call jobs by their names."""
        match fact.event:
            case e.JobSubmitted():
                return f"is submitted: {in_short(name)}"
            case e.CheckpointSaved():
                return fact.text.rpartition(": ")[0]  # its path is long, and in the log
            case _:
                words = fact.text
        for other, known in self._watch.facts.names.items():
            words = words.replace(f"job {other}", known)
        return words

    # ── the table ───────────────────────────────────────────────────────────────────────

    def _table(self) -> Group:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in ("JOB", "STATE", "RANKS", "PLACES", "TRAINING", "TRY", "WHY"):
            table.add_column(heading, no_wrap=True)
        for name in NAMES:
            row = self._watch.rows.get(name)
            if row is not None:
                table.add_row(*self._cells(name, row))
        return Group(Text(), self._devices(), table)

    def _cells(self, name: str, row: JobRow) -> tuple[Text, ...]:
        grounds = row.entitlement.value if row.entitlement else ""
        words = {"guaranteed": "its own", "opportunistic": "borrowed"}
        return (
            Text(name, COLOURS[team_of(name)]),
            Text(row.state.value, STATES.get(row.state, "")),
            Text(str(PROCESSES[name])),
            Text(words.get(grounds, "")),
            self._progress(name, row),
            Text(str(row.attempt or "")),
            Text(row.reason.replace("_", " "), "dim"),
        )

    def _progress(self, name: str, row: JobRow) -> Text:
        step = self._watch.steps.get(name)
        if row.state is JobState.SUCCEEDED:
            return Text("█" * BAR + f" {STEPS[name]}/{STEPS[name]}", "green")
        if step is None:
            return Text()
        done = BAR * step.done // step.of
        bar = "█" * done + "░" * (BAR - done)
        running = row.state is JobState.RUNNING
        return Text(
            f"{bar} {step.done}/{step.of}  {step.accuracy:.0%} right", "" if running else "dim"
        )

    def _devices(self) -> Text:
        """Who has which device now, neighbours with the same holders together."""
        line = Text("GPU ", "dim")
        for jobs, devices in groupby(self._watch.devices, lambda device: device.jobs):
            names = [self._watch.facts.names.get(job, "?") for job in jobs] or ["idle"]
            line.append(" ".join(str(device.index) for device in devices) + " ", "dim")
            for name in names:
                line.append(f"{name} ", COLOURS.get(team_of(name), "dim"))
            line.append(" ")
        return line


def plain_or_live() -> Console:
    """Make the console: colours and a live table only on a terminal."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    return console


assert PLACES == 6, "the story is told for six places"
