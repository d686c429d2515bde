"""Asks an object store, with a user's own key. Blocks; for threads.

The standard library does it, as with registries (docs/adr/0044): every answer has a bound and a
least pace, and no redirect is followed. One of these for each thread.
"""

import re
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Final
from urllib.parse import urlsplit

import msgspec

from allotment.model.datasets import ObjectPlace
from allotment.model.quantity import show_bytes
from allotment.rights.user import User
from allotment.service.data.objects.address import connection
from allotment.service.data.objects.listing import (
    BadPage,
    Object,
    Page,
    error_code,
    page_of,
    told_of,
)
from allotment.service.data.objects.signing import (
    EMPTY,
    Key,
    StoreRequest,
    path_of,
    query_of,
    signed,
)
from allotment.service.data.objects.trouble import Kind, StoreTrouble

TRIES: Final = 4
FIRST_PAUSE_S: Final = 0.25
MOST_PAGE: Final = 8 << 20
_MOST_ERROR: Final = 64 << 10
_A_PAGE: Final = "1000"
_PIECE: Final = 1 << 18
_SHOWN: Final = 200
_ELSEWHERE: Final = {301, 307}
_DONE: Final = {"GET": "read", "PUT": "written", "POST": "written", "DELETE": "removed"}
_MOST_LISTED: Final = 1_000_000
_REGION: Final = re.compile(r"[a-z0-9-]{1,40}")


class Stopped(Exception):
    """Nobody waits for it any more."""


class Body(msgspec.Struct, frozen=True):
    """What is sent: the SHA-256 of it, and what gives its bytes, anew at each call."""

    digest: str
    read: Callable[[], Iterator[bytes]]


class Told(msgspec.Struct, frozen=True):
    """What a store answers to what is neither a list nor an object."""

    data: bytes
    etag: str


