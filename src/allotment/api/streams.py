"""Answers that go on: server-sent events and files, which end when their reader goes away."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from allotment.api.body import Gone
from allotment.api.fair_use import FairUse
from allotment.model.ids import Actor

T = TypeVar("T")
HEARTBEAT_S = 15.0
HEARTBEAT = b":\n\n"
SSE = "text/event-stream"
SSE_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def event(data: bytes, *, kind: str = "", id_: str = "") -> bytes:
    """Return one server-sent event as bytes. `data` is one line, as our JSON is."""
    head = f"event: {kind}\n" if kind else ""
    place = f"id: {id_}\n" if id_ else ""
    return b"".join((place.encode(), head.encode(), b"data: ", data, b"\n\n"))


class Pieces(Protocol):
    """What a stream is made of. An async generator is one."""

    def __anext__(self) -> Awaitable[bytes]: ...

    def aclose(self) -> Awaitable[None]: ...


class Stream(Response):
    """Sends pieces as they come, until there are no more, the reader goes or we stop.

    The source is closed in each case: nothing works on for a reader that is gone. With
    `heartbeat` a silence is filled, so that both sides notice a dead connection.
    """

    def __init__(
        self,
        source: Pieces,
        stopping: asyncio.Event,
        *,
        heartbeat: bytes = b"",
        media_type: str = SSE,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(media_type=media_type, headers=headers or SSE_HEADERS)
        if not headers or "Content-Length" not in headers:
            del self.headers["content-length"]
        self._source = source
        self._stopping = stopping
        self._heartbeat = heartbeat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        gone = asyncio.ensure_future(_until_gone(receive))
        halt = asyncio.ensure_future(_until_set(self._stopping))
        fair_use: FairUse = scope["app"].state.fair_use
        try:
            async with aclosing(self._source):
                with fair_use.hold("streams", scope["state"]["actor"]):
                    scope["state"]["end_turn"]()  # from here on it is counted as a stream
                    await send(start)
                    async for piece in self._pieces(gone, halt):
                        await send(
                            {"type": "http.response.body", "body": piece, "more_body": True}
                        )
            if not gone.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            halt.cancel()

    async def _pieces(
        self, gone: "asyncio.Future[None]", halt: "asyncio.Future[None]"
    ) -> AsyncIterator[bytes]:
        """Return pieces and heartbeats, up to whichever end comes first."""
        patience = HEARTBEAT_S if self._heartbeat else None
        step: asyncio.Task[bytes | None] | None = None
        try:
            while True:
                step = step or asyncio.ensure_future(_next(self._source))
                waited = {step, gone, halt}
                await asyncio.wait(
                    waited, timeout=patience, return_when=asyncio.FIRST_COMPLETED
                )
                if gone.done() or halt.done():
                    return
                if not step.done():
                    yield self._heartbeat
                    continue
                piece = step.result()
                if piece is None:
                    return
                step = None
                yield piece
        finally:
            if step is not None:
                step.cancel()
                await asyncio.wait({step})


async def while_there(
    work: Coroutine[Any, Any, T], receive: Receive, stopping: asyncio.Event
) -> T:
    """Return the result of some work; cancel the work and raise Gone when the client leaves."""
    doing = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_until_gone(receive))
    halt = asyncio.ensure_future(_until_set(stopping))
    try:
        await asyncio.wait({doing, gone, halt}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise Gone
        return doing.result()
    finally:
        for each in (doing, gone, halt):
            each.cancel()
        await asyncio.gather(doing, gone, halt, return_exceptions=True)


async def at_length(request: Request, kind: str, work: Callable[[], Awaitable[T]]) -> T:
    """Do long work of a kind when it is the user's turn; cancel it when the client leaves."""
    state = request.app.state
    actor: Actor = request.scope["state"]["actor"]
    doing = state.fair_use.in_turn(kind, actor, work)
    return await while_there(doing, request.receive, state.stopping)


async def _next(source: Pieces) -> bytes | None:
    try:
        return await source.__anext__()
    except StopAsyncIteration:
        return None


async def _until_set(event: asyncio.Event) -> None:
    await event.wait()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
