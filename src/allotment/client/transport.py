"""One request, one answer, over connections that are kept.

A kept connection may have died since its last use, and nothing tells before it is used. So
whatever may safely be said twice is said again, once, on a fresh one: reading always,
submitting because it carries a key.
"""

import contextlib
import http.client
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from allotment.client.address import Address
from allotment.client.errors import Unreachable, error_of

TIMEOUT_S = 60.0
"""For any request that is no stream. Submissions wait for a disk, nothing waits longer."""

TOO_MANY = 429
PAUSES_S = (1.0, 2.0, 4.0, 8.0)
"""Before a request is sent again that was one too many; then its refusal is passed on."""

LOST = (http.client.HTTPException, OSError)
"""What a connection raises when the other side is gone, or was never one of ours."""


Body: TypeAlias = bytes | Iterable[bytes | memoryview]
"""Pieces are for what is too large to be held; they can be read more than once."""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket; close it again when that fails."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(self.timeout)
            sock.connect(self._path)
        except BaseException:
            sock.close()
            raise
        self.sock = sock


class Reply:
    """An answer, its body still to be read. Closing it drops the connection."""

    def __init__(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> None:
        self._connection = connection
        self._socket: socket.socket | None = connection.sock
        self.response = response

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def content_type(self) -> str:
        return self.response.getheader("Content-Type", "")

    def wait_at_most(self, seconds: float) -> None:
        """Limit how long the next read may take."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.settimeout(max(seconds, 0.001))

    def read(self, size: int | None = None) -> bytes:
        """Read the body, or a piece of it. Raises Unreachable when the service is gone."""
        try:
            return self.response.read(size)
        except LOST as error:
            raise lost(error) from error

    def close(self) -> None:
        self.response.close()
        self._connection.close()


class Transport:
    """Speaks to the first address that answers. May be used from several threads."""

    def __init__(self, look: Callable[[], list[Address]], timeout: float = TIMEOUT_S) -> None:
        self._look = look
        self._timeout = timeout
        self._idle: list[http.client.HTTPConnection] = []
        self.address: Address | None = None
        """Where a service answered last."""

    def call(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        again: bool = False,
    ) -> Reply:
        """Send a request and return the answer, whatever its status.

        `again` says that it may be sent twice. Where the service says that this user asks
        for too much at once, nothing was done: it is sent again some times, later and later.
        Raises Unreachable.
        """
        for pause in PAUSES_S:
            reply = self._call(method, path, body, headers, again=again)
            if reply.status != TOO_MANY or _come_back_s(reply) > pause:
                return reply
            reply.close()
            time.sleep(pause)
        return self._call(method, path, body, headers, again=again)

    def _call(
        self,
        method: str,
        path: str,
        body: Body | None,
        headers: Mapping[str, str] | None,
        *,
        again: bool,
    ) -> Reply:
        connection, fresh = self._connection()
        try:
            return self._send(connection, method, path, body, headers or {})
        except LOST as error:
            connection.close()
            if fresh or not again:
                raise lost(error) from error
        connection = self._connect()
        try:
            return self._send(connection, method, path, body, headers or {})
        except LOST as error:
            connection.close()
            raise lost(error) from error

    def fetch(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        again: bool = False,
    ) -> bytes:
        """Send a request and return the body of a successful answer. Raises ApiError."""
        reply = self.call(method, path, body, headers, again=again)
        try:
            data = reply.read()
        except Unreachable:
            reply.close()
            raise
        self._keep(reply)
        if reply.status >= 400:
            raise error_of(reply.status, reply.content_type, data)
        return data

    def open(
        self, path: str, headers: Mapping[str, str] | None = None, timeout: float = TIMEOUT_S
    ) -> Reply:
        """Ask for something long: a stream, a file. The caller reads and closes it.

        `timeout` is for each read, the first one included.
        """
        connection = self._connect()
        connection.sock.settimeout(timeout)
        try:
            reply = self._send(connection, "GET", path, None, headers or {})
        except LOST as error:
            connection.close()
            raise lost(error) from error
        if reply.status >= 400:
            data = reply.read()
            reply.close()
            raise error_of(reply.status, reply.content_type, data)
        return reply

    def patient(self, timeout: float) -> "Transport":
        """Return another to the same service, which waits longer for each answer."""
        other = Transport(self._look, timeout)
        other.address = self.address
        return other

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    # ── connections ─────────────────────────────────────────────────────────────────────

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Body | None,
        headers: Mapping[str, str],
    ) -> Reply:
        token = self.address.token if self.address else ""
        own = {"Authorization": f"Bearer {token}"} if token else {}
        sent = {"Accept": "application/json", **own, **headers}
        with contextlib.suppress(BrokenPipeError):  # it may have said why before it hung up
            connection.request(method, path, body, sent)
        return Reply(connection, connection.getresponse())

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        try:
            return self._idle.pop(), False
        except IndexError:
            return self._connect(), True

    def _keep(self, reply: Reply) -> None:
        connection = reply._connection  # pyright: ignore[reportPrivateUsage] - a pair
        if connection.sock is not None:
            self._idle.append(connection)

    def _connect(self) -> http.client.HTTPConnection:
        """Connect to the first address that takes it. Raises Unreachable, naming them all."""
        tried: list[str] = []
        for address in self._look():
            connection = _connection_to(address, self._timeout)
            try:
                connection.connect()
            except OSError as error:
                tried.append(f"{address} ({_why(error)})")
                continue
            self.address = address
            return connection
        raise Unreachable(
            "No Allotment service answers at " + ", nor at ".join(tried) + ".",
            "Start one with `allot up`, or say where it is with --state or ALLOT_STATE.",
        )


def _connection_to(address: Address, timeout: float) -> http.client.HTTPConnection:
    if address.socket:
        return UnixConnection(address.socket, timeout)
    return http.client.HTTPConnection(address.host, address.port, timeout)


def _why(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "you may not connect to it: it is another user's"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror or str(error)).lower()


def lost(error: Exception) -> Unreachable:
    """Return the error for a service that answered before and does not any more."""
    if isinstance(error, TimeoutError):
        return Unreachable(
            "The service did not answer in time.",
            "See whether it is busy or stuck: `allot doctor`, and service.log in its folder.",
        )
    what = str(error) or type(error).__name__
    return Unreachable(
        f"The connection to the service was lost: {what}.",
        "If it stopped, start it again with `allot up`: running jobs continue, none is lost.",
    )


def _come_back_s(reply: Reply) -> float:
    """Return in how many seconds the service wants to be asked again."""
    told = reply.response.getheader("Retry-After", "1")
    return float(told) if told.isdecimal() else float("inf")
