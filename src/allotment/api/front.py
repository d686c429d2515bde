"""The outermost layer: guards the door, lets users take turns, times the answer.

It swallows what was logged already.
"""

import asyncio
from collections.abc import Callable
from time import perf_counter
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.utils import ClientDisconnected

from allotment.api.body import Gone
from allotment.api.fair_use import FairUse
from allotment.api.guard import NOBODY, Guard
from allotment.api.http_stats import HttpStats
from allotment.api.problems import answer, problem_of, unexpected
from allotment.model.errors import Rejected
from allotment.model.ids import Actor

JOBS, SLASH = b"/v1/jobs/", b"%2F"
OTHER = "other"
"""The route of requests that match none."""


class Front:
    """A pure-ASGI layer: a submission passes it in microseconds."""

    def __init__(self, app: ASGIApp, guard: Guard, fair_use: FairUse, stats: HttpStats) -> None:
        self._app = app
        self._guard = guard
        self._fair_use = fair_use
        self._stats = stats

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = perf_counter()
        is_http = scope["type"] == "http"
        _keep_slash(scope)
        try:
            actor = scope["state"]["actor"] = await self._guard.admit(scope)
            end = scope["state"]["end_turn"] = await self._begin(actor, scope)
        except Rejected as refusal:
            self._stats.refused(refusal.code.value)
            await answer(problem_of(refusal))(scope, receive, send)
            return
        except Gone:
            return

        async def timed(message: Message) -> None:
            if scope["state"]["place"].is_gone:
                raise Gone
            if message["type"] == "http.response.start":
                route: str = getattr(scope.get("route"), "path", OTHER)
                ms = (perf_counter() - began) * 1e3
                self._stats.answered(scope["method"], route, message["status"], ms)
            await send(message)

        try:
            await self._app(scope, receive, timed if is_http else send)
            if is_http:
                await scope["state"]["place"].taken()
        except (Gone, ClientDisconnected, asyncio.CancelledError):
            return  # the client left, or the service stops: nobody is there to be answered
        except Exception as error:
            # A request's was logged and, where it could be, answered by the handler of
            # `problems`. What is half sent cannot be mended: the server then hangs up.
            if not is_http:
                unexpected(error)
        finally:
            end()

    async def _begin(self, actor: Actor, scope: Scope) -> Callable[[], None]:
        """Wait for the user's turn. Strangers ask only how the service is, and need none."""
        if scope["type"] != "http" or actor is NOBODY:
            return lambda: None
        return await self._fair_use.begin(actor, scope["state"]["place"])


def _keep_slash(scope: Scope) -> None:
    """Leave a slash in the name of a job written as %2F, else it would end the name.

    `render.job_of` reads it.
    """
    raw: bytes = scope.get("raw_path") or b""
    if not raw.startswith(JOBS):
        return
    ref, slash, rest = raw.removeprefix(JOBS).replace(b"%2f", SLASH).partition(b"/")
    if SLASH in ref:
        whole = JOBS + ref.replace(SLASH, b"%252F") + slash + rest
        scope["path"] = unquote(whole.decode("ascii", "replace"))
