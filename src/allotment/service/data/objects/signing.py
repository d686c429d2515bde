"""Requests to object stores as their users sign them (AWS Signature Version 4). Pure.

Docs: docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import msgspec

EMPTY: Final = hashlib.sha256(b"").hexdigest()
_HOW: Final = "AWS4-HMAC-SHA256"
_PLAIN: Final = "-_.~"


class Key(msgspec.Struct, frozen=True):
    """With what a user signs."""

    id: str
    secret: str
    token: str = ""
    """Of a key that holds for a while."""

    def __repr__(self) -> str:
        return "Key(…)"


class StoreRequest(msgspec.Struct, frozen=True):
    """A request: its path as it is sent, with what is asked and the headers that count."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """`host` among them, by small letters."""


def path_of(*parts: str) -> str:
    """Return the path of a bucket, or of an object in it, as it is sent and signed."""
    return "".join(f"/{quote(part, safe='/' + _PLAIN)}" for part in parts)


def query_of(query: Mapping[str, str]) -> str:
    """Return what is asked as it is sent and signed: in order of names."""
    pairs = sorted((quote(k, safe=_PLAIN), quote(v, safe=_PLAIN)) for k, v in query.items())
    return "&".join(f"{name}={value}" for name, value in pairs)


def signed(
    asked: StoreRequest, key: Key, region: str, at: str, body: str = EMPTY
) -> dict[str, str]:
    """Return a request's headers with the signature. `at` is the time: 20261126T140000Z.

    `body` is the SHA-256 of what is sent.
    """
    headers = {**asked.headers, "x-amz-content-sha256": body, "x-amz-date": at}
    if key.token:
        headers["x-amz-security-token"] = key.token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name].strip()}\n" for name in sorted(headers))
    request = "\n".join((asked.method, asked.path, query_of(asked.query), lines, names, body))
    scope = f"{at[:8]}/{region}/s3/aws4_request"
    digest = hashlib.sha256(request.encode()).hexdigest()
    secret = f"AWS4{key.secret}".encode()
    for part in scope.split("/"):
        secret = hmac.digest(secret, part.encode(), "sha256")
    text = f"{_HOW}\n{at}\n{scope}\n{digest}".encode()
    signature = hmac.digest(secret, text, "sha256").hex()
    headers["Authorization"] = (
        f"{_HOW} Credential={key.id}/{scope},SignedHeaders={names},Signature={signature}"
    )
    return headers
