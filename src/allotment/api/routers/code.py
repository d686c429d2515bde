"""Code that jobs take along: what is here, what is missing, what a job took."""

from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from allotment.api.body import read_body
from allotment.api.openapi import a_router, body_of, returns
from allotment.api.render import Caller, Job, TheService, reply
from allotment.service.code.view import CodeNote, CodeRoom, CodeView, CodeWanted
from allotment.service.content.manifest import Manifest

router = a_router("code")

Also = Annotated[list[str] | None, Query(max_length=4, description="More digests of files.")]
MOST_LIST = 16 << 20
"""Bytes of a list of files."""


@router.get("/v1/code", responses=returns(CodeRoom))
async def code_room(service: TheService, caller: Caller) -> Response:
    """Return how much code you may take along, and how much of yours is here."""
    return reply(await service.code.room(caller))


@router.get("/v1/code/{bundle}", responses=returns(CodeNote))
async def find_code(
    service: TheService,
    caller: Caller,
    bundle: str,
    also: Also = None,
) -> Response:
    """Return how large a bundle of yours is. 404 where it is not here, or somebody else's.

    It stays for a day from now, whether or not a job uses it. So do the files `also`.
    """
    return reply(await service.code.find(bundle, tuple(also or ()), caller))


@router.post("/v1/code", responses=returns(CodeWanted), openapi_extra=body_of(Manifest))
async def begin_code(
    request: Request,
    service: TheService,
    caller: Caller,
    also: Also = None,
) -> Response:
    """Keep a list of files as a bundle, or return the digests of those that are missing.

    Send these with `POST /v1/code:send`, then the list again. The SHA-256 of the body is the
    name of the bundle. `also` are digests of files besides, such as what `git diff` said.
    """
    body = await read_body(request.scope["headers"], request.receive, MOST_LIST)
    return reply(await service.code.begin(body, tuple(also or ()), caller))


@router.get("/v1/jobs/{ref}/code", responses=returns(CodeView))
async def code_of_job(job: Job, service: TheService, caller: Caller) -> Response:
    """Return what code a job took along: files, commit, and what was not committed."""
    return reply(await service.code.of_job(job, caller))
