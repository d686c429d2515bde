"""POST /v1/code:send: files as one stream, each whole or not there.

A plain ASGI application, as the body is far larger than any other and never in memory.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from allotment.api.body import Gone
from allotment.api.render import ENCODER, JSON
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor
from allotment.service.code.receiving import Receiving
from allotment.service.code.view import CodeTaken
from allotment.service.service import Service

PATIENCE_S = 60.0
"""How long the next piece may take to come."""
PIECE = 1 << 20
"""So much is written at a time."""


class SendCode:
    """The endpoint."""

    path = "/v1/code:send"

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self
        actor: Actor = scope["state"]["actor"]
        code = self._service.code
        receiving = code.receiving(actor)
        try:
            await _take(receiving, partial(code.feed, receiving, actor=actor), receive)
        finally:
            await asyncio.to_thread(receiving.close)
        told = ENCODER.encode(CodeTaken(receiving.files))
        await Response(told, 200, media_type=JSON)(scope, receive, send)


async def _take(
    receiving: Receiving, feed: Callable[[bytes], Awaitable[None]], receive: Receive
) -> None:
    """Take all files. Raises Rejected, and Gone when the client leaves in the middle."""
    held = bytearray()
    is_more = True
    while is_more:
        try:
            async with asyncio.timeout(PATIENCE_S):
                message = await receive()
        except TimeoutError:
            raise Rejected(
                Code.BAD_REQUEST,
                f"Nothing of the code came for {PATIENCE_S:.0f} s.",
                "Submit again: what came whole is not sent twice.",
            ) from None
        if message["type"] != "http.request":
            raise Gone
        held += message.get("body", b"")
        is_more = bool(message.get("more_body"))
        if len(held) >= PIECE or not is_more:
            await feed(bytes(held))
            held.clear()
    if not receiving.is_whole:
        raise Rejected(
            Code.BAD_REQUEST,
            "The code was cut off in the middle of a file.",
            "Submit again: what came whole is not sent twice.",
        )
