"""What can keep data in an object store from being used, whose matter that is, what to do."""

from enum import Enum
from typing import Final

from allotment.model.diagnosis import Diagnosis, Owner, RetryClass
from allotment.model.errors import Code, Rejected


class Kind(Enum):
    """Kinds of trouble: a code for jobs, one for requests, whose matter it is, and retries."""

    DENIED = ("store_denied", Code.FORBIDDEN, Owner.USER, RetryClass.NEVER)
    GONE = ("data_missing", Code.DATA_MISSING, Owner.USER, RetryClass.NEVER)
    CHANGED = ("data_changed", Code.CONFLICT, Owner.USER, RetryClass.NEVER)
    UNFIT = ("data_unfit", Code.NOT_SUPPORTED, Owner.USER, RetryClass.NEVER)
    BROKEN = ("store_broken", Code.BAD_REQUEST, Owner.USER, RetryClass.NEVER)
    TOO_LARGE = ("data_too_large", Code.TOO_LARGE, Owner.USER, RetryClass.NEVER)
    AWAY = ("store_away", Code.UNAVAILABLE, Owner.PLATFORM, RetryClass.PLATFORM)
    NO_ROOM = ("data_no_room", Code.UNAVAILABLE, Owner.PLATFORM, RetryClass.PLATFORM)


ADVICE: Final = {
    Kind.DENIED: "The dataset's owner keeps a key that may list and read it in "
    "~/.aws/credentials: `allot data login`.",
    Kind.GONE: "Look at the bucket and the prefix: `allot data show NAME`.",
    Kind.CHANGED: "Submit the job again: it then gets what is there now.",
    Kind.UNFIT: "Give the objects names that files can have, or name another prefix.",
    Kind.BROKEN: "Look at the address of the store: `allot data show NAME`.",
    Kind.TOO_LARGE: "Name a longer prefix, or put many small objects into few archives; an "
    "administrator can raise `limits.data_files` and `limits.data_cache`.",
    Kind.AWAY: "Nothing to do if it comes back; else look at the address of the store.",
    Kind.NO_ROOM: "Ask the administrator: `limits.data_cache`, or a larger disk.",
}


class StoreTrouble(Exception):
    """Data in an object store cannot be used; the text is a whole sentence."""

    def __init__(self, kind: Kind, cause: str, advice: str = "") -> None:
        super().__init__(cause)
        self.kind = kind
        self.cause = cause
        self.advice = advice or ADVICE[kind]

    @property
    def is_passing(self) -> bool:
        """Whether it may be over a moment later."""
        return self.kind is Kind.AWAY

    def diagnosis(self) -> Diagnosis:
        """Return what is told of a job that it kept from starting."""
        code, _, owner, retry = self.kind.value
        return Diagnosis(code, self.cause, owner, retry, self.advice)

    def refusal(self) -> Rejected:
        """Return what is told of a request that it kept from being accepted."""
        return Rejected(self.kind.value[1], self.cause, self.advice)
