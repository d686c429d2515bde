"""Datasets: data with names, owners, versions and grants."""

import asyncio
import re
from typing import Annotated

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from allotment.api.body import read_as, read_body
from allotment.api.files import Contents, headers_of
from allotment.api.openapi import a_router, body_of, returns, returns_as
from allotment.api.render import ENCODER, JSON, NO_STORE, Caller, TheService, reply
from allotment.api.routers.sending import named_in
from allotment.api.shapes import Done
from allotment.api.streams import Stream
from allotment.model.errors import Code, Rejected
from allotment.service.content.manifest import Manifest
from allotment.service.data.view import (
    DataFiles,
    DataHanded,
    DataNote,
    DataRemoval,
    DataRoom,
    DataRows,
    DataTaken,
    DataView,
    DataWanted,
    GrantNote,
)

router = a_router("data")

BYTES = "application/octet-stream"
MOST_LIST = 64 << 20
"""Bytes of a list of files."""
BINARY = {"type": "string", "format": "binary"}
_FROM = re.compile(r"bytes=(\d{1,18})-")
RANGE = {
    "name": "Range",
    "in": "header",
    "description": "`bytes=N-` for all from byte N on.",
    "schema": {"type": "string"},
}
Tenant = Annotated[str, Path(description="The tenant, or `-` for whichever has it.")]
Name = Annotated[str, Path(description="The name, with `@3` for one version.")]


@router.get("/v1/data", responses=returns(DataRows), name="datasets")
async def list_data(service: TheService, caller: Caller) -> Response:
    """List the datasets that you may use: your own, your tenants', and those granted."""
    page = DataRows(tuple(await service.datasets.rows(caller)))
    body = await asyncio.to_thread(ENCODER.encode, page)
    return Response(body, headers=NO_STORE, media_type=JSON)


@router.post(
    "/v1/data",
    responses=returns(DataView),
    openapi_extra=body_of(DataNote),
    name="create_dataset",
)
async def create_data(request: Request, service: TheService, caller: Caller) -> Response:
    """Make a dataset. With `folder` a folder of the machine is registered as one.

    That is for the administrator.
    """
    note = await read_as(request, DataNote)
    tenant = note.tenant or service.default_tenant(caller)
    return reply(await service.datasets.create(note, tenant, caller))


@router.get("/v1/data/{tenant}/{name}", responses=returns(DataView), name="dataset")
async def show_data(
    tenant: Tenant, name: Name, service: TheService, caller: Caller
) -> Response:
    """Return a dataset. 404 where there is none, or you have no right to it: just the same."""
    return reply(await service.datasets.show(named_in(tenant, name), caller))


@router.get("/v1/data/{tenant}/{name}/room", responses=returns(DataRoom), name="data_room")
async def data_room(
    tenant: Tenant, name: Name, service: TheService, caller: Caller
) -> Response:
    """Return how large a version may be that you add."""
    return reply(await service.datasets.room(named_in(tenant, name), caller))


@router.post(
    "/v1/data/{tenant}/{name}:put",
    responses=returns(DataWanted),
    openapi_extra=body_of(Manifest),
    name="put_data",
)
async def put_data(
    tenant: Tenant, name: Name, request: Request, service: TheService, caller: Caller
) -> Response:
    """Close a version with these files, or return the digests of those that are missing.

    Send these with `POST …:send`, then the list again. The same files as in the newest
    version make no other one. To an object store the files are put before the answer comes.
    """
    body = await read_body(request.scope["headers"], request.receive, MOST_LIST)
    place = request.scope["state"]["place"]
    named, is_wanted = named_in(tenant, name), lambda: not place.is_gone
    return reply(await service.datasets.put(named, body, caller, is_wanted=is_wanted))


