"""Request bodies: bounded while they are read, then decoded into a known shape."""

import asyncio
import re
from typing import TypeVar

import msgspec
from msgspec import inspect
from starlette.requests import Request
from starlette.types import Receive

from allotment.model.errors import BadInput, Code, Problem, Rejected
from allotment.model.quantity import KIB, show_bytes

MOST_BYTES = 256 * KIB
PATIENCE_S = 60.0
"""How long a body may take to come: a request that waits for it is one of its user's few."""

T = TypeVar("T")


class Gone(Exception):
    """The client went away before its request was complete."""


def too_large(most: int = MOST_BYTES) -> Rejected:
    """Return the refusal of a body over the limit."""
    return Rejected(
        Code.TOO_LARGE,
        f"The body is larger than {show_bytes(most)}.",
        "Keep data in files that the job reads, and give their paths.",
    )


async def read_body(
    headers: list[tuple[bytes, bytes]], receive: Receive, most: int = MOST_BYTES
) -> bytes:
    """Read a request body of at most `most` bytes.

    Raises Rejected when the body is larger or comes too late, and Gone when the client leaves.
    """
    for name, value in headers:
        if name == b"content-length" and value.isdigit() and int(value[:18]) > most:
            raise too_large(most)
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await _all_of(receive, most)
    except TimeoutError:
        raise Rejected(
            Code.BAD_REQUEST,
            f"The body did not come within {PATIENCE_S:.0f} s of its headers.",
            "Send it again, as a whole.",
        ) from None


async def _all_of(receive: Receive, most: int) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body"):
        if len(body) > most:
            raise too_large(most)
        return body
    parts = [body]
    size = len(body)
    while message["type"] == "http.request" and message.get("more_body"):
        message = await receive()
        part: bytes = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if size > most:
            raise too_large(most)
    if message["type"] != "http.request":
        raise Gone
    return b"".join(parts)


def decode(body: bytes, shape: type[T]) -> T:
    """Read JSON of a known shape; an empty body is an empty object. Raises BadInput."""
    try:
        return msgspec.json.decode(body or b"{}", type=shape, strict=True)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        told = str(error) or "is nested too deeply"
        raise BadInput((Problem(told + _one_of(told, shape)),), "body") from error


async def read_as(request: Request, shape: type[T], most: int = MOST_BYTES) -> T:
    """Read the body of a request as JSON of a known shape. Raises as the two above do."""
    return decode(await read_body(request.scope["headers"], request.receive, most), shape)


_OUT_OF_LIST = re.compile(r"^Invalid enum value .* - at `\$\.(\w+)`$")


def _one_of(told: str, shape: type) -> str:
    """Return what a field may be of which a complaint says that it is not in a list."""
    found = _OUT_OF_LIST.match(told)
    if found is None:
        return ""
    info = inspect.type_info(shape)
    for field in info.fields if isinstance(info, inspect.StructType) else ():
        if field.encode_name != found[1]:
            continue
        kind = field.type
        if isinstance(kind, inspect.LiteralType):
            return f": one of {', '.join(map(str, kind.values))}"
        if isinstance(kind, inspect.EnumType):
            return f": one of {', '.join(str(each.value) for each in kind.cls)}"
    return ""
