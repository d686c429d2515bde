"""Environments: which packages the machine keeps for jobs."""

from starlette.requests import Request
from starlette.responses import Response

from allotment.api.body import read_as
from allotment.api.openapi import a_router, body_of, returns
from allotment.api.render import Caller, TheService, reply
from allotment.api.shapes import Done
from allotment.service.environments.view import EnvironmentNote, EnvironmentRow, EnvironmentWish

router = a_router("environments")


@router.get("/v1/environments", responses=returns(list[EnvironmentRow]), name="environments")
async def list_environments(service: TheService, caller: Caller) -> Response:
    """List the environments that your jobs asked for; all of them to the administrator."""
    return reply(await service.environments.rows(caller))


@router.post(
    "/v1/environments:build",
    responses=returns(EnvironmentRow),
    openapi_extra=body_of(EnvironmentWish),
    name="build_environment",
)
async def build_environment(request: Request, service: TheService, caller: Caller) -> Response:
    """Build an environment, so that it is there when a job asks for it.

    Answers when it is, or after ten seconds with `bytes` 0. Ask again to go on waiting.
    """
    wish = await read_as(request, EnvironmentWish)
    return reply(await service.build_environment(wish, caller))


@router.post(
    "/v1/environments:remove",
    responses=returns(Done),
    openapi_extra=body_of(EnvironmentNote),
    name="remove_environment",
)
async def remove_environment(request: Request, service: TheService, caller: Caller) -> Response:
    """Remove an environment that no job needs. For the administrator."""
    note = await read_as(request, EnvironmentNote)
    await service.environments.remove(note.key, caller)
    return reply(Done())
