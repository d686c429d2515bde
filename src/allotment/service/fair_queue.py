"""Turns at something scarce: so many at a time, so many of each user, round robin among users.

Whoever asks for much waits for itself: a user's next turn comes when all others that wait have
had one. A turn lasts from `turn` to `leave`.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable


class FairQueue:
    """Turns: at most `each` at a time for a user, and `total` for all; None is no bound."""

    def __init__(self, each: Callable[[], int], total: int | None = None) -> None:
        self._each, self._total = each, total
        self.busy: Counter[Hashable] = Counter()
        """How many turns each user has."""
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        """By user, in the order in which they come next."""

    def waiting(self, who: Hashable) -> int:
        """Return how many requests of a user wait for a turn."""
        return len(self._waiting.get(who, ()))

    async def turn(self, who: Hashable) -> None:
        """Wait for a turn. If it is cancelled meanwhile, it waits no more."""
        if who not in self._waiting and self._is_room(who):
            self.busy[who] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(who)  # it came in the same moment
            raise

    def leave(self, who: Hashable) -> None:
        """End a turn; the next one in the queue begins."""
        self.busy[who] -= 1
        if not self.busy[who]:
            del self.busy[who]
        while self._begin_next():
            pass

    def _is_room(self, who: Hashable) -> bool:
        if self._total is not None and self.busy.total() >= self._total:
            return False
        return self.busy[who] < self._each()

    def _begin_next(self) -> bool:
        """Let one begin, of the first user that may; whether there was any."""
        for who, queue in list(self._waiting.items()):
            while queue and queue[0].done():
                queue.popleft()  # it was cancelled
            if queue and not self._is_room(who):
                continue
            del self._waiting[who]
            if not queue:
                continue
            self.busy[who] += 1
            queue.popleft().set_result(None)
            if queue:
                self._waiting[who] = queue  # behind all others
            return True
        return False
