"""What jobs left in their output folders."""

from functools import partial

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from allotment.api.files import Contents, OpenFile, headers_of, open_for
from allotment.api.openapi import Returns, returns, returns_as
from allotment.api.render import Caller, Job, TheService, reply
from allotment.api.streams import Stream
from allotment.model.errors import Code, Rejected
from allotment.service.views import OutputFile

router = APIRouter(tags=["jobs"])

BYTES = "application/octet-stream"


LONGEST_PATH, LONGEST_NAME = 4000, 255


def is_path(path: str) -> bool:
    """Tell whether a file of the host could have this path at all."""
    raw = path.encode(errors="replace")
    return (
        "\0" not in path
        and len(raw) < LONGEST_PATH
        and all(len(name) <= LONGEST_NAME for name in raw.split(b"/"))
    )


def shown(path: str) -> str:
    """Give a name that JSON can hold; one that is no UTF-8 cannot be fetched by it."""
    return path.encode(errors="surrogateescape").decode(errors="replace")


@router.get(
    "/v1/jobs/{ref}/outputs",
    responses=returns(list[OutputFile]),
    response_class=Returns,
    name="outputs",
)
async def list_outputs(job: Job, service: TheService, caller: Caller) -> Response:
    """List the files a job left, attempt by attempt."""
    found = await service.output.for_user(caller, partial(service.output.files, job, caller))
    return reply([msgspec.structs.replace(file, path=shown(file.path)) for file in found])


@router.get(
    "/v1/jobs/{ref}/outputs/{attempt}/{path:path}",
    responses=returns_as(BYTES, {"type": "string", "format": "binary"}, what="The file."),
    response_class=Returns,
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
    """Give one file."""
    if not is_path(path) or not 0 < attempt < 1 << 31:
        raise Rejected(Code.NOT_FOUND, f"Job {job} left no such file.")

    def opened() -> OpenFile:
        return open_for(service.output.path_of(job, attempt, path, caller), caller)

    file = await service.output.for_user(caller, opened)
    state = request.app.state
    return Stream(
        Contents(file), state.stopping, state.stats, media_type=BYTES, headers=headers_of(file)
    )
