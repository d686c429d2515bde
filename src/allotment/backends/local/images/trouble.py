"""What can keep an image from being used, whose matter that is, and what to do."""

from enum import Enum
from typing import Final

from allotment.model.diagnosis import Owner, RetryClass
from allotment.model.errors import Code
from allotment.model.unusable import Matter, Unusable

_OWN = Owner.USER, RetryClass.NEVER
_OURS = Owner.PLATFORM, RetryClass.PLATFORM


class Kind(Enum):
    """Kinds of trouble."""

    DENIED = Matter(
        "image_denied", Code.FORBIDDEN, *_OWN,
        "Log in: `allot image login REGISTRY --user NAME`; or ask its owner for access.",
    )  # fmt: skip
    GONE = Matter(
        "image_gone", Code.NOT_FOUND, *_OWN,
        "Look at the name and the tag; a private image needs `allot image login`.",
    )  # fmt: skip
    UNFIT = Matter(
        "image_unfit", Code.NOT_SUPPORTED, *_OWN,
        "Build it for this machine, or take another image.",
    )  # fmt: skip
    BROKEN = Matter("image_broken", Code.BAD_REQUEST, *_OWN, "Build and push it again.")
    AWAY = Matter(
        "registry_away", Code.UNAVAILABLE, *_OURS,
        "Nothing to do if it comes back; else look at the name of the registry.",
    )  # fmt: skip
    KILLED = Matter(
        "image_not_unpacked", Code.UNAVAILABLE, *_OURS,
        "Try again; if it fails again, ask the administrator: the machine may lack memory.",
    )  # fmt: skip
    NO_ROOM = Matter(
        "image_no_room", Code.UNAVAILABLE, *_OURS,
        "Ask the administrator: `allot image ls`, `allot image rm`, `limits.image_store`.",
    )  # fmt: skip


PASSING: Final = (Kind.AWAY, Kind.KILLED, Kind.NO_ROOM)
"""What may be over a moment later."""


class ImageTrouble(Unusable):
    """An image cannot be used."""

    def __init__(self, kind: Kind, cause: str, advice: str = "") -> None:
        super().__init__(kind.value, cause, advice)
        self.kind = kind


class Unreachable(ImageTrouble):
    """A registry does not answer, or fails: it has said nothing of who may read what."""

    def __init__(self, cause: str) -> None:
        super().__init__(Kind.AWAY, cause)
