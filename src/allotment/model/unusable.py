"""What keeps something from being used that a job or a request needs, in words for both."""

import msgspec

from allotment.model.diagnosis import Diagnosis, Owner, RetryClass
from allotment.model.errors import Code, Rejected


class Matter(msgspec.Struct, frozen=True):
    """A kind of trouble: its code for jobs and for requests, whose matter it is, what to do."""

    code: str
    refusal: Code
    owner: Owner
    retry: RetryClass
    advice: str


class Unusable(Exception):
    """Something cannot be used; the text is a whole sentence."""

    def __init__(self, matter: Matter, cause: str, advice: str = "") -> None:
        super().__init__(cause)
        self.matter = matter
        self.cause = cause
        self.advice = advice or matter.advice

    def diagnosis(self) -> Diagnosis:
        """Return what is told of a job that it kept from starting."""
        matter = self.matter
        return Diagnosis(matter.code, self.cause, matter.owner, matter.retry, self.advice)

    def refusal(self) -> Rejected:
        """Return what is told of a request that it kept from being accepted."""
        return Rejected(self.matter.refusal, self.cause, self.advice)
