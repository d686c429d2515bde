"""A line to a port of this machine that can be cut, as networks are."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator

PIECE = 1 << 16


class Line:
    """Passes what comes to `port` on to another one. A cut ends all that goes over it."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._ends: set[asyncio.StreamWriter] = set()
        self._is_down = False
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def cut(self) -> None:
        """Break what goes over it, with a reset, and let nothing through."""
        self._do(self._cut)

    def mend(self) -> None:
        """Let pass again what begins from now on."""
        self._is_down = False

    def close(self) -> None:
        """End it for good."""
        self._do(self._cut)
        self._do(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        if left := asyncio.all_tasks(self._loop):
            self._loop.run_until_complete(asyncio.wait(left))
        self._loop.close()

    def _do(self, act: Callable[[], None]) -> None:
        done = threading.Event()

        def do() -> None:
            act()
            done.set()

        self._loop.call_soon_threadsafe(do)
        done.wait()

    def _cut(self) -> None:
        self._is_down = True
        for end in self._ends:
            end.transport.abort()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._is_down:
            writer.transport.abort()
            return
        with contextlib.suppress(OSError):
            there, onward = await asyncio.open_connection("127.0.0.1", self._to)
            self._ends |= {writer, onward}
            await asyncio.gather(_pump(reader, onward), _pump(there, writer))
            self._ends -= {writer, onward}
        writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(PIECE):
            writer.write(piece)
            await writer.drain()
    writer.transport.abort()


@contextlib.contextmanager
def a_line(to: int) -> Iterator[Line]:
    """Open a line to a port, and close it."""
    line = Line(to)
    try:
        yield line
    finally:
        line.close()
