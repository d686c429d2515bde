"""Follows the service while the story is told: events, rows, devices, training steps."""

import re
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from allotment.client import Client
from allotment.demo.cast import NAMES
from allotment.demo.facts import Fact, Facts
from allotment.model import events as e
from allotment.model.lifecycle import JobState
from allotment.service.views import DeviceView, JobRow

LOOK_S = 0.25
STEPS_EVERY_S = 0.7
TAIL_BYTES = 400
ENDS: tuple[type[e.JobEvent], ...] = (
    e.JobSucceeded, e.JobFailed, e.JobCancelled, e.JobTimedOut,
)  # fmt: skip
STEP = re.compile(r"step (\d+)/(\d+)  loss \S+  accuracy (\S+)")


class Step(msgspec.Struct, frozen=True):
    """How far a job's training is."""

    done: int
    of: int
    accuracy: float


class Stuck(Exception):
    """What the story waits for does not happen."""


class Watch:
    """The service as last seen. `on_look` is told what is new, after every look."""

    def __init__(self, client: Client, deadline: float) -> None:
        self._client = client
        self._deadline = deadline
        self._steps_at = 0.0
        self.facts = Facts()
        self.rows: Mapping[str, JobRow] = {}
        self.devices: tuple[DeviceView, ...] = ()
        self.steps: dict[str, Step] = {}
        self.on_look: Callable[[list[Fact]], None] = lambda _: None

    def look(self) -> None:
        """Ask for everything once."""
        rows = self._client.jobs(limit=len(NAMES))
        new = self.facts.take(self._client.events(after=self.facts.last))
        self._believe(rows)
        self.devices = tuple(d for node in self._client.nodes() for d in node.devices)
        if time.monotonic() - self._steps_at > STEPS_EVERY_S:
            self._look_at_steps()
        self.on_look(new)

    def _believe(self, rows: Iterable[JobRow]) -> None:
        """Take rows in; one that says its job is over only with the event that says so.

        A row shows what is, an event what is on disk: on a busy one that is later, and what is
        shown at the end rests on events.
        """
        seen = {row.name: row for row in sorted(rows, key=lambda row: row.id)}
        early = {
            name
            for name, row in seen.items()
            if row.state.finished
            and not any(self.facts.first(kind, name) is not None for kind in ENDS)
        }
        self.rows = {name: row for name, row in seen.items() if name not in early} | {
            name: self.rows[name] for name in early if name in self.rows
        }

    def _look_at_steps(self) -> None:
        """Read how far training is off the end of each running job's output."""
        self._steps_at = time.monotonic()
        for name, row in self.rows.items():
            if row.state is not JobState.RUNNING:
                continue
            lines = self._client.logs(row.id, task="0", stream="stdout", tail=TAIL_BYTES)
            found = STEP.findall("".join(line.text for line in lines))
            if found:
                done, of, accuracy = found[-1]
                self.steps[name] = Step(int(done), int(of), float(accuracy))

    def until(self, what: str, happened: Callable[[], bool], seconds: float) -> None:
        """Look until it happened. Raises Stuck when it does not in time."""
        deadline = min(time.monotonic() + seconds, self._deadline)
        self.look()
        while not happened():
            if time.monotonic() > deadline:
                raise Stuck(f"{what} did not happen within {seconds:g} s. {self._how_it_is()}")
            time.sleep(LOOK_S)
            self.look()

    def pause(self, seconds: float) -> None:
        """Let a person read."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(LOOK_S)
            self.look()

    def state(self, name: str) -> JobState | None:
        row = self.rows.get(name)
        return row.state if row else None

    def _how_it_is(self) -> str:
        each = (f"{row.name} is {row.state.value} {row.reason}" for row in self.rows.values())
        return "Now " + ", ".join(words.strip() for words in each) + "."
