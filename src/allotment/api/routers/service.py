"""The service itself: its health, its end, its books, its numbers."""

import asyncio
from functools import partial
from pathlib import Path

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from allotment.api.body import read_as
from allotment.api.metrics import CONTENT_TYPE, exposition
from allotment.api.openapi import a_router, body_of, returns, returns_as
from allotment.api.render import Caller, TheService, reply
from allotment.api.shapes import Backup, Done
from allotment.model.errors import Code, Rejected
from allotment.service.access import may_administer
from allotment.service.views import Health

router = a_router("service")

WORD = returns_as("text/plain", {"type": "string"})
NOT_READY = {503: {"description": "Not now.", "content": WORD[200]["content"]}}


@router.get("/v1/service", responses=returns(Health), name="health")
async def health(service: TheService) -> Response:
    """Return how the service is."""
    return reply(service.shown(service.health()))


@router.post("/v1/service:stop", responses=returns(Done), name="stop_service")
async def stop_service(request: Request, caller: Caller) -> Response:
    """Stop the service. Tasks run on, and are adopted at the next start."""
    may_administer(caller)
    done = reply(Done(), headers={"Connection": "close"})
    done.background = BackgroundTask(request.app.state.stop)
    return done


@router.post(
    "/v1/service:backup", responses=returns(Done), openapi_extra=body_of(Backup), name="back_up"
)
async def back_up(request: Request, service: TheService, caller: Caller) -> Response:
    """Write a consistent copy of the books to a new file on the service's machine."""
    may_administer(caller)
    wanted = await read_as(request, Backup)
    target = wanted.target
    if not target.startswith("/") or "\0" in target:
        raise Rejected(
            Code.PATH_UNUSABLE, "The target must be an absolute path.", "Begin it with /."
        )
    if await asyncio.to_thread(Path(target).exists):
        raise Rejected(Code.CONFLICT, f"{target} exists already.", "Name a new file.")
    await service.backup(target, without_secrets=wanted.without_secrets)
    return reply(Done())


@router.get(
    "/healthz",
    responses=WORD,
    response_class=PlainTextResponse,
    name="healthz",
    tags=["operation"],
)
async def alive() -> Response:
    """Answer that the process lives. Needs no token."""
    return PlainTextResponse("ok\n")


@router.get(
    "/readyz",
    responses={**WORD, **NOT_READY},
    response_class=PlainTextResponse,
    name="readyz",
    tags=["operation"],
)
async def ready(service: TheService) -> Response:
    """Whether jobs can be submitted and run. Needs no token."""
    if service.health().ready:
        return PlainTextResponse("ready\n")
    return PlainTextResponse("not ready\n", 503)


@router.get(
    "/metrics",
    responses=returns_as("text/plain", {"type": "string"}, what="For Prometheus."),
    response_class=PlainTextResponse,
    name="metrics",
    tags=["operation"],
)
async def metrics(request: Request, service: TheService, caller: Caller) -> Response:
    """Return the numbers, in Prometheus' text format."""
    app = request.app.state
    write = partial(exposition, service, app.stats, app.fair_use)
    text = await service.turns.once(write, caller.user)
    return Response(text, media_type=CONTENT_TYPE)


@router.get("/openapi.json", include_in_schema=False)
async def description(request: Request) -> Response:
    """Return this description."""
    return reply(request.app.openapi(), headers={"Cache-Control": "max-age=60"})
