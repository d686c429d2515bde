"""The configuration: which is in force, what another would change, putting it in force."""

from starlette.requests import Request
from starlette.responses import Response

from allotment.api.body import read_as
from allotment.api.openapi import a_router, body_of, returns
from allotment.api.render import Caller, TheService, reply
from allotment.api.shapes import NewConfig
from allotment.model.ids import Actor
from allotment.model.quantity import MIB
from allotment.service.access import may_administer
from allotment.service.config_view import ConfigInForce, ConfigPlan

router = a_router("cluster")

MOST_TEXT = 2 * MIB
"""A configuration within a JSON string; its reader has a lower limit of its own."""


@router.get("/v1/config", responses=returns(ConfigInForce), name="config")
async def config_in_force(service: TheService, caller: Caller) -> Response:
    """Return the configuration in force. For the administrator."""
    return reply(service.reconfiguring.in_force(caller))


@router.post(
    "/v1/config:plan",
    responses=returns(ConfigPlan),
    openapi_extra=body_of(NewConfig),
    name="plan_config",
)
async def plan_config(request: Request, service: TheService, caller: Caller) -> Response:
    """Return what a configuration would change, and for which jobs. Changes nothing.

    For the administrator.
    """
    new = await _read(request, caller)
    return reply(await service.reconfiguring.plan(new.text.encode(), new.source, caller))


@router.post(
    "/v1/config:apply",
    responses=returns(ConfigPlan),
    openapi_extra=body_of(NewConfig),
    name="apply_config",
)
async def apply_config(request: Request, service: TheService, caller: Caller) -> Response:
    """Put a configuration in force, as a whole, while jobs run on. For the administrator.

    It replaces only the one named `expect`, or the one in force now: two clients that
    change it at once cannot overwrite each other unseen, the later is refused (409).
    """
    new = await _read(request, caller)
    done = await service.reconfiguring.apply(new.text.encode(), new.source, new.expect, caller)
    return reply(done)


async def _read(request: Request, caller: Actor) -> NewConfig:
    may_administer(caller)  # before so much is read of anybody
    return await read_as(request, NewConfig, MOST_TEXT)
