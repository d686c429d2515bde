"""Asks a registry, with a user's own password. Blocks; for threads.

The standard library does it (docs/adr/0024): redirects are followed without the password, and
to nowhere without TLS, this machine apart. Every answer has a bound.
"""

import base64
import hashlib
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException, HTTPMessage, HTTPResponse
from typing import IO, Final, cast

from allotment.backends.local.images.manifest import ACCEPTED
from allotment.backends.local.images.reference import Reference, parse
from allotment.backends.local.images.trouble import ImageTrouble, Kind

PATIENCE_S: Final = 20.0
"""For a connection, and between two pieces of what comes."""
MOST_BYTES: Final = 8 << 20
"""Of a manifest or a configuration."""
_FIELD: Final = re.compile(r'(\w+)="([^"]*)"')
_SHOWN: Final = 200


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if not newurl.startswith("https://") and not _is_near(newurl):
            raise urllib.error.URLError(f"it leads to {newurl[:_SHOWN]}, which is without TLS")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _is_near(url: str) -> bool:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme == "http" and parse(f"{parts.netloc}/x").is_near


class Registry:
    """One repository, as one user sees it."""

    def __init__(self, reference: Reference, basic: str = "") -> None:
        self.reference = reference
        self._basic = basic
        self._answer = ""
        """What is said in answer to a demand to log in; '' before the first."""
        # Proxies are for what is far.
        handlers = [urllib.request.ProxyHandler({})] if reference.is_near else []
        self._opener = urllib.request.build_opener(_Redirects, *handlers)

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
        try:
            data = answer.read(MOST_BYTES + 1)
        except (OSError, HTTPException) as error:
            raise self.away(error) from error
        if len(data) > MOST_BYTES:
            raise ImageTrouble(
                Kind.BROKEN,
                f"{self.reference.registry} sends more than {MOST_BYTES >> 20} MiB in place of "
                "a manifest or configuration.",
            )
        return data

    def _checked(self, data: bytes, digest: str) -> bytes:
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            raise self._lying(digest)
        return data

    def _open(self, path: str, method: str) -> HTTPResponse:
        url = f"{self.reference.base}/{path}"
        for _ in range(2):
            request = urllib.request.Request(url, method=method)  # noqa: S310 - http or https
            request.add_header("Accept", f"{ACCEPTED}, */*")
            request.add_header("User-Agent", "allotment")
            if self._answer:
                request.add_unredirected_header("Authorization", self._answer)
            try:
                return cast("HTTPResponse", self._opener.open(request, timeout=PATIENCE_S))
            except urllib.error.HTTPError as error:
                error.close()
                if error.code != 401 or self._answer:
                    raise self._refused(error.code) from error
                self._answer = self._log_in(error.headers.get("WWW-Authenticate", ""))
            except (OSError, HTTPException) as error:
                raise self.away(error) from error
        raise self._refused(401)

    def _log_in(self, demand: str) -> str:
        """Answer a demand to log in. Raises ImageTrouble."""
        how, _, rest = demand.partition(" ")
        if how.lower() == "basic":
            if not self._basic:
                raise self._refused(401)
            return f"Basic {self._basic}"
        fields: dict[str, str] = dict(_FIELD.findall(rest))
        realm = fields.pop("realm", "")
        if how.lower() != "bearer" or not (realm.startswith("https://") or _near(realm)):
            raise ImageTrouble(
                Kind.UNFIT,
                f"{self.reference.registry} wants a kind of log-in that is not known.",
            )
        fields.pop("error", None)
        fields["scope"] = f"repository:{self.reference.repository}:pull"
        request = urllib.request.Request(f"{realm}?{urllib.parse.urlencode(fields)}")  # noqa: S310
        if self._basic:
            request.add_unredirected_header("Authorization", f"Basic {self._basic}")
        try:
            with self._opener.open(request, timeout=PATIENCE_S) as answer:
                told = json.loads(answer.read(MOST_BYTES))
            token = told.get("token") or told["access_token"]
        except urllib.error.HTTPError as error:
            error.close()
            raise self._refused(error.code) from error
        except (OSError, HTTPException, ValueError, KeyError, AttributeError) as error:
            raise self.away(error) from error
        return f"Bearer {token}"

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
                f"Log in: `allot image login {registry}`; or ask its owner for access.",
            )
        if code == 404:
            return ImageTrouble(
                Kind.GONE, f"{registry} has no {name}, or none that you may see."
            )
        if code == 429 or code >= 500:
            return ImageTrouble(
                Kind.AWAY, f"{registry} cannot serve {name} now: it says {code}."
            )
        return ImageTrouble(Kind.BROKEN, f"{registry} answers {code} when asked for {name}.")

    def away(self, error: BaseException) -> ImageTrouble:
        """Return what is meant where it does not answer, or stops in the middle."""
        reason = getattr(error, "reason", error)
        return ImageTrouble(
            Kind.AWAY,
            f"The registry {self.reference.registry} does not answer: {str(reason)[:_SHOWN]}.",
        )

    def _lying(self, digest: str) -> ImageTrouble:
        return ImageTrouble(
            Kind.BROKEN,
            f"{self.reference.registry} sends other bytes of {self.reference} than those of "
            f"{digest[:19]}…",
        )


def _near(realm: str) -> bool:
    try:
        return _is_near(realm)
    except ValueError:
        return False


def basic(user: str, password: str) -> str:
    """Return a name and a password as a header has them."""
    return base64.b64encode(f"{user}:{password}".encode()).decode()
