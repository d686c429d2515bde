"""What a service asks the agent of a node about the images that the node keeps."""

import msgspec

from allotment.service.image_view import ImageRow
from allotment.service.ports import ImageWish


class ListImages(msgspec.Struct, frozen=True, tag="list_images"):
    """List those that a user has used, with None all. Answered with ImagesTold."""

    uid: int | None


class WarmImage(msgspec.Struct, frozen=True, tag="warm_image"):
    """Fetch one ahead. Answered with ImagesTold, after a while also where it still comes."""

    wish: ImageWish
    image_bytes: int


class RemoveImage(msgspec.Struct, frozen=True, tag="remove_image"):
    """Remove one. Answered with ImagesTold."""

    image: str


class ImagesTold(msgspec.Struct, frozen=True):
    """What is there; where it cannot be said or done, why."""

    rows: tuple[ImageRow, ...] = ()
    code: str = ""
    message: str = ""
    hint: str = ""


ImageOp = ListImages | WarmImage | RemoveImage
