"""Jobs: listing, looking, changing."""

import asyncio
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from allotment.api.body import decode, read_body
from allotment.api.openapi import Returns, body_of, returns
from allotment.api.render import Caller, Job, TheService, reply
from allotment.api.shapes import Changes, Page
from allotment.model import commands as c
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.model.reasons import Blocked
from allotment.service.views import JobView, Submitted
from allotment.service.wait_view import WaitHistory
from allotment.wire.job import apply_set

router = APIRouter(tags=["jobs"])

MOST_ITEMS = 1000


@router.get("/v1/jobs", responses=returns(Page), response_class=Returns)
async def list_jobs(  # noqa: PLR0913, PLR0917 - one argument a filter
    service: TheService,
    state: Annotated[list[JobState] | None, Query()] = None,
    tenant: str = "",
    user: str = "",
    name: str = "",
    finished: bool = False,
    limit: Annotated[int, Query(ge=1, le=MOST_ITEMS)] = 100,
    before: Annotated[int | None, Query(ge=0, lt=1 << 63)] = None,
) -> Response:
    """List jobs, newest first.

    Live ones and those that finished within the last hour; with `finished` all there were.
    `name` is the beginning of a name. The page after this one begins `before` its `next`.
    """
    items, more = service.finding.page(
        tenant=tenant,
        user=user,
        name=name,
        states=tuple(state or ()),
        finished=finished,
        limit=limit,
        before=None if before is None else JobId(before),
    )
    return reply(Page(tuple(items), more))


@router.get("/v1/jobs/{ref}", responses=returns(JobView), response_class=Returns)
async def show_job(job: Job, service: TheService, caller: Caller) -> Response:
    """Give everything about one job."""
    return reply(service.job(job, caller))


@router.get("/v1/jobs/{ref}/why", responses=returns(Blocked | None), response_class=Returns)
async def why(job: Job, service: TheService) -> Response:
    """Say why a job waits: null when it does not."""
    return reply(service.why(job))


@router.get("/v1/jobs/{ref}/waits", responses=returns(WaitHistory), response_class=Returns)
async def waits(job: Job, service: TheService) -> Response:
    """Tell the life of a job in stretches of time: for what it waited in each, how long, and
    when it ran. Of finished jobs too."""
    return reply(await service.reports.waits(job))


VERBS: dict[str, tuple[Callable[[JobId], c.AnyCommand], str]] = {
    "cancel": (c.CancelJob, "End a job, wherever it stands; a running one gets its grace."),
    "hold": (c.HoldJob, "Take a waiting job out of the line."),
    "release": (c.ReleaseJob, "Put a held job back in line."),
    "suspend": (c.SuspendJob, "Freeze a running job and free its devices."),
    "resume": (c.ResumeJob, "Let a suspended job go on when its devices are free."),
}


def _steer(verb: str, command: Callable[[JobId], c.AnyCommand], what: str) -> None:
    @router.post(
        f"/v1/jobs/{{ref}}:{verb}",
        name=f"{verb}_job",
        description=what,
        responses=returns(JobView),
        response_class=Returns,
    )
    async def steer(job: Job, service: TheService, caller: Caller) -> Response:
        await service.act(command(job), caller)
        return reply(service.job(job, caller))


for _verb, (_command, _what) in VERBS.items():
    _steer(_verb, _command, _what)


@router.patch(
    "/v1/jobs/{ref}",
    responses=returns(JobView),
    response_class=Returns,
    openapi_extra=body_of(Changes),
)
async def edit_job(job: Job, request: Request, service: TheService, caller: Caller) -> Response:
    """Change a waiting job."""
    changes = decode(await read_body(request.scope["headers"], request.receive), Changes)
    await service.edit(job, lambda spec: apply_set(spec, changes.set), caller)
    return reply(service.job(job, caller))


@router.post(
    "/v1/jobs/{ref}:clone",
    status_code=201,
    responses=returns(Submitted, 201),
    response_class=Returns,
    openapi_extra=body_of(Changes),
)
async def clone_job(
    job: Job, request: Request, service: TheService, caller: Caller
) -> Response:
    """Submit a job again, with changes."""
    changes = decode(await read_body(request.scope["headers"], request.receive), Changes)
    spec = await asyncio.to_thread(apply_set, service.spec_of(job, caller), changes.set)
    made = await service.submit(c.SubmitJob(spec), caller)
    return reply(made, 201, {"Location": f"/v1/jobs/{made.id}", "Cache-Control": "no-store"})
