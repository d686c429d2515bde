"""Asks a registry, with a user's own password. Blocks; for threads.

The standard library does it (docs/adr/0024): redirects are followed without the password, and
to nowhere without TLS, this machine apart, to which no registry elsewhere may lead. Every
answer has a bound, and a least pace.
"""

import base64
import functools
import hashlib
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException, HTTPMessage, HTTPResponse, InvalidURL
from typing import IO, Any, Final, cast

from allotment.backends.local.images.helper import TOKEN
from allotment.backends.local.images.loopback import is_loopback
from allotment.backends.local.images.manifest import ACCEPTED
from allotment.backends.local.images.trouble import ImageTrouble, Kind, Unreachable
from allotment.model.image_names import Reference, pinned
from allotment.service.paced import PATIENCE_S, OverPlain, OverTls

WHOLE_S: Final = 45.0
"""For a manifest or a configuration."""
MOST_BYTES: Final = 8 << 20
"""Of a manifest or a configuration."""
_FIELD: Final = re.compile(r'(\w+)="([^"]*)"')
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,65536}")
_SHOWN: Final = 200
_PIECE: Final = 1 << 16


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = 3

    def __init__(self, registry: str, *, is_near: bool) -> None:
        self._registry, self._is_near = registry, is_near

    def http_error_302(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
    ) -> Any:
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except ValueError:
            fp.close()
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        fp.close()  # Else it is read to its end, which may be far.
        url = _followed(newurl, self._registry, is_near=self._is_near)
        return super().redirect_request(req, fp, code, msg, headers, url)


def _followed(url: str, registry: str, *, is_near: bool) -> str:
    """Return where a registry leads to, if it may. Raises ImageTrouble."""
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname or ""
    except ValueError as error:
        raise ImageTrouble(
            Kind.BROKEN, f"{registry} redirects to an invalid address."
        ) from error
    where = f"{parts.scheme}://{host}"[:_SHOWN]
    is_here = is_loopback(host)
    if is_here and not is_near:
        raise ImageTrouble(
            Kind.BROKEN, f"{registry} leads to {where}, which is the service's own machine."
        )
    if parts.scheme != "https" and not (parts.scheme == "http" and is_here):
        raise ImageTrouble(Kind.BROKEN, f"{registry} leads to {where}, which is without TLS.")
    return urllib.parse.urlunsplit(parts._replace(netloc=pinned(parts.netloc)))


@functools.lru_cache(maxsize=100)
def _opener(registry: str, *, is_near: bool) -> urllib.request.OpenerDirector:
    """Return what opens addresses of a registry: each submission asks, and it takes a while."""
    # Proxies are for what is far.
    handlers = [urllib.request.ProxyHandler({})] if is_near else []
    follow = _Redirects(registry, is_near=is_near)
    return urllib.request.build_opener(follow, OverPlain, OverTls, *handlers)


def _identity_in(basic: str) -> str:
    """Return the identity token that stands in place of a password; '' for none."""
    user, _, secret = base64.b64decode(basic).decode(errors="replace").partition(":")
    return secret if user == TOKEN else ""


