"""Files as one stream, each whole or not there: POST /v1/code:send and /v1/data/…:send.

Plain ASGI applications, as the body is far larger than any other and never in memory.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from allotment.api.body import Gone
from allotment.api.render import ENCODER, JSON
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor
from allotment.service.code.view import CodeTaken
from allotment.service.content.receiving import Receiving
from allotment.service.data.view import DataTaken
from allotment.service.service import Service

PATIENCE_S: Final = 60.0
"""How long the next piece may take to come."""
PIECE: Final = 2 << 20
"""So much is written at a time, while the next comes."""

Feed = Callable[[Sequence[bytes]], Awaitable[None]]


class SendCode:
    """The endpoint for code."""

    path = "/v1/code:send"

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self
        actor: Actor = scope["state"]["actor"]
        code = self._service.code
        receiving = code.receiving(actor)
        await _take(receiving, partial(code.feed, receiving, actor=actor), receive)
        told = ENCODER.encode(CodeTaken(receiving.files))
        await Response(told, 200, media_type=JSON)(scope, receive, send)


class SendData:
    """The endpoint for the files of datasets."""

    path = "/v1/data/{tenant}/{name}:send"

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self
        actor: Actor = scope["state"]["actor"]
        datasets = self._service.datasets
        named = named_in(**scope["path_params"])
        receiving = await datasets.receiving(named, actor)
        await _take(receiving, partial(datasets.feed, receiving, actor=actor), receive)
        told = ENCODER.encode(DataTaken(tuple(receiving.digests)))
        await Response(told, 200, media_type=JSON)(scope, receive, send)


def named_in(tenant: str, name: str) -> str:
    """Return the dataset that a path means: `-` stands for whichever tenant."""
    return name if tenant == "-" else f"{tenant}/{name}"


async def _take(receiving: Receiving, feed: Feed, receive: Receive) -> None:
    """Take all files. Raises Rejected, and Gone when the client leaves in the middle."""
    writing: asyncio.Task[None] | None = None
    try:
        held: list[bytes] = []
        size, is_more = 0, True
        while is_more:
            data, is_more = await _next(receive)
            held.append(data)
            size += len(data)
            if size < PIECE and is_more:
                continue
            if writing is not None:
                await writing
            writing = asyncio.create_task(_feed(feed, held))
            held, size = [], 0
        if writing is not None:
            await writing
    finally:
        if writing is not None:
            await asyncio.wait([writing])
        await asyncio.to_thread(receiving.close)
    if not receiving.is_whole:
        raise Rejected(
            Code.BAD_REQUEST,
            "The files ended in the middle of one.",
            "Send them again: files that arrived complete are not sent twice.",
        )


async def _feed(feed: Feed, data: Sequence[bytes]) -> None:
    await feed(data)


async def _next(receive: Receive) -> tuple[bytes, bool]:
    """Return what comes next, and whether more follows."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            message = await receive()
    except TimeoutError:
        raise Rejected(
            Code.BAD_REQUEST,
            f"Nothing arrived for {PATIENCE_S:.0f} s.",
            "Send them again: files that arrived complete are not sent twice.",
        ) from None
    if message["type"] != "http.request":
        raise Gone
    return message.get("body", b""), bool(message.get("more_body"))
