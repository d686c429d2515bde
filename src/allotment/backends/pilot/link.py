"""The service's end of a connection to the agent of a node."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from allotment.backends.pilot.messages import (
    Answer,
    Call,
    Fault,
    FromAgent,
    HealthNews,
    Hello,
    Op,
    Ping,
    TaskNews,
    framed,
    next_frame,
    unpacked,
)
from allotment.model.errors import BackendError, EngineAway
from allotment.model.health import HealthReport
from allotment.model.reports import TaskReport

ANSWER_S = 40.0
"""Longer than the launcher of the node may take to answer its agent."""
PING_EVERY_S = 10.0

T = TypeVar("T")
_decoder = msgspec.msgpack.Decoder[FromAgent](FromAgent)
MOST_WORDS = 2000
"""Of what a runner says for a reason."""


class Link:
    """Asks, and hears. Lives from the welcome to the end of the connection."""

    def __init__(
        self,
        hello: Hello,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        hear: Callable[[TaskReport | HealthReport], None],
    ) -> None:
        self.hello = hello
        self._reader = reader
        self._writer = writer
        self._hear = hear
        self._next = 0
        self._open: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._is_over = False

    @property
    def is_on_this_machine(self) -> bool:
        """Whether its node is this machine: it has the address that it dialled."""
        ours = self._writer.get_extra_info("sockname")
        theirs = self._writer.get_extra_info("peername")
        return bool(ours and theirs) and ours[0] == theirs[0]

    async def call(self, op: Op, kind: type[T] | Any = None, longer_s: float = 0) -> T:
        """Return the result of a call, as `kind`; it may take longer than others by so much.

        Raises BackendError where it is refused, and EngineAway where no answer comes: then it
        is unknown whether it was carried out.
        """
        if self._is_over:
            raise self._away("hung up")  # What is written now goes nowhere, without a word.
        self._next += 1
        number = self._next
        answer = asyncio.get_running_loop().create_future()
        self._open[number] = answer
        try:
            self._writer.write(framed(Call(number, op)))
            async with asyncio.timeout(ANSWER_S + longer_s):
                raw = await answer
        except TimeoutError:
            self.hang_up()
            raise self._away("does not answer") from None
        except OSError as error:
            raise self._away(str(error)) from error
        finally:
            self._open.pop(number, None)
        try:
            return unpacked(raw, kind)
        except ValueError:
            raise self.distrusted("answers something that cannot be read") from None

    async def listen(self) -> None:
        """Read the agent's messages until it is gone. Never raises for what it sends."""
        pinging = asyncio.create_task(self._ping())
        try:
            while True:
                self._take(_decoder.decode(await next_frame(self._reader)))
        except (OSError, EOFError, ValueError, RecursionError):
            return  # It dials again.
        finally:
            pinging.cancel()
            self.hang_up()

    def _take(self, message: FromAgent) -> None:
        match message:
            case Answer(id, result):
                if (answer := self._open.get(id)) is not None and not answer.done():
                    answer.set_result(result)
            case Fault(id, why):
                if (answer := self._open.get(id)) is not None and not answer.done():
                    answer.set_exception(BackendError(why[:MOST_WORDS]))
            case TaskNews(report) | HealthNews(report):
                self._hear(report)
            case Hello():
                raise ValueError("a second hello")

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_EVERY_S)
            with contextlib.suppress(BackendError):
                await self.call(Ping())

    def hang_up(self) -> None:
        """Close the connection: `listen` ends, and nothing waits for an answer any more."""
        self._is_over = True
        self._writer.transport.abort()  # One that is silent would not take part in an end.
        for answer in self._open.values():
            if not answer.done():
                answer.set_exception(self._away("hung up"))

    def distrusted(self, how: str) -> EngineAway:
        """Hang up on a runner that says what cannot be; return the error to raise."""
        self.hang_up()
        return self._away(how)

    def _away(self, how: str) -> EngineAway:
        return EngineAway(f"the runner of node {self.hello.node} {how}")
