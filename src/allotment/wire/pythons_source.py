"""Where Pythons come from that a machine does not have, as the configuration says it."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import PlainValidator

from allotment.wire import words
from allotment.wire.amiss import Amiss

_LIKE = (
    "write https://HOST/FOLDER or file:///FOLDER, of a mirror, or of a list that ends in .json"
)


def read_source(value: object) -> str:
    """Read the address of a mirror, or of a list."""
    source = words.read_word(value)
    if not source:
        return ""
    try:
        place = urlsplit(source)
    except ValueError:
        raise Amiss("is not an address", _LIKE) from None
    if place.username is not None or place.password is not None:
        raise Amiss("has a password, which everybody would see", "take it out")
    is_file = place.scheme == "file" and not place.netloc and place.path.startswith("/")
    if not is_file and not (place.scheme in ("http", "https") and place.hostname):
        raise Amiss("is not an address of HTTP or of a folder", _LIKE)
    if place.query or place.fragment:
        raise Amiss("has more than a host, a port and a path", _LIKE)
    return source.rstrip("/")


PythonsWord = Annotated[str, PlainValidator(read_source, json_schema_input_type=str)]
