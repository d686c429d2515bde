"""What happened: to one job, or to all."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import Response

from allotment.api.openapi import a_router, returns
from allotment.api.render import ENCODER, JSON, NO_STORE, Caller, Job, TheService
from allotment.api.shapes import End
from allotment.api.streams import HEARTBEAT, SSE, Stream, event
from allotment.model.ids import Actor, JobId
from allotment.service.event_feed import FeedEvent
from allotment.service.service import Service
from allotment.service.views import EventView

router = a_router("events")

MOST_ITEMS = 2_000

Source = AsyncGenerator[list[FeedEvent]]

After = Annotated[int, Query(ge=0, lt=1 << 62, description="Leave out events up to this one.")]
Limit = Annotated[int, Query(ge=1, le=MOST_ITEMS)]
LastId = Annotated[str, Header(alias="Last-Event-ID")]

ANSWERS = returns(list[EventView], what="What happened, oldest first.")
ANSWERS[200]["content"][SSE] = {
    "schema": {
        "type": "string",
        "description": "Events with an `EventView`, its `seq` as id; for one job, the last "
        "is `end` with an `End`.",
    }
}


@router.get("/v1/events", responses=ANSWERS, name="events")
async def all_events(  # noqa: PLR0913, PLR0917 - one argument a choice
    request: Request,
    service: TheService,
    caller: Caller,
    after: After = 0,
    limit: Limit = 1000,
    follow: bool = False,
    last_event_id: LastId = "",
) -> Response:
    """Return what happened, oldest first; with `follow` also what happens from now on."""
    if not follow:
        return await _page(service.events(None, after, limit, caller))
    return _stream(request, service, None, _place(after, last_event_id), caller)


@router.get("/v1/jobs/{ref}/events", responses=ANSWERS, name="job_events")
async def job_events(  # noqa: PLR0913, PLR0917 - one argument a choice
    job: Job,
    request: Request,
    service: TheService,
    caller: Caller,
    after: After = 0,
    limit: Limit = 1000,
    follow: bool = False,
    last_event_id: LastId = "",
) -> Response:
    """Return what happened to one job; with `follow` until it has finished."""
    if not follow:
        return await _page(service.events(job, after, limit, caller))
    return _stream(request, service, job, _place(after, last_event_id), caller)


def _place(after: int, last: str) -> int:
    return int(last[:18]) if last.isdecimal() else after


def _stream(
    request: Request, service: Service, job: JobId | None, after: int, caller: Actor
) -> Response:
    state = request.app.state
    source = _events(service, job, after, caller)
    return Stream(source, state.stopping, heartbeat=HEARTBEAT)


async def _page(told: Source) -> Response:
    """Answer with a list, piece by piece: it may be long."""
    nothing: list[FeedEvent] = []
    first = await anext(told, nothing)  # what cannot be read is said before it begins
    # It ends as a whole or breaks off: half of it would look like all.
    never = asyncio.Event()
    return Stream(_list(first, told), never, media_type=JSON, headers=NO_STORE)


async def _list(first: list[FeedEvent], rest: Source) -> AsyncGenerator[bytes]:
    async with aclosing(rest):
        yield b"[" + b",".join(each.json for each in first)
        async for told in rest:
            yield b"".join(b"," + each.json for each in told)
        yield b"]"


async def _events(
    service: Service, job: JobId | None, after: int, caller: Actor
) -> AsyncGenerator[bytes]:
    async with aclosing(service.follow_events(job, after, caller)) as source:
        async for told in source:
            yield b"".join(event(each.json, id_=str(each.seq)) for each in told)
    if job is not None:
        state = service.job(job, caller).state
        yield event(ENCODER.encode(End(state.value)), kind="end")
