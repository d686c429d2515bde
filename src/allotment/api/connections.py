"""How many connections there may be: so many of each user, and of strangers.

Over TCP nobody is known before a token was shown, and anybody on this machine can connect.
So strangers have places of their own, for seconds only, and the one that has been there
longest gives way to the next: whoever has the token is always let in.
"""

import asyncio
from collections import Counter

MOST_CONNECTIONS = 512
"""Of one user, so that nobody can use up the service's file descriptors."""

STRANGER_S = 10.0
"""How long a connection over TCP may take to show a token."""


class Connections:
    """All that are open."""

    def __init__(self) -> None:
        self.known: Counter[int | None] = Counter()
        """By uid; None is whoever came over TCP with the token."""
        self.strangers: dict[Place, None] = {}
        """In the order in which they came."""


class Place:
    """One connection among all of them."""

    def __init__(self, among: Connections, transport: asyncio.Transport) -> None:
        self._among = among
        self._transport = transport
        self._uid: int | None = None
        self._is_known = False
        self._timer: asyncio.TimerHandle | None = None

    def take(self, uid: int | None) -> bool:
        """Count this one as a user's, who is known now; False when they have too many."""
        if self._is_known:
            return True
        if self._among.known[uid] >= MOST_CONNECTIONS:
            return False
        self.leave()
        self._among.known[uid] += 1
        self._uid, self._is_known = uid, True
        return True

    def wait(self) -> None:
        """Count this one as a stranger's; hang up on it if it does not become known soon."""
        strangers = self._among.strangers
        if len(strangers) >= MOST_CONNECTIONS:
            next(iter(strangers)).hang_up()
        strangers[self] = None
        self._timer = asyncio.get_running_loop().call_later(STRANGER_S, self.hang_up)

    def hang_up(self) -> None:
        """Close it at once, whatever it has not read yet."""
        self.leave()
        self._transport.abort()

    def leave(self) -> None:
        """Count this one no more. May be called again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._among.strangers.pop(self, None)
        if self._is_known:
            self._is_known = False
            self._among.known[self._uid] -= 1
            if not self._among.known[self._uid]:
                del self._among.known[self._uid]
