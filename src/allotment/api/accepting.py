"""Taking connections: all that wait, at once, so that nobody stands behind another's crowd.

The event loop's own server takes one a round. While a round is busy, a thousand connections
of one user would keep the next user's waiting for as many rounds.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence

from allotment.api.connections import Connections, turned_away
from allotment.api.peer import peer_of

AT_ONCE = 128
"""Connections taken in one round of the event loop: a few milliseconds, if it comes to it."""

PAUSE_S = 0.5
"""Before the next look, when the process has no descriptor left."""


class Accepting:
    """Takes the connections of listening sockets until it is closed."""

    def __init__(self, connections: Connections, make: Callable[[], asyncio.Protocol]) -> None:
        self._connections = connections
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._opening: set[asyncio.Task[object]] = set()

    def open(self, sockets: Sequence[socket.socket]) -> None:
        """Begin to take connections."""
        self._sockets += sockets
        for each in sockets:
            self._loop.add_reader(each, self._accept, each)

    def close(self) -> None:
        """Stop taking connections. The sockets stay open."""
        for each in self._sockets:
            self._loop.remove_reader(each)
        self._sockets.clear()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                taken, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor left: whoever waits goes on waiting
                self._loop.remove_reader(listening)
                self._loop.call_later(PAUSE_S, self._go_on, listening)
                return
            self._take(taken)

    def _go_on(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _take(self, taken: socket.socket) -> None:
        """Let a connection in, or turn it away before anything is made for it."""
        taken.setblocking(False)
        peer = peer_of(taken)
        if peer is not None and self._connections.are_all(peer.uid):
            with taken, contextlib.suppress(OSError):
                taken.send(turned_away(peer.uid))
            return
        opening = self._loop.create_task(self._open(taken))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    async def _open(self, taken: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, taken)
        except OSError:  # it is gone again
            taken.close()
