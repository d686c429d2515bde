"""Connections that know who is at the other end: uvicorn's protocols, and the kernel's word.

A Unix socket tells the pid and uid of the process that connected (SO_PEERCRED). They travel
to the application as `scope["state"]["peer"]`; over TCP there is none. A connection's own
place among all is `scope["state"]["place"]`.
"""

import asyncio
import select
import socket
import struct
from typing import Any, cast

import msgspec
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from allotment.api.connections import Connections, Place, turned_away

UCRED = struct.Struct("3i")

MOST_HEAD_BYTES = 64 * 1024
"""Longest request line and headers; the parser itself would take any length."""

MOST_HEADERS = 100
"""Of one request. Each takes many times the memory of its bytes, as long as it is kept."""

MOST_PIPELINED = 8
"""Requests that wait behind one of the same connection; nobody who means well sends any."""

MOST_UNREAD_BYTES = 32 << 20
"""How much of a body is thrown away after its request was refused, before we hang up."""

TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class Unbounded(Exception):
    """A request, or a row of them, that would take too much memory. The parser stops."""


class Peer(msgspec.Struct, frozen=True, gc=False):
    """The process at the other end of a Unix socket."""

    pid: int
    uid: int


def peer_of(sock: socket.socket | None) -> Peer | None:
    """Return the process at the other end of a Unix socket, as the kernel says; else None."""
    if sock is None or sock.family != socket.AF_UNIX:
        return None
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, UCRED.size)
    pid, uid, _ = UCRED.unpack(raw)
    return Peer(pid, uid)


class PeerHttpProtocol(HttpToolsProtocol):
    """HTTP from a known peer, with bounds on what the parser leaves unbounded."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._place: Place | None = None
        self._answering: RequestResponseCycle | None = None
        self._head_bytes = 0
        self._unread_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        peer = peer_of(transport.get_extra_info("socket"))
        place = Place(cast("Connections", self.app_state["connections"]), transport)
        self.app_state = {**self.app_state, "peer": peer, "place": place}
        super().connection_made(transport)
        place.drained = self._drained
        place.gone = self._gone
        self._place = place
        if peer is None:
            place.wait()
        elif not place.take(peer.uid):
            transport.write(turned_away(peer.uid))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._place is not None:
            self._place.leave()
        self._gone()
        super().connection_lost(exc)
        self._forget()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _gone(self) -> None:
        """Let nothing more be sent. uvicorn tells only the request that was read last."""
        if self._answering is not None:
            self._answering.disconnected = True

    def _forget(self) -> None:
        """Let go of what was read: this object lives on until the collector finds it."""
        self.pipeline.clear()
        self.headers, self.url = [], b""
        self._answering = None
        self.scope = self.cycle = None  # type: ignore[assignment]

    async def _drained(self) -> None:
        """Return once little of what was sent waits to be taken, or nobody is there."""
        if self.flow.write_paused:
            await self.flow.drain()

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._head_bytes > MOST_HEAD_BYTES:
            self.send_400_response("")

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MOST_HEADERS:
            raise Unbounded
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MOST_PIPELINED:
            raise Unbounded
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be parsed; hang up where earlier requests have no answer yet."""
        if self.cycle and not self.cycle.response_complete:
            self.transport.abort()
        elif self._head_bytes > MOST_HEAD_BYTES or len(self.headers or ()) >= MOST_HEADERS:
            self.transport.write(TOO_LONG)
            self.transport.close()
        else:
            super().send_400_response(msg)

    def on_message_begin(self) -> None:
        self._head_bytes = self._unread_bytes = 0
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        self._head_bytes -= len(body)
        if self.cycle.response_complete:
            self._unread_bytes += len(body)
            if self._unread_bytes > MOST_UNREAD_BYTES:
                self.transport.close()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        super().on_message_complete()


class PeerWebSocketProtocol(WebSocketsSansIOProtocol):
    """A WebSocket that grew out of such a connection, counted with it.

    `scope["state"]["hung_up"]` says whether the client is gone. What it sent last may lie
    unread in front of its end, for as long as a command takes no input.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.app_state = {**self.app_state, "hung_up": self._has_hung_up}

    def _has_hung_up(self) -> bool:
        if self.disconnected:
            return True
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket"), select.POLLRDHUP)
        return bool(poll.poll(0))

    def connection_lost(self, exc: Exception | None) -> None:
        cast("Place", self.app_state["place"]).leave()
        super().connection_lost(exc)
