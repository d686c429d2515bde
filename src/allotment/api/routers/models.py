"""Models: what is registered in MLflow."""

from starlette.responses import Response

from allotment.api.openapi import a_router, returns
from allotment.api.render import Caller, TheService, reply
from allotment.service.tracking.view import ModelRows

router = a_router("models")


@router.get("/v1/models", responses=returns(ModelRows), name="models")
async def list_models(service: TheService, caller: Caller) -> Response:
    """List the registered models of the cluster's MLflow, and the job that made each.

    The 200 that changed last.
    """
    return reply(await service.models(caller))
