"""How it went: waits, use and shares over a stretch of the service's own history; and who
deserves what now."""

from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from allotment.api.openapi import a_router, returns
from allotment.api.render import TheService, reply
from allotment.api.streams import at_length
from allotment.service.fairness_view import FairnessReport
from allotment.service.live_view import LiveTask
from allotment.service.objectives_view import ObjectivesReport
from allotment.service.statistics_view import Statistics
from allotment.service.usage_view import UsageReport

router = a_router("cluster")

Since = Annotated[int, Query(ge=0, lt=1 << 62, description="The beginning of the period.")]
Until = Annotated[
    int | None, Query(ge=0, lt=1 << 62, description="Its end; now when left out or later.")
]


@router.get("/v1/statistics", responses=returns(Statistics), name="statistics")
async def statistics(
    request: Request, service: TheService, since: Since = 0, until: Until = None
) -> Response:
    """Sum up how jobs waited and ran, and what each tenant got.

    The whole log is read for it, in the background: some 15 s for a million events.
    Where the beginning of the stretch was forgotten, the answer begins at `known_since`.
    """
    found = await at_length(request, "log", lambda: service.reports.statistics(since, until))
    return reply(service.shown(found))


By = Annotated[
    str,
    Query(
        max_length=100,
        description="What a row is about: `tenant`, `queue`, `user`, `job`, `type`; several "
        "separated by commas.",
    ),
]


@router.get("/v1/usage", responses=returns(UsageReport), name="usage")
async def usage(
    request: Request,
    service: TheService,
    since: Since = 0,
    until: Until = None,
    by: By = "tenant",
) -> Response:
    """Sum up the GPU-hours and CPU-hours that were held, guaranteed and borrowed.

    The whole log is read for it, in the background, as for `/v1/statistics`.
    """
    found = await at_length(request, "log", lambda: service.reports.usage(since, until, by))
    return reply(service.shown(found))


@router.get("/v1/usage/now", responses=returns(list[LiveTask]), name="usage_now")
async def usage_now(service: TheService) -> Response:
    """List the running tasks with what each uses now: CPU, memory, processes, devices.

    Measured on request, at most twice a second.
    """
    return reply(await service.live_use())


@router.get("/v1/objectives", responses=returns(ObjectivesReport), name="objectives")
async def objectives(
    request: Request, service: TheService, since: Since = 0, until: Until = None
) -> Response:
    """Return whether the service objectives of tenants were met, and for which jobs not.

    The whole log is read for it, in the background, as for `/v1/statistics`.
    """
    found = await at_length(request, "log", lambda: service.reports.objectives(since, until))
    return reply(service.shown(found))


@router.get("/v1/fairness", responses=returns(FairnessReport), name="fairness")
async def fairness(request: Request, service: TheService) -> Response:
    """Return what each tenant deserves of the cluster now, and has; and which are starved."""
    found = await at_length(request, "sums", service.reports.fairness)
    return reply(service.shown(found))
