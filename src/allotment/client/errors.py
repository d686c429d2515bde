"""What can go wrong between a client and a service, in one tree.

    ApiError
    ├── Unreachable    nobody answers: not started, stopped, or not allowed to connect
    ├── Refused        the service said no; `code` is stable, for programs
    └── Unreadable     something answered, and it was not what a service of ours says

All are AllotmentErrors.
"""

import msgspec

from allotment.model.errors import AllotmentError, Problem


class ApiError(AllotmentError):
    """A request did not succeed. `message` says what and why, `hint` what to do next."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message} {hint}".strip())
        self.message = message
        self.hint = hint


class Unreachable(ApiError):
    """No service answers."""


class Unreadable(ApiError):
    """The answer is not one of an Allotment service."""


class Refused(ApiError):
    """The service said no. `code` is one of `allotment.model.errors.Code`.

    `problems` name line and key where a job or configuration file is the matter.
    """

    def __init__(
        self,
        code: str,
        message: str,
        hint: str = "",
        problems: tuple[Problem, ...] = (),
        status: int = 0,
    ) -> None:
        super().__init__(message, hint)
        self.code = code
        self.problems = problems
        self.status = status


class _ProblemDetails(msgspec.Struct):
    """The body of an `application/problem+json` answer."""

    title: str = ""
    detail: str = ""
    code: str = ""
    hint: str = ""
    problems: tuple[Problem, ...] = ()


def error_of(status: int, content_type: str, body: bytes) -> ApiError:
    """Turn an answer that is not a success into what to raise."""
    if "problem+json" in content_type:
        try:
            found = msgspec.json.decode(body, type=_ProblemDetails)
        except msgspec.MsgspecError:
            return _unreadable(status, body)
        message = found.detail or found.title or f"The service refused with status {status}."
        return Refused(found.code, message, found.hint, found.problems, status)
    return _unreadable(status, body)


def _unreadable(status: int, body: bytes) -> Unreadable:
    start = body[:200].decode("utf-8", "replace").strip()
    return Unreadable(
        f"The service answered with status {status}" + (f": {start}" if start else "."),
        "Its own log says more: service.log in its state folder.",
    )
