"""Environments: which packages the machine keeps for jobs."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from allotment.api.body import decode, read_body
from allotment.api.openapi import Returns, body_of, returns
from allotment.api.render import Caller, TheService, reply
from allotment.api.shapes import Done
from allotment.service.environments.view import EnvironmentNote, EnvironmentRow, EnvironmentWish

router = APIRouter(tags=["environments"])


@router.get(
    "/v1/environments",
    responses=returns(list[EnvironmentRow]),
    response_class=Returns,
    name="environments",
)
async def list_environments(service: TheService, caller: Caller) -> Response:
    """List the environments that your jobs asked for; all of them to the administrator."""
    return reply(await service.environments.rows(caller))


@router.post(
    "/v1/environments:build",
    responses=returns(EnvironmentRow),
    response_class=Returns,
    openapi_extra=body_of(EnvironmentWish),
    name="build_environment",
)
async def build_environment(request: Request, service: TheService, caller: Caller) -> Response:
    """Build an environment, so that it is there when a job asks for it.

    Answers when it is, or after ten seconds with `bytes` 0. Ask again to go on waiting.
    """
    body = await read_body(request.scope["headers"], request.receive)
    wish = decode(body, EnvironmentWish)
    return reply(await service.build_environment(wish, caller))


@router.post(
    "/v1/environments:remove",
    responses=returns(Done),
    response_class=Returns,
    openapi_extra=body_of(EnvironmentNote),
    name="remove_environment",
)
async def remove_environment(request: Request, service: TheService, caller: Caller) -> Response:
    """Remove an environment that no job needs. For the administrator."""
    body = await read_body(request.scope["headers"], request.receive)
    await service.environments.remove(decode(body, EnvironmentNote).key, caller)
    return reply(Done())
