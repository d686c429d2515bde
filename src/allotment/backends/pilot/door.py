"""Where runners dial in: TLS with a key of the service's own, which each runner is given.

Its address lies on the shared disk, and is read for every dial: a service may move.
"""

import asyncio
import contextlib
import hmac
import socket
import ssl
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import structlog

from allotment.backends.pilot.messages import (
    LONGEST_HELLO,
    FromAgent,
    Hello,
    Refused,
    Welcome,
    framed,
    next_frame,
    unpacked,
)
from allotment.model.errors import BackendError
from allotment.rights.writing import write_whole

log = structlog.get_logger("allot.pilot")

HELLO_S = 10.0
MOST_UNKNOWN = 256
"""Of callers that have not said who they are: a crowd of them pushes itself out."""
ADDRESS = "address"
CERTIFICATE, KEY = "certificate.pem", "key.pem"
YEARS = 100 * 365

Meet = Callable[[Hello, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class NotAdmitted(Exception):
    """A runner that is not the expected one: the reason is told to it."""


def certificate(folder: Path) -> str:
    """Return the service's certificate, made at the first call. Raises BackendError."""
    path = folder / CERTIFICATE
    if not path.exists():
        part = folder / f"{CERTIFICATE}.part"
        words = [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
            "ec_paramgen_curve:prime256v1", "-nodes", "-days", str(YEARS), "-subj",
            "/CN=allotment", "-keyout", str(folder / KEY), "-out", str(part),
        ]  # fmt: skip
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, check=False, umask=0o77
            )
        except OSError as error:
            raise BackendError(
                f"`openssl` cannot be run: {error.strerror}. It makes the key by which the "
                "runners on the nodes know this service: install it."
            ) from error
        if done.returncode != 0:
            raise BackendError(f"openssl made no key: {' '.join(done.stderr.split())[-300:]}")
        part.rename(path)
    return path.read_text()


class Door:
    """Listens on one address. `admit` looks at a hello and raises NotAdmitted."""

    def __init__(self, folder: Path, admit: Callable[[Hello], None], meet: Meet) -> None:
        self._folder = folder
        self._admit = admit
        self._meet = meet
        self._server: asyncio.Server | None = None
        self._meetings: set[asyncio.Task[None]] = set()
        self.address = ""
        """Host and port, once it is open."""
        self._unknown: dict[asyncio.Task[None], None] = {}
        """Those that have not said who they are, the oldest first."""

    async def open(self, towards: Sequence[str]) -> None:
        """Listen where the nodes reach us; write the address down. Raises BackendError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self._folder / CERTIFICATE, self._folder / KEY)
        host = own_address(towards)
        for port in (self._last_port(host), 0):
            try:
                self._server = await asyncio.start_server(
                    self._take,
                    host,
                    port,
                    ssl=context,
                    backlog=1024,
                    ssl_handshake_timeout=HELLO_S,
                )
                break
            except OSError as error:
                if not port:
                    raise BackendError(
                        f"the service cannot listen on {host} for runners: {error.strerror}"
                    ) from error
        assert self._server is not None
        self.address = f"{host} {self._server.sockets[0].getsockname()[1]}"
        write_whole(self._folder / ADDRESS, f"{self.address}\n".encode())

    def _last_port(self, host: str) -> int:
        """Return where runners that cannot look it up still dial; 0 if that is elsewhere."""
        try:
            was, port = (self._folder / ADDRESS).read_text().split()
        except (OSError, ValueError):
            return 0
        return int(port) if was == host and port.isdecimal() else 0

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for meeting in list(self._meetings):
            meeting.cancel()
        await asyncio.gather(*self._meetings, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._meetings.add(task)
        self._unknown[task] = None
        if len(self._unknown) > MOST_UNKNOWN:
            next(iter(self._unknown)).cancel()  # A runner says who it is at once.
        try:
            async with asyncio.timeout(HELLO_S):
                hello = await self._hello(reader, writer)
            self._unknown.pop(task, None)
            if hello is not None:
                await self._meet(hello, reader, writer)
        except (OSError, EOFError, ValueError):
            pass  # Somebody else's knock, or a runner that dials again.
        except asyncio.CancelledError:
            pass  # The service ends; the server's own callback would log it.
        finally:
            self._meetings.discard(task)
            self._unknown.pop(task, None)
            with contextlib.suppress(OSError):
                writer.close()

    async def _hello(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Hello | None:
        hello: FromAgent = unpacked(await next_frame(reader, LONGEST_HELLO), FromAgent)
        if not isinstance(hello, Hello):
            return None
        try:
            self._admit(hello)
        except NotAdmitted as refusal:
            log.warning("a runner is refused", node=hello.node, why=str(refusal))
            writer.write(framed(Refused(str(refusal))))
            await writer.drain()
            return None
        writer.write(framed(Welcome()))
        return hello


def is_same(one: str, other: str) -> bool:
    """Whether two secrets are equal, in a time that does not show how alike they are."""
    return bool(one) and hmac.compare_digest(one.encode(), other.encode())


def own_address(towards: Sequence[str]) -> str:
    """Return the address of this machine by which it reaches the nodes. Raises BackendError."""
    trouble = ["there are no nodes"]
    for family in (socket.AF_INET, socket.AF_INET6):
        for node in towards:
            try:
                with socket.socket(family, socket.SOCK_DGRAM) as probe:
                    probe.connect((node, 9))  # Nothing is sent: it only picks the way.
                    return probe.getsockname()[0]
            except OSError as error:
                trouble.append(f"{node}: {error.strerror or error}")
    why = trouble[len(towards)]  # By IPv4: few sites have only the other.
    raise BackendError(f"no node of the partition has an address that can be used: {why}")
