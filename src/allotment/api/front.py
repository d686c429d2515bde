"""The outermost layer: guards the door, times the answer, swallows what was logged already."""

import asyncio
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.utils import ClientDisconnected

from allotment.api.body import Gone
from allotment.api.guard import Guard
from allotment.api.http_stats import HttpStats
from allotment.api.problems import answer, problem_of, unexpected
from allotment.model.errors import Rejected

OTHER = "other"
"""The route of requests that match none."""


class Front:
    """A pure-ASGI layer: a submission passes it in microseconds."""

    def __init__(self, app: ASGIApp, guard: Guard, stats: HttpStats) -> None:
        self._app = app
        self._guard = guard
        self._stats = stats

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = perf_counter()
        stats = self._stats

        async def timed(message: Message) -> None:
            if message["type"] == "http.response.start":
                route: str = getattr(scope.get("route"), "path", OTHER)
                ms = (perf_counter() - began) * 1e3
                stats.answered(scope["method"], route, message["status"], ms)
            await send(message)

        try:
            scope["state"]["actor"] = await self._guard.admit(scope)
        except Rejected as refusal:
            stats.refused(refusal.code.value)
            await answer(problem_of(refusal))(scope, receive, send)
            return
        is_http = scope["type"] == "http"
        try:
            await self._app(scope, receive, timed if is_http else send)
        except (Gone, ClientDisconnected, asyncio.CancelledError):
            return  # the client left, or the service stops: nobody is there to be answered
        except Exception as error:
            # A request's was logged and, where it could be, answered by the handler of
            # `problems`. What is half sent cannot be mended: the server then hangs up.
            if not is_http:
                unexpected(error)
