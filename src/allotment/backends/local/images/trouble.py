"""What can keep an image from being used, whose matter that is, and what to do."""

from enum import Enum
from typing import Final

from allotment.model.diagnosis import Diagnosis, Owner, RetryClass
from allotment.model.errors import Code, Rejected


class Kind(Enum):
    """Kinds of trouble: a code for jobs, one for requests, whose matter it is, and retries."""

    DENIED = ("image_denied", Code.FORBIDDEN, Owner.USER, RetryClass.NEVER)
    GONE = ("image_gone", Code.NOT_FOUND, Owner.USER, RetryClass.NEVER)
    UNFIT = ("image_unfit", Code.NOT_SUPPORTED, Owner.USER, RetryClass.NEVER)
    BROKEN = ("image_broken", Code.BAD_REQUEST, Owner.USER, RetryClass.NEVER)
    AWAY = ("registry_away", Code.UNAVAILABLE, Owner.PLATFORM, RetryClass.PLATFORM)
    NO_ROOM = ("image_no_room", Code.UNAVAILABLE, Owner.PLATFORM, RetryClass.PLATFORM)


ADVICE: Final = {
    Kind.DENIED: "Log in: `allot image login REGISTRY`; or ask its owner for access.",
    Kind.GONE: "Look at the name and the tag; a private image needs `allot image login`.",
    Kind.UNFIT: "Build it for this machine, or take another image.",
    Kind.BROKEN: "Build and push it again.",
    Kind.AWAY: "Nothing to do if it comes back; else look at the name of the registry.",
    Kind.NO_ROOM: "Ask the administrator: `allot image ls`, `allot image rm`, "
    "`limits.image_store`.",
}
PASSING: Final = (Kind.AWAY, Kind.NO_ROOM)
"""What may be over a moment later."""


class ImageTrouble(Exception):
    """An image cannot be used; the text is a whole sentence."""

    def __init__(self, kind: Kind, cause: str, advice: str = "") -> None:
        super().__init__(cause)
        self.kind = kind
        self.cause = cause
        self.advice = advice or ADVICE[kind]

    def diagnosis(self) -> Diagnosis:
        """Return what is told of a job that it kept from starting."""
        code, _, owner, retry = self.kind.value
        return Diagnosis(code, self.cause, owner, retry, self.advice)

    def refusal(self) -> Rejected:
        """Return what is told of a request that it kept from being accepted."""
        return Rejected(self.kind.value[1], self.cause, self.advice)


class Unreachable(ImageTrouble):
    """A registry does not answer, or fails: it has said nothing of who may read what."""

    def __init__(self, cause: str) -> None:
        super().__init__(Kind.AWAY, cause)
