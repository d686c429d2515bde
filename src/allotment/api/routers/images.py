"""Images: what the machine keeps of them, and what one consists of."""

from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from allotment.api.body import read_as
from allotment.api.openapi import a_router, body_of, returns
from allotment.api.render import Caller, TheService, reply
from allotment.api.shapes import Done
from allotment.service.image_view import ImageNote, ImageRow, ImageView

router = a_router("images")

Name = Annotated[str, Query(description="`registry/name:tag`, or with a digest.")]


@router.get("/v1/images", responses=returns(list[ImageRow]), name="images")
async def list_images(service: TheService, caller: Caller) -> Response:
    """List the images in the store that you have used; all of them to the administrator."""
    return reply(await service.images.rows(caller))


@router.get("/v1/images:inspect", responses=returns(ImageView), name="inspect_image")
async def inspect_image(service: TheService, caller: Caller, image: Name) -> Response:
    """Return an image's layers, how large they are, and what would have to be fetched.

    The registry is asked with your own password.
    """
    return reply(await service.images.inspect(image, caller))


@router.post(
    "/v1/images:warm",
    responses=returns(ImageView),
    openapi_extra=body_of(ImageNote),
    name="warm_image",
)
async def warm_image(request: Request, service: TheService, caller: Caller) -> Response:
    """Fetch an image, so that it is there when a task wants it.

    Answers when it is, or after ten seconds: `is_here` tells. Ask again to go on waiting.
    """
    note = await read_as(request, ImageNote)
    return reply(await service.images.warm(note.image, caller))


@router.post(
    "/v1/images:remove",
    responses=returns(Done),
    openapi_extra=body_of(ImageNote),
    name="remove_image",
)
async def remove_image(request: Request, service: TheService, caller: Caller) -> Response:
    """Remove an image from the store, unless a task uses it. For the administrator."""
    note = await read_as(request, ImageNote)
    await service.images.remove(note.image, caller)
    return reply(Done())
