"""Request bodies: bounded while they are read, then decoded into a known shape."""

from typing import TypeVar

import msgspec
from starlette.types import Receive

from allotment.model.errors import BadInput, Code, Problem, Rejected
from allotment.model.quantity import KIB, show_bytes

MOST_BYTES = 256 * KIB

T = TypeVar("T")


class Gone(Exception):
    """The client went away before its request was complete."""


def too_large() -> Rejected:
    """Make the refusal of a body over the limit."""
    return Rejected(
        Code.TOO_LARGE,
        f"The body is larger than {show_bytes(MOST_BYTES)}.",
        "Keep data in files that the job reads, and give their paths.",
    )


async def read_body(
    headers: list[tuple[bytes, bytes]], receive: Receive, most: int = MOST_BYTES
) -> bytes:
    """Read a body of at most `most` bytes. Raises Rejected as soon as it is larger."""
    for name, value in headers:
        if name == b"content-length" and value.isdigit() and int(value[:18]) > most:
            raise too_large()
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body"):
        if len(body) > most:
            raise too_large()
        return body
    parts = [body]
    size = len(body)
    while message["type"] == "http.request" and message.get("more_body"):
        message = await receive()
        part: bytes = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if size > most:
            raise too_large()
    if message["type"] != "http.request":
        raise Gone
    return b"".join(parts)


def decode(body: bytes, shape: type[T]) -> T:
    """Read JSON of a known shape; an empty body is an empty object. Raises BadInput."""
    try:
        return msgspec.json.decode(body or b"{}", type=shape, strict=True)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadInput((Problem(str(error) or "is nested too deeply"),), "body") from error
