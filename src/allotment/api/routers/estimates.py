"""When jobs start: of one that waits, of one not yet submitted, and how true that was."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from allotment.api.body import read_body
from allotment.api.openapi import Returns, job_body, returns
from allotment.api.render import Caller, Job, TheService, reply
from allotment.api.routers.submit import is_native_json, query_of
from allotment.api.streams import while_there
from allotment.model.commands import SubmitJob
from allotment.service.estimate_view import Accuracy, StartEstimate
from allotment.wire.job import REQUEST, read_job, read_job_json

router = APIRouter(tags=["jobs"])

Since = Annotated[int, Query(ge=0, lt=1 << 62, description="Given from then on.")]


@router.get(
    "/v1/jobs/{ref}/eta", responses=returns(StartEstimate), response_class=Returns, name="eta"
)
async def eta(job: Job, service: TheService, request: Request) -> Response:
    """Say when a job starts, as a range, and what that rests on.

    The state is run ahead in a process of its own, which ends with the request.
    """
    stopping: asyncio.Event = request.app.state.stopping
    return reply(await while_there(service.start_of(job), request.receive, stopping))


@router.post(
    "/v1/jobs:dry-run",
    responses=returns(StartEstimate),
    response_class=Returns,
    openapi_extra=job_body(),
    name="dry_run",
)
async def dry_run(request: Request, service: TheService, caller: Caller) -> Response:
    """Say whether, where and when a job would start if it were submitted now.

    Takes what a submission takes, and refuses what it would refuse. Nothing is submitted.
    """
    query = query_of(request.scope)
    body = await read_body(request.scope["headers"], request.receive)
    if is_native_json(body, query):
        job = await asyncio.to_thread(read_job_json, body)
    else:
        job = await asyncio.to_thread(read_job, body, source=REQUEST, form=query.form)
    command = SubmitJob(
        job.spec,
        "",
        tuple(str(warning) for warning in job.warnings),
        job.copies,
        job.max_running,
        query.held,
    )
    stopping: asyncio.Event = request.app.state.stopping
    work = service.dry_run(command, caller)
    return reply(await while_there(work, request.receive, stopping))


@router.get(
    "/v1/estimates", responses=returns(Accuracy), response_class=Returns, name="accuracy"
)
async def accuracy(service: TheService, since: Since = 0) -> Response:
    """Say how good the start estimates were: told against what came.

    The whole log is read for it, in the background.
    """
    return reply(await service.reports.accuracy(since))
