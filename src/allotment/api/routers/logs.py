"""The output of tasks: as text, or as it comes."""

from collections.abc import AsyncGenerator
from enum import StrEnum
from typing import Annotated

from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import Response

from allotment.api.openapi import a_router, returns_as
from allotment.api.render import ENCODER, Caller, Job, TheService
from allotment.api.shapes import End
from allotment.api.streams import HEARTBEAT, SSE, Stream, event
from allotment.api.task_output import STREAMS, Line, Wanted, follow_output, read, sources_of
from allotment.model.ids import Actor
from allotment.service.service import Service

router = a_router("jobs")

TEXT = "text/plain; charset=utf-8"
TEXT_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Which(StrEnum):
    """The output of a task that a request asks for."""

    STDOUT = "stdout"
    STDERR = "stderr"
    BOTH = "both"


ANSWERS = returns_as("text/plain", {"type": "string"}, what="What was written so far.")
ANSWERS[200]["content"][SSE] = {
    "schema": {"type": "string", "description": "Events with a `Line`; `end` with an `End`."}
}


@router.get("/v1/jobs/{ref}/logs", responses=ANSWERS, name="logs")
async def job_logs(  # noqa: PLR0913, PLR0917 - one argument a choice
    job: Job,
    service: TheService,
    caller: Caller,
    request: Request,
    task: Annotated[str, Query(max_length=200)] = "",
    attempt: Annotated[int | None, Query(ge=1, le=10**9)] = None,
    stream: Which = Which.BOTH,
    follow: bool = False,
    tail: Annotated[int | None, Query(ge=0, le=1 << 40)] = None,
    last_event_id: Annotated[str, Header()] = "",
) -> Response:
    """Return the output of a job's tasks, of the newest attempt when none is named.

    `task` is `role.number` or a number; all of them when left out. `tail` is how many bytes
    of each to begin with. With `follow`, server-sent events: each is a piece of one task's
    output; the last one, `end`, has the job's state. `Last-Event-ID` goes on where a broken
    stream was.
    """
    service.output.may_read(job, caller)
    streams = STREAMS if stream is Which.BOTH else (stream.value,)
    wanted = Wanted(job, task, attempt, streams, tail)
    state = request.app.state
    if not follow:
        no, sources = sources_of(service, wanted, caller)
        text = read(service, wanted, no, sources)
        return Stream(text, state.stopping, media_type=TEXT, headers=TEXT_HEADERS)
    if attempt is not None:
        sources_of(service, wanted, caller)
    events = _events(service, wanted, caller, last_event_id)
    return Stream(events, state.stopping, heartbeat=HEARTBEAT)


async def _events(
    service: Service, wanted: Wanted, caller: Actor, place: str
) -> AsyncGenerator[bytes]:
    async for piece in follow_output(service, wanted, caller, place):
        line = Line(piece.task, piece.stream, piece.text)
        yield event(ENCODER.encode(line), id_=piece.place)
    state = service.job(wanted.job, caller).state
    yield event(ENCODER.encode(End(state.value)), kind="end")
