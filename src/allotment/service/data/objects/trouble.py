"""What can keep data in an object store from being used, whose matter that is, what to do."""

from enum import Enum

from allotment.model.diagnosis import Owner, RetryClass
from allotment.model.errors import Code
from allotment.model.unusable import Matter, Unusable

_OWN = Owner.USER, RetryClass.NEVER
_OURS = Owner.PLATFORM, RetryClass.PLATFORM


class Kind(Enum):
    """Kinds of trouble."""

    DENIED = Matter(
        "store_denied", Code.FORBIDDEN, *_OWN,
        "The dataset's owner keeps a key that may list and read it in ~/.aws/credentials: "
        "`allot data login`.",
    )  # fmt: skip
    GONE = Matter(
        "data_missing", Code.DATA_MISSING, *_OWN,
        "Look at the bucket and the prefix: `allot data show NAME`.",
    )  # fmt: skip
    CHANGED = Matter(
        "data_changed", Code.CONFLICT, *_OWN,
        "Submit the job again: it then gets the present objects.",
    )  # fmt: skip
    UNFIT = Matter(
        "data_unfit", Code.NOT_SUPPORTED, *_OWN,
        "Give the objects names that files can have, or name another prefix.",
    )  # fmt: skip
    BROKEN = Matter(
        "store_broken", Code.BAD_REQUEST, *_OWN,
        "Look at the address of the store: `allot data show NAME`.",
    )  # fmt: skip
    TOO_LARGE = Matter(
        "data_too_large", Code.TOO_LARGE, *_OWN,
        "Name a longer prefix, or put many small objects into few archives; an administrator "
        "can raise `limits.data_files` and `limits.data_cache`.",
    )  # fmt: skip
    AWAY = Matter(
        "store_away", Code.UNAVAILABLE, *_OURS,
        "Nothing to do if it comes back; else look at the address of the store.",
    )  # fmt: skip
    NO_ROOM = Matter(
        "data_no_room", Code.UNAVAILABLE, *_OURS,
        "Ask the administrator: `limits.data_cache`, or a larger disk.",
    )  # fmt: skip


class StoreTrouble(Unusable):
    """Data in an object store cannot be used."""

    def __init__(self, kind: Kind, cause: str, advice: str = "") -> None:
        super().__init__(kind.value, cause, advice)
        self.kind = kind

    @property
    def is_passing(self) -> bool:
        """Whether it may be over a moment later."""
        return self.kind is Kind.AWAY
