"""What routers share: the service and the caller of a request, and answers as JSON."""

from typing import Annotated

import msgspec
from fastapi import Depends
from starlette.requests import HTTPConnection
from starlette.responses import Response

from allotment.model.ids import Actor, JobId
from allotment.service.service import Service

ENCODER = msgspec.json.Encoder()
JSON = "application/json"
NO_STORE = {"Cache-Control": "no-store"}


def reply(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a value of ours as a response in JSON."""
    return Response(ENCODER.encode(value), status, headers or NO_STORE, media_type=JSON)


async def service_of(connection: HTTPConnection) -> Service:
    """Return the service behind this application."""
    return connection.app.state.service


async def caller_of(connection: HTTPConnection) -> Actor:
    """Return the user that makes this request, as the guard found it."""
    return connection.scope["state"]["actor"]


async def job_of(
    ref: str,
    service: Annotated[Service, Depends(service_of)],
    caller: Annotated[Actor, Depends(caller_of)],
) -> JobId:
    """Return the id of the job that a path means. Raises Rejected."""
    return service.finding.resolve(ref.replace("%2F", "/"), caller)


TheService = Annotated[Service, Depends(service_of)]
Caller = Annotated[Actor, Depends(caller_of)]
Job = Annotated[JobId, Depends(job_of)]
"""`{ref}` of the path: an id, `last`, a name, or a unique prefix of one; its slash is %2F."""
