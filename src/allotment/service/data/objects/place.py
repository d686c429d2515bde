"""Where the objects of a dataset are, as its owner says it. Pure."""

import re
from typing import Final

from allotment.model.datasets import ObjectPlace
from allotment.model.errors import Code, Rejected
from allotment.service.data.objects.address import BadAddress, checked
from allotment.service.data.view import ObjectsNote

_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_REGION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,39}")
_PROFILE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@+-]{0,79}")
_LONGEST_PREFIX: Final = 900


def place_of(note: ObjectsNote) -> ObjectPlace:
    """Read where objects are. Raises Rejected."""
    scheme, slashes, rest = note.url.partition("://")
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.rstrip("/")
    if scheme != "s3" or not slashes or not _BUCKET.fullmatch(bucket):
        raise _wrong(f"{note.url[:200]!r} names no bucket", "Write s3://BUCKET/PREFIX.")
    is_plain = prefix.isprintable() and len(prefix.encode()) <= _LONGEST_PREFIX
    if prefix and (not is_plain or {"", ".", ".."} & set(prefix.split("/"))):
        raise _wrong(
            f"{prefix[:200]!r} is not a prefix under which objects can be files",
            "Write s3://BUCKET/PREFIX, without '//', '.' and '..' in it.",
        )
    if not _REGION.fullmatch(note.region):
        raise _wrong(f"{note.region[:80]!r} is not a region", "Write it like eu-central-1.")
    if note.profile and not _PROFILE.fullmatch(note.profile):
        raise _wrong(
            f"{note.profile[:80]!r} cannot be a profile", "Name one of ~/.aws/credentials."
        )
    try:
        endpoint = checked(note.endpoint or f"https://s3.{note.region}.amazonaws.com")
    except BadAddress as error:
        raise _wrong(
            f"the endpoint {note.endpoint[:200]!r} {error}",
            "Write https://HOST or https://HOST:PORT; on this machine http://localhost:PORT.",
        ) from error
    return ObjectPlace(endpoint, bucket, prefix, note.region, note.profile)


def _wrong(what: str, hint: str) -> Rejected:
    return Rejected(Code.BAD_REQUEST, f"objects: {what}.", hint)
