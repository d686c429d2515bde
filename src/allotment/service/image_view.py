"""Images as people see them: what is in the store of a machine, and what one consists of."""

import msgspec

from allotment.model.quantity import Moment, show_bytes


class ImageRow(msgspec.Struct, frozen=True):
    """One image in the store."""

    image: str
    """Its name, with tag and digest, as it was asked for first."""
    digest: str
    bytes: int
    """Of all its layers, unpacked."""
    alone: int
    """Of those that no other image here has: what its removal would free."""
    used_at: Moment
    in_use: bool


class ImageLayer(msgspec.Struct, frozen=True):
    """One layer of an image."""

    digest: str
    size: int
    """As it comes."""
    unpacked: int | None = None
    """On disk; null where it is not here."""
    shared_with: int = 0
    """How many other images here have it."""
    shared_by: tuple[str, ...] = ()
    """Which of these you have used; all to the administrator."""


class ImageView(msgspec.Struct, frozen=True):
    """What an image consists of, and what it would add to the store."""

    image: str
    digest: str
    is_here: bool
    layers: tuple[ImageLayer, ...]
    """The topmost last."""
    to_fetch: int
    """Bytes that would have to come."""
    fetched: int = 0
    """Bytes of these that came so far, where it is on its way."""
    bytes: int = 0
    """On disk: all its layers that are here."""
    alone: int = 0
    """On disk: those of them that no other image here has. What it adds to the store."""
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    workdir: str = ""

    def plan(self) -> str:
        """Return in words what would be fetched."""
        missing = sum(layer.unpacked is None for layer in self.layers)
        return (
            f"image: it is not here yet; {missing} of {len(self.layers)} layers would be "
            f"fetched, {show_bytes(self.to_fetch)} as they come"
        )


class ImageNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name of an image."""

    image: str
