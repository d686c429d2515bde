"""How it went: waits, use and shares over a stretch of the service's own history."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from allotment.api.openapi import Returns, returns
from allotment.api.render import TheService, reply
from allotment.service.statistics_view import Statistics

router = APIRouter(tags=["cluster"])

Since = Annotated[int, Query(ge=0, lt=1 << 62, description="The beginning of the stretch.")]
Until = Annotated[
    int | None, Query(ge=0, lt=1 << 62, description="Its end; now when left out or later.")
]


@router.get(
    "/v1/statistics", responses=returns(Statistics), response_class=Returns, name="statistics"
)
async def statistics(service: TheService, since: Since = 0, until: Until = None) -> Response:
    """Sum up how jobs waited and ran, and what each tenant got.

    The whole log is read for it, in the background: some 15 s for a million events.
    Where the beginning of the stretch was forgotten, the answer begins at `known_since`.
    """
    return reply(await service.statistics(since, until))
