"""Connections to a server that has to keep a pace: one that drips holds no thread long."""

import contextlib
import io
import socket
import threading
import time
import urllib.request
from collections.abc import Generator
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Final, cast

PATIENCE_S: Final = 20.0
"""For a connection, and between two pieces of what comes."""
GRACE_S: Final = 30.0
"""How long what comes may lag behind the least pace."""
LEAST_PACE: Final = 32 << 10
"""Bytes a second."""
MOST_HEADS: Final = 8
"""Answers that only say that an answer follows (100 Continue), and that answer."""
MOST_TRAILERS: Final = 100
"""Lines after what was asked for."""
_LONGEST_LINE: Final = 64 << 10


class _Paced(io.RawIOBase):
    """Reads from a socket. Only waiting for the other side counts, not what we do between."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket) -> None:
        self._raw = raw
        self._sock = sock
        self._left_s = GRACE_S

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what has come. Raises TimeoutError."""
        if self._left_s <= 0:
            raise TimeoutError("it is too slow to be of use")
        self._sock.settimeout(min(PATIENCE_S, self._left_s))
        began = time.monotonic()
        count = cast("int | None", cast("Any", self._raw).readinto(buffer))
        left_s = self._left_s + (count or 0) / LEAST_PACE - (time.monotonic() - began)
        self._left_s = min(left_s, GRACE_S)
        return count

    def close(self) -> None:
        """Close what it reads from."""
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        raw = self.fp.detach()
        self.fp = io.BufferedReader(_Paced(raw, sock))
        self._heads = 0

    # The library reads on for as long as these come, within one call.

    def _read_status(self) -> tuple[str, int, str]:
        self._heads += 1
        if self._heads > MOST_HEADS:
            raise HTTPException("it only says that an answer follows")
        return cast("tuple[str, int, str]", cast("Any", super())._read_status())  # noqa: SLF001

    def _read_and_discard_trailer(self) -> None:
        for _ in range(MOST_TRAILERS):
            if self.fp.readline(_LONGEST_LINE) in {b"\r\n", b"\n", b""}:
                return
        raise HTTPException("what follows its answer has no end")


class PlainConnection(HTTPConnection):
    """A connection without TLS."""

    response_class = _Response


class SecureConnection(HTTPSConnection):
    """A connection with TLS, with the certificate checked."""

    response_class = _Response

    def connect(self) -> None:
        """Connect, and agree on keys within a while. Raises OSError."""
        HTTPConnection.connect(self)
        # Its time-out is for each byte, of which the other side could send one now and then.
        with cut_after(self.sock, GRACE_S):
            context = cast("Any", self)._context  # noqa: SLF001 - as HTTPSConnection made it
            self.sock = context.wrap_socket(self.sock, server_hostname=self.host)


@contextlib.contextmanager
def cut_after(line: socket.socket, patience_s: float) -> Generator[None]:
    """Have a connection end after so long: each part of an answer may come just in time, letter
    by letter, also those that nobody here reads by himself."""

    def cut() -> None:
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)

    with contextlib.closing(line.dup()) as other:  # TLS takes the first one away
        ending = threading.Timer(patience_s, cut)
        ending.daemon = True
        ending.start()
        try:
            yield
        finally:
            ending.cancel()


class OverPlain(urllib.request.HTTPHandler):
    """Opens `http:`."""

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        """Ask. Raises OSError and HTTPException."""
        return self.do_open(PlainConnection, req)


class OverTls(urllib.request.HTTPSHandler):
    """Opens `https:`, with the certificate checked."""

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        """Ask. Raises OSError and HTTPException."""
        return self.do_open(SecureConnection, req)
