"""HTTP/1.1 to one server: short exchanges over kept connections, and answers that go on."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from allotment import __version__
from allotment.model.errors import BackendError, EngineAway

ANSWER_S = 30.0
CONNECT_S = 10.0
CONNECTIONS = 32
"""How many short exchanges run side by side."""
LONGEST_HEAD = 1 << 20
LONGEST_BODY = 1 << 30
"""Of an exchange: far above what the largest clusters say of all they have."""
PIECE = 1 << 16


class Answer(msgspec.Struct, frozen=True):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class Login(Protocol):
    """As whom a server is asked, and how it is known to be the right one."""

    async def headers(self) -> Mapping[str, str]:
        """Return what is to be shown now. Raises BackendError."""
        ...

    async def tls(self) -> ssl.SSLContext | None:
        """Return how to connect; None without TLS. Raises BackendError."""
        ...

    def forget(self) -> None:
        """Find out anew what to show: what was shown was not accepted."""


class _Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.is_used = False

    @property
    def is_open(self) -> bool:
        return not self._reader.at_eof() and not self._writer.is_closing()

    async def ask(self, head: bytes, body: bytes) -> Answer:
        """Send a request and return the head of its answer."""
        self._writer.write(head + body)
        await self._writer.drain()
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ", 2)[1])
        pairs = (line.partition(":") for line in lines[1:] if line)
        return Answer(status, {name.lower(): value.strip() for name, _, value in pairs})

    async def pieces(self, answer: Answer) -> AsyncIterator[bytes]:
        """Go through the body of an answer as it comes."""
        if "chunked" in answer.headers.get("transfer-encoding", ""):
            while size := int((await self._reader.readuntil(b"\r\n")).partition(b";")[0], 16):
                async for piece in self._exactly(size):
                    yield piece
                await self._reader.readexactly(2)
            await self._reader.readuntil(b"\r\n")
        elif "content-length" in answer.headers:
            async for piece in self._exactly(int(answer.headers["content-length"])):
                yield piece
        else:
            while piece := await self._reader.read(PIECE):
                yield piece

    async def _exactly(self, left: int) -> AsyncIterator[bytes]:
        """Go through so many bytes, without keeping them: a server may announce any number."""
        while left > 0:
            piece = await self._reader.read(min(left, PIECE))
            if not piece:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(piece)
            yield piece

    def close(self) -> None:
        """Close it without a farewell: a peer that does not answer one (TLS) would keep it open
        for 30 s more, and beyond the end of its loop."""
        self._writer.transport.abort()


BROKEN = (OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError)


class Quiet(EngineAway):
    """Nothing came for a while over a connection that is there, as far as one can see."""


class Http:
    """Asks one server: a URL, or `unix:PATH`. What keeps an answer away is EngineAway."""

    def __init__(self, server: str, login: Login, server_name: str = "") -> None:
        self.credentials, self._server_name = login, server_name
        self._socket = server.removeprefix("unix:") if server.startswith("unix:") else ""
        place = urlsplit("http://localhost" if self._socket else server.rstrip("/"))
        self._host = place.hostname or ""
        self._port = place.port or (443 if place.scheme == "https" else 80)
        self._authority, self._prefix = place.netloc, place.path
        self._called = self._socket or self._authority
        self._idle: list[_Wire] = []
        self._is_closed = False
        self._gate = asyncio.Semaphore(CONNECTIONS)

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        kind: str = "application/json",
        *,
        more: Mapping[str, str] = {},
        once: bool = False,
    ) -> Answer:
        """Ask, and return the whole answer. Raises EngineAway, BackendError.

        `more` are headers of this question. What was asked over a connection that just broke
        is asked again, unless it is to be asked `once`: as it does harm when done twice.
        """
        async with self._gate:
            for _ in range(CONNECTIONS + 2):
                head = await self._head(method, path, body, kind, more)
                wire = await (self._fresh() if once else self._wire())
                try:
                    async with asyncio.timeout(ANSWER_S):
                        answer = await self._whole(wire, head, body)
                except TimeoutError:
                    wire.close()
                    raise EngineAway(f"no answer from {self._called} in 30 s") from None
                except BROKEN as error:
                    wire.close()
                    if wire.is_used:
                        continue
                    raise EngineAway(f"{self._called}: {_words(error)}") from error
                except BaseException:
                    wire.close()
                    raise
                if self._is_closed or answer.headers.get("connection", "").lower() == "close":
                    wire.close()
                else:
                    wire.is_used = True
                    self._idle.append(wire)
                return answer
        raise EngineAway(f"{self._called} closes every connection")

    async def _whole(self, wire: _Wire, head: bytes, asked: bytes) -> Answer:
        answer = await wire.ask(head, asked)
        body = bytearray()
        async for piece in wire.pieces(answer):
            body += piece
            if len(body) > LONGEST_BODY:
                raise EngineAway(f"{self._called} answers with more than {LONGEST_BODY} bytes")
        return msgspec.structs.replace(answer, body=bytes(body))

    @contextlib.asynccontextmanager
    async def open(
        self, path: str, silence_s: float | None
    ) -> AsyncGenerator[tuple[Answer, AsyncIterator[bytes]]]:
        """Ask for an answer that goes on, over a connection of its own.

        Raises EngineAway where nothing comes for `silence_s`.
        """
        head = await self._head("GET", path, b"", "application/json", {})
        wire = await self._fresh()
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await wire.ask(head, b"")
            yield answer, _patient(wire.pieces(answer), silence_s)
        except (TimeoutError, *BROKEN) as error:
            raise EngineAway(f"{self._called}: {_words(error)}") from error
        finally:
            wire.close()

    def close(self) -> None:
        """Close what is kept open, and keep nothing open from now on."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    async def _head(
        self, method: str, path: str, body: bytes, kind: str, more: Mapping[str, str]
    ) -> bytes:
        shown = {**await self.credentials.headers(), **more}
        lines = [
            f"{method} {self._prefix}{path} HTTP/1.1",
            f"Host: {self._authority}",
            f"User-Agent: allotment/{__version__}",
            "Accept: application/json, */*",
            *(f"{name}: {value}" for name, value in shown.items()),
            *([f"Content-Type: {kind}"] if body else []),
            f"Content-Length: {len(body)}",
        ]
        if any("\n" in line or "\r" in line for line in lines):
            raise BackendError(
                f"a request to {self._called} would have a line break in its head"
            )
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    async def _wire(self) -> _Wire:
        while self._idle:
            wire = self._idle.pop()
            if wire.is_open:
                return wire
            wire.close()
        return await self._fresh()

    async def _fresh(self) -> _Wire:
        tls = await self.credentials.tls()
        name = self._server_name or self._host
        try:
            async with asyncio.timeout(CONNECT_S):
                if self._socket:
                    reader, writer = await asyncio.open_unix_connection(
                        self._socket, limit=LONGEST_HEAD
                    )
                else:
                    reader, writer = await asyncio.open_connection(
                        self._host, self._port, ssl=tls, limit=LONGEST_HEAD,
                        server_hostname=name if tls is not None else None,
                    )  # fmt: skip
        except (TimeoutError, OSError) as error:
            raise EngineAway(f"{self._called}: {_words(error)}") from error
        return _Wire(reader, writer)


async def _patient(
    pieces: AsyncIterator[bytes], silence_s: float | None
) -> AsyncIterator[bytes]:
    while True:
        try:
            async with asyncio.timeout(silence_s):
                piece = await anext(pieces)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise Quiet(f"nothing came for {silence_s:.0f} s") from None
        yield piece


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, EOFError):
        return "the connection broke"
    return str(error) or type(error).__name__
