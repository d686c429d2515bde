"""When jobs start: of one that waits, of one not yet submitted, and how true that was."""

import asyncio
from functools import partial
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from allotment.api.body import read_body
from allotment.api.fair_use import FairUse
from allotment.api.openapi import a_router, job_body, returns
from allotment.api.render import Caller, Job, TheService, reply
from allotment.api.routers.submit import careful, query_of
from allotment.api.streams import at_length, while_there
from allotment.model.commands import SubmitJob
from allotment.service.estimate_view import Accuracy, StartEstimate

router = a_router("jobs")

Since = Annotated[int, Query(ge=0, lt=1 << 62, description="Given from then on.")]


@router.get("/v1/jobs/{ref}/eta", responses=returns(StartEstimate), name="eta")
async def eta(job: Job, service: TheService, request: Request) -> Response:
    """Return when a job starts, as a range, and what that rests on.

    The state is run ahead in a process of its own, which ends with the request.
    """
    found = await at_length(request, "sums", lambda: service.start_of(job))
    return reply(service.shown(found))


@router.post(
    "/v1/jobs:dry-run",
    responses=returns(StartEstimate),
    openapi_extra=job_body(),
    name="dry_run",
)
async def dry_run(request: Request, service: TheService, caller: Caller) -> Response:
    """Return whether, where and when a job would start if it were submitted now.

    Takes what a submission takes, and refuses what it would refuse. Nothing is submitted.
    """
    query = query_of(request.scope)
    body = await read_body(request.scope["headers"], request.receive)
    stopping: asyncio.Event = request.app.state.stopping
    fair_use: FairUse = request.app.state.fair_use
    reading = fair_use.read(caller, partial(careful, body, query))
    job = await while_there(reading, request.receive, stopping)
    command = SubmitJob(
        job.spec,
        "",
        tuple(str(warning) for warning in job.warnings),
        job.copies,
        job.max_running,
        query.held or job.held,
        job.grid,
        job.indices,
    )
    found = await at_length(request, "sums", lambda: service.dry_run(command, caller))
    return reply(service.shown(found))


@router.get("/v1/estimates", responses=returns(Accuracy), name="accuracy")
async def accuracy(request: Request, service: TheService, since: Since = 0) -> Response:
    """Return how good the start estimates were: told against what came.

    The whole log is read for it, in the background.
    """
    found = await at_length(request, "log", lambda: service.reports.accuracy(since))
    return reply(service.shown(found))
