"""Streams that outlive a restart of the service.

A stream is server-sent events. It ends for good with an `end` event, or when the service
says on asking that nothing more will come. Any other end is a service that stopped or a
connection that broke: the stream is opened again, after the last event that was seen.
"""

import contextlib
import time
from collections.abc import Callable, Generator, Iterator

import msgspec

from allotment.client.errors import Unreachable
from allotment.client.transport import LOST, Reply, lost

PATIENCE_S = 60.0
"""How long a service may be away before a stream is given up. A restart takes two seconds."""

SILENCE_S = 45.0
"""A stream without even a heartbeat for so long is dead; heartbeats come every 15 seconds."""

FIRST_PAUSE_S, MOST_PAUSE_S = 0.05, 2.0


class ServerEvent(msgspec.Struct, frozen=True):
    """One event of a stream."""

    id: str
    event: str
    data: str


class LogLine(msgspec.Struct, frozen=True):
    """A piece of a task's output, as it came: part of a line, or several lines."""

    task: str
    """`role.number`."""
    stream: str
    """stdout or stderr."""
    text: str


class Patience:
    """How long to try again, and how long to wait in all.

    `deadline` is a moment of `time.monotonic`; past it TimeoutError is raised.
    """

    def __init__(self, patience_s: float = PATIENCE_S, deadline: float | None = None) -> None:
        self._patience = patience_s
        self._deadline = deadline
        self._away_since: float | None = None
        self._pause = FIRST_PAUSE_S

    def silence(self) -> float:
        """Return how long the next read may take, in seconds."""
        return SILENCE_S if self._deadline is None else min(SILENCE_S, self._left())

    def answered(self) -> None:
        """Note that the service answered."""
        self._away_since, self._pause = None, FIRST_PAUSE_S

    def lost(self, error: Unreachable) -> None:
        """Pause before the next try, or raise: the error, or TimeoutError past the deadline."""
        now = time.monotonic()
        self._away_since = self._away_since if self._away_since is not None else now
        if now - self._away_since > self._patience:
            raise error
        self.pause()

    def pause(self) -> None:
        """Wait a little longer than last time. Raises TimeoutError past the deadline."""
        pause = self._pause if self._deadline is None else min(self._pause, self._left())
        time.sleep(pause)
        self._pause = min(self._pause * 2, MOST_PAUSE_S)

    def _left(self) -> float:
        assert self._deadline is not None
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def follow(
    open_after: Callable[[str], Reply], over: Callable[[], bool], patience: Patience
) -> Iterator[ServerEvent]:
    """Return the events of a stream, through restarts of the service, each once.

    `open_after` opens it after the event with that id, from its beginning for "". `over`
    tells whether nothing more will come. Raises Unreachable when the service stays away.
    """
    last = ""
    while True:
        try:
            with contextlib.closing(events_of(open_after(last), patience)) as events:
                for event in events:
                    patience.answered()
                    last = event.id or last
                    if event.event == "end":
                        return
                    yield event
            if over():
                return
            patience.pause()
        except Unreachable as error:
            patience.lost(error)


def events_of(reply: Reply, patience: Patience) -> Generator[ServerEvent]:
    """Read server-sent events until the stream ends; closes it. Raises Unreachable."""
    try:
        parts: dict[str, str] = {}
        while line := _line(reply, patience):
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            if text:
                _take(parts, text)
            elif parts:
                yield ServerEvent(
                    parts.get("id", ""), parts.get("event", "message"), parts.get("data", "")
                )
                parts = {}
    finally:
        reply.close()


def _take(parts: dict[str, str], text: str) -> None:
    """Add one line of an event. A line that starts with a colon is a heartbeat."""
    field, _, value = text.partition(":")
    value = value.removeprefix(" ")
    if field == "data" and "data" in parts:
        value = f"{parts['data']}\n{value}"
    if field in ("id", "event", "data"):
        parts[field] = value


def _line(reply: Reply, patience: Patience) -> bytes:
    reply.wait_at_most(patience.silence())
    try:
        return reply.response.readline()
    except TimeoutError as error:
        patience.silence()  # raises when it is the caller's time that is over
        raise lost(error) from error
    except LOST as error:
        raise lost(error) from error
