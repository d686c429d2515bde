"""What jobs left in their output folders."""

import asyncio
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from allotment.api.files import Contents, headers_of
from allotment.api.openapi import a_router, returns, returns_as
from allotment.api.render import ENCODER, JSON, NO_STORE, Caller, Job, TheService
from allotment.api.streams import Stream
from allotment.model.errors import Code, Rejected
from allotment.service.views import OutputPage

router = a_router("jobs")

BYTES = "application/octet-stream"


LONGEST_PATH, LONGEST_NAME = 4000, 255

MOST_FILES = 200_000
"""In one listing."""


def is_path(path: str) -> bool:
    """Whether a file of the host could have this path at all."""
    raw = path.encode(errors="replace")
    return (
        "\0" not in path
        and len(raw) < LONGEST_PATH
        and all(len(name) <= LONGEST_NAME for name in raw.split(b"/"))
    )


@router.get("/v1/jobs/{ref}/outputs", responses=returns(OutputPage), name="outputs")
async def list_outputs(
    job: Job,
    service: TheService,
    caller: Caller,
    attempt: Annotated[int, Query(ge=0, lt=1 << 31)] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_FILES)] = 10_000,
) -> Response:
    """List the files a job left, attempt by attempt: of all attempts (0), or of one.

    Where there are more than the limit, those of the newest attempts are listed, and the
    answer is not `complete`.
    """
    page = await service.output.files(job, caller, attempt, limit)
    body = await asyncio.to_thread(ENCODER.encode, page)
    return Response(body, headers=NO_STORE, media_type=JSON)


@router.get(
    "/v1/jobs/{ref}/outputs/{attempt}/{path:path}",
    responses=returns_as(BYTES, {"type": "string", "format": "binary"}, what="The file."),
    name="output",
)
async def fetch_output(
    job: Job,
    attempt: int,
    path: str,
    request: Request,
    service: TheService,
    caller: Caller,
) -> Response:
    """Return one file."""
    if not is_path(path) or not 0 < attempt < 1 << 31:
        raise Rejected(
            Code.NOT_FOUND, f"Job {job} left no such file.", f"See `allot outputs {job}`."
        )
    file = await service.output.open_file(job, attempt, path, caller)
    state = request.app.state
    return Stream(Contents(file), state.stopping, media_type=BYTES, headers=headers_of(file))
