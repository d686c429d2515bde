"""Work that needs the event loop to itself, in turns so short that nobody notices.

One turn a round of the loop, and users in turn: many that ask for much wait for each other, and
not the rest of the service for them.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable
from time import perf_counter
from typing import TypeVar

from allotment.service.fair_queue import FairQueue

T = TypeVar("T")
R = TypeVar("R")

TURN_S = 0.004


class Turns:
    """Turns of users on the event loop."""

    def __init__(self) -> None:
        self._queue = FairQueue(lambda: 1, total=1)

    async def over(
        self, items: Iterable[T], work: Callable[[T], R], who: Hashable = None
    ) -> AsyncGenerator[list[R]]:
        """Do some work for each item; return the results, turn by turn."""
        left = iter(items)
        while True:
            await self._queue.turn(who)
            try:
                done = _a_turn(left, work)
                await asyncio.sleep(0)  # the next one's turn is in the next round
            finally:
                self._queue.leave(who)
            if not done:
                return
            yield done

    async def once(self, work: Callable[[], R], who: Hashable) -> R:
        """Do work that cannot be divided, and return its result."""
        await self._queue.turn(who)
        try:
            done = work()
            await asyncio.sleep(0)  # the next one's turn is in the next round
        finally:
            self._queue.leave(who)
        return done


def _a_turn(items: Iterable[T], work: Callable[[T], R]) -> list[R]:
    until, done = perf_counter() + TURN_S, list[R]()
    for item in items:
        done.append(work(item))
        if perf_counter() >= until:
            break
    return done