class Bucket:
    """A place in a store as one user sees it. `is_wanted` says whether to go on."""

    def __init__(
        self,
        place: ObjectPlace,
        key: Key | None,
        user: User | None,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self.place = place
        self._key = key
        self._user = user
        self._is_wanted = is_wanted
        self.host = urlsplit(place.endpoint).netloc
        self._connection: HTTPConnection | None = None
        self._failed = StoreTrouble(Kind.AWAY, f"The object store {self.host} does not answer.")

    def another(self, is_wanted: Callable[[], bool]) -> "Bucket":
        """Return one more connection to the same place, for another thread."""
        return Bucket(self.place, self._key, self._user, is_wanted)

    def adopt(self, other: "Bucket") -> None:
        """Take over another's connection, if it is to the same place with the same key."""
        if (other.place, other._key, other._user) == (self.place, self._key, self._user):
            self._connection, other._connection = other._connection, None
        other.close()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody still waits for what it does."""
        return self._is_wanted()

    def close(self) -> None:
        """Close the connection; the next request makes another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ── listing ─────────────────────────────────────────────────────────────────────

    def objects(self, most: int, most_bytes: int, aside: str = "") -> list[Object]:
        """List what is under the prefix, by whole names, or the one object that it names.

        What begins with `aside` there is left out, and does not count. Raises Stopped, and
        StoreTrouble, also where it is more than may be.
        """
        prefix = self.place.prefix
        start = f"{prefix}/" if prefix else ""
        found = self._all(start, most, most_bytes, f"{start}{aside}" if aside else "")
        if found or not prefix:
            return found
        # In order of names the prefix itself comes before all that only begin with it.
        page = self._page({"prefix": prefix, "max-keys": "1"})
        return [each for each in page.objects if each.path == prefix]

    def starting_with(self, start: str) -> list[str]:
        """List the names of the objects that begin so. Raises StoreTrouble and Stopped."""
        return [each.path for each in self.below(start)]

    def below(self, start: str) -> list[Object]:
        """List the objects whose names begin so. Raises StoreTrouble and Stopped."""
        return self._all(start, _MOST_LISTED, sys.maxsize)

    def _all(self, prefix: str, most: int, most_bytes: int, aside: str = "") -> list[Object]:
        found: list[Object] = []
        size, token = 0, ""
        while True:
            query = {"prefix": prefix, "max-keys": _A_PAGE}
            page = self._page(query | ({"continuation-token": token} if token else {}))
            fresh = [
                each for each in page.objects if not (aside and each.path.startswith(aside))
            ]
            found += fresh
            size += sum(each.size for each in fresh)
            if any(not each.path.startswith(prefix) for each in page.objects):
                raise self.odd("it lists what was not asked for")
            if len(found) > most or size > most_bytes:
                raise StoreTrouble(
                    Kind.TOO_LARGE,
                    f"{self.place} has more than {most:,} objects, or than "
                    f"{show_bytes(most_bytes)}, which is all that may be.",
                )
            if not page.next:
                return found
            token = page.next

    def _page(self, query: dict[str, str]) -> Page:
        asked = {"list-type": "2", "encoding-type": "url", **query}
        for _ in self._tries():
            with self._again(), self._open("GET", "", asked) as answer:
                try:
                    return page_of(self._taken(answer, MOST_PAGE))
                except BadPage as error:
                    raise self.odd(str(error)) from error
        raise AssertionError  # the last try returns or raises

    # ── fetching ────────────────────────────────────────────────────────────────────

    def read(self, key: str, size: int, etag: str, start: int = 0) -> Iterator[bytes]:
        """Yield an object in this very state, from a byte before its end on, piece by piece.

        What was cut off goes on where it was: each byte comes once. Raises StoreTrouble and
        Stopped.
        """
        done = start
        for _ in self._tries():
            with self._again():
                headers = {"if-match": f'"{etag}"'}
                if done:
                    headers["range"] = f"bytes={done}-"
                with self._open("GET", key, {}, headers) as answer:
                    skip = done if _is_whole(answer) else 0
                    self._check(answer, key, size - done + skip, etag)
                    while piece := answer.read1(_PIECE):
                        if not self._is_wanted():
                            self.close()
                            raise Stopped
                        fresh, skip = piece[skip:], max(0, skip - len(piece))
                        done += len(fresh)
                        if done > size:
                            raise self._changed(key)
                        if fresh:
                            yield fresh
                if done < size:
                    raise EOFError("it stopped in the middle")
                return

    def _check(self, answer: HTTPResponse, key: str, left: int, etag: str) -> None:
        """Raise StoreTrouble where what comes is not what was listed."""
        told = (answer.headers.get("ETag") or "").strip().strip('"')
        if told != etag or answer.length not in {None, left}:
            raise self._changed(key)

    # ── putting ─────────────────────────────────────────────────────────────────────

    def put(
        self, key: str, size: int, digest: str, read: Callable[[], Iterator[bytes]]
    ) -> None:
        """Put an object as a whole. `read` gives its bytes, anew at each call.

        A store that takes it too slowly is given up. Raises StoreTrouble, Stopped, and what
        `read` raises: no OSError, which would be taken for the connection's.
        """
        self.ask("PUT", key, {}, size, Body(digest, read))

    def copy(self, source: str, etag: str, key: str) -> None:
        """Have the store copy an object, if it is in this state. Raises StoreTrouble, Stopped.

        Stores may say 200 and then that it failed.
        """
        more = {
            "x-amz-copy-source": path_of(self.place.bucket, source),
            "x-amz-copy-source-if-match": f'"{etag}"',
        }
        told = self.ask("PUT", key, {}, more=more)
        try:
            told_of(told.data, "CopyObjectResult")
        except BadPage as error:
            raise self.odd(f"it did not copy {source[:_SHOWN]}: {error}") from error

    def remove(self, key: str) -> None:
        """Remove an object, if it is there. Raises StoreTrouble and Stopped."""
        try:
            self.ask("DELETE", key, {})
        except StoreTrouble as trouble:
            if trouble.kind is not Kind.GONE:
                raise

    def ask(
        self,
        method: str,
        key: str,
        query: Mapping[str, str],
        size: int = 0,
        body: Body | None = None,
        more: Mapping[str, str] | None = None,
    ) -> Told:
        """Ask for something that may be asked for twice. `size` is the body's.

        `more` are further headers.

        Raises StoreTrouble, Stopped, and what the body raises.
        """
        headers = {"content-length": str(size)} if method in {"PUT", "POST"} else {}
        headers |= more or {}
        for _ in self._tries():
            with self._again(), self._open(method, key, query, headers, body) as answer:
                return Told(self._taken(answer, MOST_PAGE), answer.headers.get("ETag") or "")
        raise AssertionError  # the last try returns or raises

    # ── asking ──────────────────────────────────────────────────────────────────────

    @contextmanager
    def _again(self) -> Generator[None]:
        """Turn what a connection can run into into StoreTrouble."""
        try:
            yield
        except (OSError, HTTPException, EOFError, ValueError) as error:
            self.close()
            why = error.strerror if isinstance(error, OSError) else ""
            told = (why or str(error))[:_SHOWN] or type(error).__name__
            self._failed = StoreTrouble(
                Kind.AWAY, f"The object store {self.host} does not answer: {told}."
            )
        except StoreTrouble as trouble:
            self.close()
            if not trouble.is_passing:
                raise
            self._failed = trouble

    def _tries(self) -> Iterator[None]:
        """Yield for each try, with longer and longer pauses; raise what the last ran into."""
        pause_s = FIRST_PAUSE_S
        for number in range(TRIES):
            if number:
                time.sleep(pause_s)
                pause_s *= 3
            if not self._is_wanted():
                raise Stopped
            yield
        raise self._failed

    @contextmanager
    def _open(
        self,
        method: str,
        key: str,
        query: Mapping[str, str],
        more: Mapping[str, str] | None = None,
        body: Body | None = None,
    ) -> Generator[HTTPResponse]:
        if self._connection is None:
            self._connection = connection(self.place.endpoint, self._user)
        parts = (self.place.bucket, key) if key else (self.place.bucket,)
        asked = StoreRequest(
            method, path_of(*parts), query, {"host": self.host, **(more or {})}
        )
        headers = dict(asked.headers)
        if self._key is not None:
            at = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
            digest = body.digest if body is not None else EMPTY
            headers = signed(asked, self._key, self.place.region, at, digest)
        target = f"{asked.path}?{query_of(query)}" if query else asked.path
        sent = self._sent(body) if body is not None else None
        try:
            self._connection.request(method, target, body=sent, headers=headers)
        except (BrokenPipeError, ConnectionResetError):
            if sent is None:
                raise
            # It may have answered before it took all; if not, that is told next.
        answer = self._connection.getresponse()
        if answer.status not in {200, 204, 206}:
            raise self._refused(answer, key, _DONE[method])
        try:
            yield answer
        finally:
            answer.close()

    def _sent(self, body: Body) -> Iterator[bytes]:
        """Yield what is to be sent; each piece has to go within the patience for one."""
        for piece in body.read():
            if not self._is_wanted():
                raise Stopped
            yield piece

    def _taken(self, answer: HTTPResponse, most: int) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while piece := answer.read1(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if not self._is_wanted():
                self.close()
                raise Stopped
            if size > most:
                raise self.odd(f"it sends more than {most >> 20} MiB for one page")
        if answer.length:
            raise EOFError("it stopped in the middle")
        return b"".join(pieces)

    # ── what it means ───────────────────────────────────────────────────────────────

    def _refused(self, answer: HTTPResponse, key: str, done: str) -> StoreTrouble:
        """Return what a refusal means. Of the store's words only a code is shown."""
        try:
            data = answer.read1(_MOST_ERROR)
        finally:
            answer.close()  # Where it is the last one, the connection is its own.
            self.close()
        code, status = error_code(data), answer.status
        says = f"{self.host} says {status}" + (f" {code}" if code else "")
        what = f"s3://{self.place.bucket}/{key}" if key else str(self.place)
        region = answer.headers.get("x-amz-bucket-region") or ""
        region = region if _REGION.fullmatch(region) else ""
        if status in _ELSEWHERE or code == "AuthorizationHeaderMalformed":
            there = f", and that it is in {region}" if region else ""
            return StoreTrouble(
                Kind.BROKEN,
                f"{self.place} is not found by region {self.place.region}: {says}{there}.",
                "Make the dataset with the bucket's own `--region`.",
            )
        if code == "RequestTimeTooSkewed":
            return StoreTrouble(
                Kind.AWAY, f"{says}: the clock of this machine differs from the store's."
            )
        if status in {401, 403}:
            with_key = (
                f"with the key of profile {self.place.profile}"
                if self._key
                else "without a key"
            )
            return StoreTrouble(Kind.DENIED, f"{what} may not be {done} {with_key}: {says}.")
        if status == 404:
            return StoreTrouble(Kind.GONE, f"There is no {what}: {says}.")
        if status == 412:
            return self._changed(key)
        if status == 429 or status >= 500:
            return StoreTrouble(Kind.AWAY, f"{what} cannot be {done} now: {says}.")
        return StoreTrouble(Kind.BROKEN, f"{what} cannot be {done}: {says}.")

    def _changed(self, key: str) -> StoreTrouble:
        return StoreTrouble(
            Kind.CHANGED,
            f"s3://{self.place.bucket}/{key} is not what it was when this version was made.",
        )

    def odd(self, why: str) -> StoreTrouble:
        """Return that a store answers what none does."""
        return StoreTrouble(
            Kind.BROKEN, f"{self.host} does not answer as an object store does: {why}."
        )


def _is_whole(answer: HTTPResponse) -> bool:
    """Whether an object comes from its beginning on. Some stores say 200 to a part, too."""
    return answer.status == 200 and "Content-Range" not in answer.headers
