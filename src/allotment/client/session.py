"""A terminal in a running task: bytes both ways over a WebSocket.

`websockets` is imported only when one is opened: no other request needs it.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

import msgspec

from allotment.client.address import Address
from allotment.client.errors import ApiError, Unreadable, error_of
from allotment.client.transport import lost

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

MOST_FRAME = 1 << 22


class _Ending(msgspec.Struct):
    exit: int


class Session:
    """One command in a task. Iterate for its output; then `exit_code` is known.

    One thread may read while another sends. Close it, or use it in a `with`.
    """

    def __init__(self, connection: "ClientConnection", held: ExitStack) -> None:
        self._connection = connection
        self._held = held
        self.exit_code: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415 - see above

        try:
            for message in self._connection:
                if isinstance(message, bytes):
                    yield message
                else:
                    self.exit_code = msgspec.json.decode(message, type=_Ending).exit
        except ConnectionClosed as error:
            if self.exit_code is None:
                raise _closed(error) from error
        except msgspec.MsgspecError as error:
            raise Unreadable(f"The service sent what it should not: {error}.") from error

    def send(self, data: bytes) -> None:
        """Send input. Nothing happens once the command is gone."""
        self._send(data)

    def resize(self, rows: int, columns: int) -> None:
        """Tell the size of the terminal that shows it."""
        self._send(msgspec.json.encode({"resize": [rows, columns]}).decode())

    def end_input(self) -> None:
        """Say that no more input comes."""
        self._send('{"eof":true}')

    def close(self) -> None:
        """Hang up; the command is told by its terminal."""
        self._held.close()

    def _send(self, message: bytes | str) -> None:
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415 - see above

        try:
            self._connection.send(message)
        except ConnectionClosed:
            return  # the reader learns it, with the exit code


def _closed(error: Exception) -> ApiError:
    reason = getattr(getattr(error, "rcvd", None), "reason", "")
    return ApiError(str(reason)) if reason else lost(error)


def open_session(address: Address, path: str, greeting: str) -> Session:
    """Open a terminal. Raises ApiError: the service's own words where it refused."""
    from websockets.exceptions import InvalidHandshake, InvalidStatus  # noqa: PLC0415

    with ExitStack() as held:
        try:
            connection = held.enter_context(_connect(address, path))
            connection.send(greeting)
        except InvalidStatus as error:
            response = error.response
            kind = response.headers.get("Content-Type", "")
            raise error_of(response.status_code, kind, bytes(response.body or b"")) from error
        except (InvalidHandshake, OSError) as error:
            raise lost(error) from error
        return Session(connection, held.pop_all())


def _connect(address: Address, path: str) -> "ClientConnection":
    from websockets.sync.client import connect, unix_connect  # noqa: PLC0415

    if address.socket:
        return unix_connect(
            address.socket, f"ws://localhost{path}", max_size=MOST_FRAME, compression=None
        )
    return connect(
        f"ws://{address.host}:{address.port}{path}",
        additional_headers={"Authorization": f"Bearer {address.token}"},
        max_size=MOST_FRAME,
        compression=None,
        proxy=None,
    )
