"""A client that leaves while it is answered: no failed request, whatever the answer was."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message

from allotment.api.body import Gone
from allotment.api.problems import INTERNAL, handlers
from allotment.model.errors import Code, Rejected


async def agrees(_: Request) -> Response:
    return PlainTextResponse("yes")


async def refuses(_: Request) -> Response:
    raise Rejected(Code.CONFLICT, "It changed.", "Send it again.")


@pytest.mark.parametrize("answers", [agrees, refuses])
def test_an_answer_that_nobody_reads_is_no_failed_request(
    answers: Callable[[Request], Awaitable[Response]], capfd: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []
    app = Starlette(
        routes=[Route("/", answers)], exception_handlers=dict(handlers(told.append))
    )

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(_: Message) -> None:
        raise Gone

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}
    with pytest.raises((Gone, RuntimeError)):
        asyncio.run(app(scope, receive, send))
    assert INTERNAL not in told
    assert "request failed" not in capfd.readouterr().out
