"""Errors as `application/problem+json` (RFC 9457): what is wrong, its code, what to do next."""

import secrets
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import cast

import msgspec
import structlog
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response

from allotment.api.body import Gone
from allotment.model.errors import (
    AllotmentError,
    BackendError,
    BadInput,
    Code,
    Problem,
    Rejected,
    StoreError,
)

COME_BACK_S = {Code.QUEUE_FULL.value: "60"}
"""When it is worth while to ask again, where that is not in a second."""

MEDIA_TYPE = "application/problem+json"
BAD_REQUEST, INTERNAL = "bad_request", "internal"
"""Codes of what never reaches the service; all others are `model.errors.Code`."""

LONGEST = 4000
"""Longest text of a problem: some of it may repeat what was sent."""

STATUS = {
    Code.BAD_SPEC: 422,
    Code.BAD_REQUEST: 422,
    Code.NEVER_FITS: 422,
    Code.NO_SUCH_TENANT: 422,
    Code.NO_SUCH_QUEUE: 422,
    Code.QUEUE_CLOSED: 409,
    Code.QUEUE_FULL: 429,
    Code.TOO_MANY: 429,
    Code.NO_SUCH_JOB: 404,
    Code.NO_SUCH_NODE: 404,
    Code.NO_SUCH_TASK: 404,
    Code.AMBIGUOUS_JOB: 409,
    Code.FORBIDDEN: 403,
    Code.UNAUTHENTICATED: 401,
    Code.WRONG_STATE: 409,
    Code.BAD_DEPENDENCY: 422,
    Code.PATH_UNUSABLE: 422,
    Code.CODE_MISSING: 409,
    Code.DATA_MISSING: 404,
    Code.TOO_LARGE: 413,
    Code.NOT_FOUND: 404,
    Code.CONFLICT: 409,
    Code.UNAVAILABLE: 503,
    Code.UNCERTAIN: 504,
    Code.NOT_SUPPORTED: 501,
}

OF_STATUS = {404: Code.NOT_FOUND, 405: Code.NOT_SUPPORTED, 413: Code.TOO_LARGE}

HINTS = {
    404: "The paths of this API are listed in /openapi.json.",
    405: "The methods of every path are listed in /openapi.json.",
}

log = structlog.get_logger("allot.api")


class ProblemDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of every answer that is not a success."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    """Stable, for programs: one of `Code`, `bad_request` or `internal`."""
    hint: str = ""
    """What to do next."""
    problems: tuple[Problem, ...] = ()
    """Everything wrong in what was sent, each with its line and key."""


def problem(
    status: int, code: str, detail: str, hint: str = "", problems: tuple[Problem, ...] = ()
) -> ProblemDetails:
    """Return the body of an answer with this status and code."""
    title = HTTPStatus(status).phrase
    detail = detail if len(detail) <= LONGEST else f"{detail[:LONGEST]}…"
    return ProblemDetails(f"urn:allotment:{code}", title, status, detail, code, hint, problems)


def problem_of(error: AllotmentError) -> ProblemDetails:
    """Return the status and body that stand for one of our own errors."""
    match error:
        case Rejected():
            return problem(STATUS[error.code], error.code.value, error.message, error.hint)
        case BadInput():
            first = error.problems[0] if error.problems else Problem("cannot be read")
            more = len(error.problems) - 1
            detail = str(first) + (f" (and {more} more)" if more > 0 else "")
            return problem(422, Code.BAD_SPEC.value, detail, first.hint, error.problems)
        case StoreError():
            return problem(
                503,
                Code.UNAVAILABLE.value,
                f"The event log cannot be used: {error}.",
                "No accepted job is lost; try again when this is solved.",
            )
        case BackendError():
            return problem(
                503,
                Code.UNAVAILABLE.value,
                f"The system that runs tasks does not answer: {error}.",
                "Try again; `allot doctor` says what is wrong with it.",
            )
        case _:
            return unexpected(error)


def unexpected(error: Exception) -> ProblemDetails:
    """Log an error that nobody foresaw under an id; return only that id to the client."""
    id_ = secrets.token_hex(4)
    log.error("request failed", id=id_, exc_info=error)
    return problem(
        500,
        INTERNAL,
        f"Something went wrong inside Allotment; it is logged as {id_}.",
        f"Look for {id_} in service.log of the service's state folder, and report it.",
    )


def answer(details: ProblemDetails, headers: dict[str, str] | None = None) -> Response:
    """Return a problem as a response."""
    headers = dict(headers or {})
    if details.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if details.status in (429, 503, 504):
        headers["Retry-After"] = COME_BACK_S.get(details.code, "1")
    return Response(
        msgspec.json.encode(details), details.status, headers, media_type=MEDIA_TYPE
    )


# ── handlers, as Starlette wants them ───────────────────────────────────────────────────

Handler = Callable[[HTTPConnection, Exception], Awaitable[Response]]
Count = Callable[[str], None]
"""Told the code of every problem that is sent."""


def handlers(count: Count) -> dict[type[Exception], Handler]:
    """Return a handler for every kind of error."""

    async def ours(_: HTTPConnection, error: Exception) -> Response:
        return send(problem_of(cast("AllotmentError", error)))

    async def invalid(_: HTTPConnection, error: Exception) -> Response:
        return send(problem_of_query(cast("RequestValidationError", error)))

    async def http(_: HTTPConnection, error: Exception) -> Response:
        found = cast("HTTPException", error)
        code = OF_STATUS.get(found.status_code)
        details = problem(
            found.status_code,
            code.value if code else BAD_REQUEST,
            str(found.detail),
            HINTS.get(found.status_code, ""),
        )
        return send(details, dict(found.headers or {}))

    async def gone(_: HTTPConnection, error: Exception) -> Response:  # noqa: ARG001
        return Response(status_code=400)  # nobody is there to read it

    async def other(connection: HTTPConnection, error: Exception) -> Response:
        # As an answer was sent. One that had begun may no more be replaced, which is the error.
        if isinstance(error, Gone) or isinstance(error.__cause__, Gone):
            return await gone(connection, error)
        return send(unexpected(error))

    def send(details: ProblemDetails, headers: dict[str, str] | None = None) -> Response:
        count(details.code)
        return answer(details, headers)

    return {
        AllotmentError: ours,
        RequestValidationError: invalid,
        HTTPException: http,
        Gone: gone,
        Exception: other,
    }


def problem_of_query(error: RequestValidationError) -> ProblemDetails:
    """Return which parameter of a request is wrong."""
    found = tuple(
        Problem(str(each["msg"]), ".".join(str(step) for step in each["loc"][1:]))
        for each in error.errors()
    )
    detail = "; ".join(f"{each.path}: {each.message}" for each in found[:3])
    return problem(
        422, BAD_REQUEST, detail, "The parameters are described in /openapi.json.", found
    )
