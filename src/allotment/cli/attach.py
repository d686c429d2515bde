"""Stays with a job until it has finished: its output, attempt after attempt, and its story.

Ctrl-C leaves the job alone and says how to come back.
"""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import cast

import typer

from allotment.cli.logprint import LogPrinter
from allotment.cli.output import talk
from allotment.cli.words import harmless, plain
from allotment.client import ApiError, Client
from allotment.service.views import EventView, JobView

TOLD = frozenset({
    "Reserved", "AttemptPlaced", "AttemptSuspended", "AttemptResumed", "StopRequested",
    "JobRequeued", "JobHeld", "JobReleased", "AttemptPromoted", "TaskHeld",
})  # fmt: skip
"""Events worth a line to somebody who watches a job's output."""

PATIENCE_S = 1.0
"""A job that has no place after so long is asked why."""

DETACHED = 130


class Attached:
    """One watched job. `tell` gets lines of talk; it may drop them."""

    def __init__(
        self,
        client: Client,
        job: JobView,
        tell: Callable[[str], None],
        *,
        as_json: bool = False,
        raw: bool = False,
    ) -> None:
        self._client = client
        self._job = job
        self._tell = tell
        self._as_json = as_json
        self._raw = raw
        self._after = 0
        self._reason = ""

    def until_the_end(self, shown: int = 0) -> JobView:
        """Print the output of every attempt after the one numbered `shown`; return the job.

        Events from before the call are not printed.
        """
        silent = shown > 0
        while (attempt := self._next_attempt(shown, silent=silent)) is not None:
            self._print(attempt)
            shown, silent = attempt, False
        return self._client.wait(self._job.id)

    def _next_attempt(self, shown: int, *, silent: bool) -> int | None:
        """Wait for an attempt to get its place; None when the job has finished instead."""
        with self._asking_why():
            for event in self._client.events(self._job.id, after=self._after, follow=True):
                self._after = event.seq
                if not silent:
                    self._narrate(event)
                if event.kind == "AttemptPlaced" and _attempt(event) > shown:
                    return _attempt(event)
        return None

    def _narrate(self, event: EventView) -> None:
        if event.kind == "AttemptEnded":
            self._reason = _reason(event.detail.get("diagnosis"))
        if event.kind in TOLD:
            reason = self._reason if event.kind == "JobRequeued" else ""
            self._tell(f"job {self._job.id}: {event.text}{reason}")

    @contextmanager
    def _asking_why(self) -> Generator[None]:
        """Return why the job waits, if it does for long."""

        def ask() -> None:
            try:
                why = self._client.why(self._job.id)
            except ApiError:
                return  # whoever reads the events meets it too, and tells
            if why is not None:
                self._tell(f"job {self._job.id} waits: {plain(why.reason)}. {why.message}")

        timer = threading.Timer(PATIENCE_S, ask)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _print(self, attempt: int) -> None:
        job = self._client.job(self._job.id)
        names = tuple(task.name for task in job.attempts[attempt - 1].tasks)
        printer = LogPrinter(
            names if len(names) > 1 else (), as_json=self._as_json, raw=self._raw
        )
        try:
            for piece in self._client.logs(self._job.id, attempt=attempt, follow=True):
                printer.write(piece)
        finally:
            printer.finish()


def _reason(diagnosis: object) -> str:
    """Return what to add to the news that a job is queued again: why its attempt failed."""
    if not isinstance(diagnosis, dict):
        return ""
    found = cast("dict[str, object]", diagnosis)
    return f"\n  {harmless(str(found.get('evidence') or found.get('cause') or ''))}"


def _attempt(event: EventView) -> int:
    number = event.detail.get("attempt", 0)
    return number if isinstance(number, int) else 0


@contextmanager
def detachable(job: int) -> Generator[None]:
    """Leave the job alone on Ctrl-C: print how to come back, and end with 130."""
    try:
        yield
    except KeyboardInterrupt:
        talk("")
        talk(f"Detached; job {job} continues.")
        talk(f"Come back: allot logs -f {job}    End it: allot cancel {job}")
        raise typer.Exit(DETACHED) from None