@router.post(
    "/v1/data/{tenant}/{name}:take",
    responses=returns(DataTaken),
    openapi_extra=body_of(DataHanded),
    name="take_data",
)
async def take_data(
    tenant: Tenant, name: Name, request: Request, service: TheService, caller: Caller
) -> Response:
    """Read files that the calling process holds open, in place of `:send`.

    Over the Unix socket alone, and where the service may take descriptors of that process:
    else `not_supported`.
    """
    note = await read_as(request, DataHanded)
    peer, place = request.scope["state"]["peer"], request.scope["state"]["place"]
    if peer is None:
        raise Rejected(
            Code.NOT_SUPPORTED, "Files are taken from clients of this machine.", "Send them."
        )
    named = named_in(tenant, name)
    taken = await service.datasets.take(
        named, note.files, peer.pid, caller, lambda: not place.is_gone
    )
    return reply(DataTaken(tuple(taken.digests)))


@router.get("/v1/data/{tenant}/{name}/files", responses=returns(DataFiles), name="data_files")
async def data_files(
    tenant: Tenant, name: Name, service: TheService, caller: Caller
) -> Response:
    """List the files of a version, of the newest where none is named."""
    page = await service.datasets.files(named_in(tenant, name), caller)
    body = await asyncio.to_thread(ENCODER.encode, page)
    return Response(body, headers=NO_STORE, media_type=JSON)


@router.get(
    "/v1/data/{tenant}/{name}/files/{digest}",
    responses=returns_as(BYTES, BINARY, what="The file.")
    | returns_as(BYTES, BINARY, 206, "The file from that byte on."),
    openapi_extra={"parameters": [RANGE]},
    name="data_file",
)
async def data_file(
    tenant: Tenant,
    name: Name,
    digest: str,
    request: Request,
    service: TheService,
    caller: Caller,
) -> Response:
    """Return one file of a version, from a byte of it on where one is named.

    What an object store has comes from there. If it is cut, the rest may be asked for, and then
    says why.
    """
    found = _FROM.fullmatch(request.headers.get("range", ""))
    start = int(found[1]) if found is not None else 0
    file = await service.datasets.open_file(named_in(tenant, name), digest, caller, start)
    headers, stopping = headers_of(file), request.app.state.stopping
    answer = Stream(Contents(file), stopping, media_type=BYTES, headers=headers)
    if file.start:
        size = file.start + file.size
        answer.status_code = 206
        answer.headers["Content-Range"] = f"bytes {file.start}-{size - 1}/{size}"
    return answer


@router.post(
    "/v1/data/{tenant}/{name}:grant",
    responses=returns(DataView),
    openapi_extra=body_of(GrantNote),
    name="grant_data",
)
async def grant_data(
    tenant: Tenant, name: Name, request: Request, service: TheService, caller: Caller
) -> Response:
    """Let a tenant's members, or a user, read a dataset, or write too. For its owner."""
    note = await read_as(request, GrantNote)
    return reply(await service.datasets.grant(named_in(tenant, name), note, caller))


@router.post(
    "/v1/data/{tenant}/{name}:revoke",
    responses=returns(DataView),
    openapi_extra=body_of(GrantNote),
    name="revoke_data",
)
async def revoke_data(
    tenant: Tenant, name: Name, request: Request, service: TheService, caller: Caller
) -> Response:
    """Take a right back. Tasks that run keep what they have; no other starts with it."""
    note = await read_as(request, GrantNote)
    return reply(await service.datasets.revoke(named_in(tenant, name), note, caller))


@router.post(
    "/v1/data/{tenant}/{name}:remove",
    responses=returns(Done),
    openapi_extra=body_of(DataRemoval),
    name="remove_data",
)
async def remove_data(
    tenant: Tenant, name: Name, request: Request, service: TheService, caller: Caller
) -> Response:
    """Remove a version, or with 0 all of a dataset, unless a job needs it. For its owner."""
    number = (await read_as(request, DataRemoval)).version
    named = named_in(tenant, name) + (f"@{number}" if number else "")
    await service.datasets.remove(named, caller)
    return reply(Done())
