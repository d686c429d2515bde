"""uvicorn, lean and on our sockets, with our signals and a stop of two seconds at most."""

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Generator

from starlette.types import ASGIApp
from uvicorn import Config, Server

from allotment.api.accepting import Accepting
from allotment.api.connections import Connections
from allotment.api.peer import PeerHttpProtocol, PeerWebSocketProtocol

STOP_S = 1
"""For answers under way. Streams end by themselves when told to."""

MOST_FRAME = 4 << 20
KEEP_ALIVE_S = 75


class ApiServer(Server):
    """Serves one application on sockets that are listening already."""

    def __init__(self, app: ASGIApp, stopping: asyncio.Event) -> None:
        super().__init__(
            Config(
                app,
                loop="none",
                http=PeerHttpProtocol,
                ws=PeerWebSocketProtocol,
                ws_max_size=MOST_FRAME,
                # A pong waits behind input that the command does not take: silence is no end.
                ws_ping_interval=None,
                ws_per_message_deflate=False,
                lifespan="off",
                interface="asgi3",
                log_config=None,
                log_level="critical",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=STOP_S,
            )
        )
        self._stopping = stopping
        self.on_started: Callable[[], None] = lambda: None
        """Called once it listens."""

    def stop(self) -> None:
        """Ask the server to end. May be called from a signal handler."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        connections = self.lifespan.state["connections"] = Connections()
        await super().startup([])
        self._accepting = Accepting(connections, self._protocol)
        self._accepting.open(sockets or [])
        self.on_started()

    def _protocol(self) -> asyncio.Protocol:
        return PeerHttpProtocol(self.config, self.server_state, self.lifespan.state)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stopping.set()
        self._accepting.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """End on SIGTERM and SIGINT, in an orderly way and with exit code 0."""
        if threading.current_thread() is not threading.main_thread():
            yield  # signals are the main thread's
            return
        loop = asyncio.get_running_loop()
        signals = (signal.SIGTERM, signal.SIGINT)
        for each in signals:
            loop.add_signal_handler(each, self.stop)
        try:
            yield
        finally:
            for each in signals:
                loop.remove_signal_handler(each)