class Registry:
    """One repository, as one user sees it."""

    def __init__(self, reference: Reference, basic: str = "") -> None:
        self.reference = reference
        self._basic = basic
        self._identity = _identity_in(basic)
        self._answer = ""
        """What is said in answer to a demand to log in; '' before the first."""
        self._opener = _opener(reference.registry, is_near=reference.is_near)

    def digest(self) -> str:
        """Ask for the digest of what its name means now: so this user may have it.

        Raises ImageTrouble.
        """
        with self._open(f"manifests/{self.reference.wanted}", "HEAD") as answer:
            found = answer.headers.get("Docker-Content-Digest", "")
        if not re.fullmatch(r"sha256:[0-9a-f]{64}", found):
            found = f"sha256:{hashlib.sha256(self._read(self.reference.wanted)).hexdigest()}"
        if self.reference.digest and found != self.reference.digest:
            raise self._lying(self.reference.digest)
        return found

    def manifest(self, digest: str) -> bytes:
        """Read a manifest. Raises ImageTrouble, also where it is another than was asked for."""
        return self._checked(self._read(digest), digest)

    def small_blob(self, digest: str) -> bytes:
        """Read a small thing as a whole. Raises ImageTrouble."""
        with self.blob(digest) as answer:
            return self._checked(self._take(answer), digest)

    def blob(self, digest: str) -> HTTPResponse:
        """Open a thing; whoever reads it checks its digest. Raises ImageTrouble."""
        return self._open(f"blobs/{digest}", "GET")

    def has_blob(self, digest: str) -> bool:
        """Whether it is in this repository, and this user may read it. Raises ImageTrouble."""
        try:
            self._open(f"blobs/{digest}", "HEAD").close()
        except ImageTrouble as trouble:
            if trouble.kind in {Kind.GONE, Kind.DENIED}:
                return False
            raise
        return True

    # ── asking ──────────────────────────────────────────────────────────────────────

    def _read(self, wanted: str) -> bytes:
        with self._open(f"manifests/{wanted}", "GET") as answer:
            return self._take(answer)

    def _take(self, answer: HTTPResponse) -> bytes:
        pieces: list[bytes] = []
        size, end = 0, time.monotonic() + WHOLE_S
        try:
            while piece := answer.read1(_PIECE):
                pieces.append(piece)
                size += len(piece)
                if size > MOST_BYTES:
                    raise ImageTrouble(
                        Kind.BROKEN,
                        f"{self.reference.registry} sends more than {MOST_BYTES >> 20} MiB in "
                        "place of a manifest or configuration.",
                    )
                if time.monotonic() > end:
                    raise self.away(TimeoutError("it is too slow to be of use"))
        except (OSError, HTTPException, ValueError) as error:
            raise self.away(error) from error
        if answer.length:
            raise self.away(EOFError("it stopped in the middle"))
        return b"".join(pieces)

    def _checked(self, data: bytes, digest: str) -> bytes:
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            raise self._lying(digest)
        return data

    def _open(self, path: str, method: str) -> HTTPResponse:
        url = f"{self.reference.base}/{path}"
        for _ in range(2):
            said = self._answer
            request = urllib.request.Request(url, method=method)  # noqa: S310 - http or https
            request.add_header("Accept", f"{ACCEPTED}, */*")
            request.add_header("User-Agent", "allotment")
            if said:
                request.add_unredirected_header("Authorization", said)
            try:
                return cast("HTTPResponse", self._opener.open(request, timeout=PATIENCE_S))
            except urllib.error.HTTPError as error:
                error.close()
                if error.code != 401 or said or not self._is_own(error.url):
                    raise self._refused(error.code) from error
                demand = error.headers.get("WWW-Authenticate", "")
                # Another layer may have logged in since this one asked.
                self._answer = self._answer or self._log_in(demand)
            except (OSError, HTTPException, ValueError) as error:
                raise self.away(error) from error
        raise self._refused(401)

    def _is_own(self, url: str) -> bool:
        """Whether an address is the registry's own, and not one it leads to."""
        own, other = (urllib.parse.urlsplit(each) for each in (self.reference.base, url))
        return (own.scheme, own.netloc) == (other.scheme, other.netloc)

    def _log_in(self, demand: str) -> str:
        """Answer a demand to log in. Raises ImageTrouble."""
        how, _, rest = demand.partition(" ")
        if how.lower() == "basic":
            if not self._basic:
                raise self._refused(401)
            if self._identity:
                raise ImageTrouble(
                    Kind.DENIED,
                    f"You have an identity token for {self.reference.registry}, which takes "
                    "passwords only.",
                )
            return f"Basic {self._basic}"
        fields: dict[str, str] = dict(_FIELD.findall(rest))
        realm = fields.pop("realm", "")
        if how.lower() != "bearer" or not realm:
            raise ImageTrouble(
                Kind.UNFIT,
                f"{self.reference.registry} asks for a kind of login that Allotment does not "
                "know.",
            )
        fields.pop("error", None)
        fields["scope"] = f"repository:{self.reference.repository}:pull"
        own = self.reference
        realm = _followed(realm, own.registry, is_near=own.is_near)
        try:
            token = self._token(realm, fields)
        except urllib.error.HTTPError as error:
            error.close()
            raise self._refused(error.code) from error
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            raise self.away(error) from error
        return f"Bearer {token}"

    def _token(self, realm: str, fields: dict[str, str]) -> str:
        """Ask for a token: with a password as Docker always did, with another by OAuth2."""
        if self._identity:
            grant = {
                "grant_type": "refresh_token",
                "client_id": "allotment",
                "refresh_token": self._identity,
            }
            data = urllib.parse.urlencode({**fields, **grant}).encode()
            request = urllib.request.Request(realm, data)  # noqa: S310 - http or https
        else:
            url = f"{realm}?{urllib.parse.urlencode(fields)}"
            request = urllib.request.Request(url)  # noqa: S310 - http or https
            if self._basic:
                request.add_unredirected_header("Authorization", f"Basic {self._basic}")
        with self._opener.open(request, timeout=PATIENCE_S) as answer:
            found: object = json.loads(self._take(answer))
        told = cast("dict[str, object]", found if isinstance(found, dict) else {})
        token = told.get("token") or told.get("access_token")
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise ValueError("an invalid token")
        return token

    # ── what it means ───────────────────────────────────────────────────────────────

    def _refused(self, code: int) -> ImageTrouble:
        name, registry = self.reference, self.reference.registry
        if code in {401, 403}:
            who = (
                "the password you have for it is refused"
                if self._basic
                else "you have no login"
            )
            return ImageTrouble(
                Kind.DENIED,
                f"You may not read {name}: {registry} says {code}, and {who}.",
                f"Log in: `allot image login {registry} --user NAME`; or ask its owner for "
                "access.",
            )
        if code == 404:
            return ImageTrouble(
                Kind.GONE, f"{registry} has no {name}, or none that you may see."
            )
        busy = f"{registry} cannot serve {name} now: it says {code}."
        if code >= 500:
            return Unreachable(busy)
        if code == 429:
            return ImageTrouble(Kind.AWAY, busy)
        return ImageTrouble(Kind.BROKEN, f"{registry} answers {code} when asked for {name}.")

    def away(self, error: BaseException) -> ImageTrouble:
        """Return what is meant where it does not answer, stops in the middle, or is odd.

        What is odd is not shown: it may have a password in it.
        """
        registry = self.reference.registry
        is_odd = not isinstance(error, (OSError, HTTPException, EOFError))
        if is_odd or isinstance(error, InvalidURL):
            return ImageTrouble(Kind.BROKEN, f"{registry} does not answer as a registry does.")
        reason = getattr(error, "reason", error)
        return Unreachable(f"The registry {registry} does not answer: {str(reason)[:_SHOWN]}.")

    def _lying(self, digest: str) -> ImageTrouble:
        return ImageTrouble(
            Kind.BROKEN,
            f"{self.reference.registry} sends other bytes of {self.reference} than those of "
            f"{digest[:19]}…",
        )
