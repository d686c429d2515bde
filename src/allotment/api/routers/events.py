"""What happened: to one job, or to all."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, cast

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from allotment.api.openapi import Returns, returns
from allotment.api.render import ENCODER, Caller, Job, TheService, reply
from allotment.api.shapes import End
from allotment.api.streams import HEARTBEAT, SSE, Stream, event
from allotment.model.ids import Actor, JobId
from allotment.service.service import Service
from allotment.service.views import EventView

router = APIRouter(tags=["events"])

MOST_ITEMS = 2_000

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


@router.get("/v1/events", responses=ANSWERS, response_class=Returns, name="events")
async def all_events(  # noqa: PLR0913, PLR0917 - one argument a choice
    request: Request,
    service: TheService,
    caller: Caller,
    after: After = 0,
    limit: Limit = 1000,
    follow: bool = False,
    last_event_id: LastId = "",
) -> Response:
    """Give what happened, oldest first; with `follow` also what happens from now on."""
    if not follow:
        return reply(service.events(None, after, limit))
    return _stream(request, service, None, _place(after, last_event_id), caller)


@router.get(
    "/v1/jobs/{ref}/events", responses=ANSWERS, response_class=Returns, name="job_events"
)
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
    """Give what happened to one job; with `follow` until it has finished."""
    if not follow:
        return reply(service.events(job, after, limit))
    return _stream(request, service, job, _place(after, last_event_id), caller)


def _place(after: int, last: str) -> int:
    return int(last[:18]) if last.isdecimal() else after


def _stream(
    request: Request, service: Service, job: JobId | None, after: int, caller: Actor
) -> Response:
    state = request.app.state
    source = _events(service, job, after, caller)
    return Stream(source, state.stopping, state.stats, heartbeat=HEARTBEAT)


async def _events(
    service: Service, job: JobId | None, after: int, caller: Actor
) -> AsyncGenerator[bytes]:
    source = cast("AsyncGenerator[EventView]", service.follow_events(job, after))
    async with aclosing(source):
        async for view in source:
            yield event(ENCODER.encode(view), id_=str(view.seq))
    if job is not None:
        state = service.job(job, caller).state
        yield event(ENCODER.encode(End(state.value)), kind="end")
