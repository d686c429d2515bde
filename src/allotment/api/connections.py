"""How many connections there may be: so many of each user, and of strangers.

Over TCP nobody is known before a token was shown, and anybody on this machine can connect.
So strangers have places of their own, for seconds only, and the one that has been there
longest gives way to the next: whoever has the token is always let in.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable

import msgspec

from allotment.api.problems import MEDIA_TYPE, problem
from allotment.model.errors import Code

MOST_CONNECTIONS = 512
"""Of one user, so that nobody can use up the service's file descriptors."""

TAKE_S = 30.0
"""How long a client may take nothing of an answer that waits for it."""

STRANGER_S = 10.0
"""How long a connection over TCP may take to show a token."""


class Connections:
    """All open connections."""

    def __init__(self) -> None:
        self.known: Counter[int | None] = Counter()
        """By uid; None is whoever came over TCP with the token."""
        self.strangers: dict[Place, None] = {}
        """In the order in which they came."""

    def are_all(self, uid: int | None) -> bool:
        """Whether a user has as many connections as one user may have."""
        return self.known[uid] >= MOST_CONNECTIONS


class Place:
    """One connection among all."""

    def __init__(self, among: Connections, transport: asyncio.Transport) -> None:
        self._among = among
        self._transport = transport
        self._uid: int | None = None
        self._is_known = False
        self._timer: asyncio.TimerHandle | None = None
        self.drained: Callable[[], Awaitable[None]] | None = None
        """Waits until little of what was sent is left; there once it is connected."""
        self.gone: Callable[[], None] = lambda: None
        """Called when nothing can be sent any more."""

    async def taken(self) -> None:
        """Wait until the client has read its answer; hang up on one that does not read."""
        left = self._transport.get_write_buffer_size()
        while left and self.drained is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TAKE_S):
                    await self.drained()
                    return
            before, left = left, self._transport.get_write_buffer_size()
            if left >= before:
                self.hang_up()
                return

    @property
    def is_gone(self) -> bool:
        """Whether the client has closed the connection."""
        return self._transport.is_closing()

    def take(self, uid: int | None) -> bool:
        """Count this connection as one of a user's; False when the user has too many."""
        if self._is_known:
            return True
        if self._among.are_all(uid):
            return False
        self.leave()
        self._among.known[uid] += 1
        self._uid, self._is_known = uid, True
        return True

    def wait(self) -> None:
        """Count this connection as a stranger's, and close it if its user is not known soon."""
        strangers = self._among.strangers
        if len(strangers) >= MOST_CONNECTIONS:
            next(iter(strangers)).hang_up()
        strangers[self] = None
        self._timer = asyncio.get_running_loop().call_later(STRANGER_S, self.hang_up)

    def hang_up(self) -> None:
        """Close the connection at once, without waiting for what is not sent yet."""
        self.leave()
        self._transport.abort()
        self.gone()

    def leave(self) -> None:
        """Stop counting this connection. A second call does nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._among.strangers.pop(self, None)
        if self._is_known:
            self._is_known = False
            self._among.known[self._uid] -= 1
            if not self._among.known[self._uid]:
                del self._among.known[self._uid]


def turned_away(uid: int) -> bytes:
    """Return the answer to a connection beyond the limit of one user."""
    said = problem(
        429,
        Code.TOO_MANY.value,
        f"User {uid} has {MOST_CONNECTIONS} connections, which is all that one user may have.",
        "Close some, or use one for several requests.",
    )
    body = msgspec.json.encode(said)
    head = (
        "HTTP/1.1 429 Too Many Requests\r\n"
        f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n"
        "connection: close\r\nretry-after: 1\r\n\r\n"
    )
    return head.encode() + body
