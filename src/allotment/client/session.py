"""A terminal in a running task: bytes both ways over a WebSocket.

The connection lives in an event loop of its own thread. A client that sends and receives by
turns would stop for ever where both sides wait to be read, as in `allot exec … cat < file`.
Imported only when one is opened: no other request needs these libraries.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, suppress
from typing import Any, Self, TypeVar

import msgspec
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import (
    ConnectionClosed,
    ConnectionClosedOK,
    InvalidHandshake,
    InvalidStatus,
)

from allotment.client.address import Address
from allotment.client.errors import ApiError, Unreadable, error_of
from allotment.client.transport import lost

T = TypeVar("T")

MOST_FRAME = 1 << 22
CHUNK = 1 << 16
CLOSE_S = 1.0
"""To say goodbye in."""


class _Ending(msgspec.Struct):
    exit: int


class _Loop:
    """An event loop in a thread of its own, until closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something there, and wait for it. Raises CancelledError once closed."""
        with self._lock:
            if self._closed:
                work.close()
                raise CancelledError
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result()

    def close(self) -> None:
        """End the thread; a call that still waits there raises CancelledError."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Session:
    """One command in a task. Iterate for its output; then `exit_code` is known.

    One thread may read while another sends: sending waits while the command takes nothing,
    and a command takes nothing while its output is not read. Close it, or use it in a `with`.
    """

    def __init__(self, connection: ClientConnection, loop: _Loop, held: ExitStack) -> None:
        self._connection = connection
        self._loop = loop
        self._held = held
        self.exit_code: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        try:
            while True:
                message = self._loop.run(self._connection.recv())
                if isinstance(message, bytes):
                    yield message
                else:
                    self.exit_code = msgspec.json.decode(message, type=_Ending).exit
        except (ConnectionClosedOK, CancelledError):
            return
        except ConnectionClosed as error:
            if self.exit_code is None:
                raise _closed(error) from error
        except msgspec.MsgspecError as error:
            raise Unreadable(f"The service sent an unexpected message: {error}.") from error

    def send(self, data: bytes) -> None:
        """Send input. Does nothing once the command is gone."""
        for start in range(0, len(data), CHUNK):
            self._send(data[start : start + CHUNK])

    def resize(self, rows: int, columns: int) -> None:
        """Pass on the size of the terminal that shows it."""
        self._send(msgspec.json.encode({"resize": [rows, columns]}).decode())

    def end_input(self) -> None:
        """Close the command's input."""
        self._send('{"eof":true}')

    def close(self) -> None:
        """Close the connection; the command's terminal hangs up."""
        self._held.close()

    def _send(self, message: bytes | str) -> None:
        try:
            self._loop.run(self._connection.send(message))
        except (ConnectionClosed, CancelledError):
            return  # the reader learns it, with the exit code


def _closed(error: Exception) -> ApiError:
    reason = getattr(getattr(error, "rcvd", None), "reason", "")
    return ApiError(str(reason)) if reason else lost(error)


def open_session(address: Address, path: str, greeting: str) -> Session:
    """Open a terminal. Raises ApiError: the service's own words where it refused."""
    with ExitStack() as held:
        loop = _Loop()
        held.callback(loop.close)
        try:
            connection = loop.run(_connect(address, path))
            held.callback(lambda: loop.run(_hang_up(connection)))
            loop.run(connection.send(greeting))
        except InvalidStatus as error:
            response = error.response
            kind = response.headers.get("Content-Type", "")
            raise error_of(response.status_code, kind, bytes(response.body or b"")) from error
        except ConnectionClosed as error:
            raise _closed(error) from error
        except (InvalidHandshake, OSError) as error:
            raise lost(error) from error
        return Session(connection, loop, held.pop_all())


async def _connect(address: Address, path: str) -> ClientConnection:
    """Connect, without pings: a pong waits behind output that nobody reads yet."""
    if address.socket:
        return await unix_connect(
            address.socket,
            f"ws://localhost{path}",
            max_size=MOST_FRAME,
            compression=None,
            ping_interval=None,
        )
    return await connect(
        f"ws://{address.host}:{address.port}{path}",
        additional_headers={"Authorization": f"Bearer {address.token}"},
        max_size=MOST_FRAME,
        compression=None,
        ping_interval=None,
        proxy=None,
    )


async def _hang_up(connection: ClientConnection) -> None:
    """Close politely, or just go where what is being sent is not taken."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            await connection.close()
    connection.transport.abort()
