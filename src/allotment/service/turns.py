"""Work that needs the event loop to itself, in turns so short that nobody notices.

One turn a round of the loop, whosever work it is: many who ask for much wait for each other,
and not the rest of the service for them.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

TURN_S = 0.004


class Turns:
    """Whose turn it is."""

    def __init__(self) -> None:
        self._mine = asyncio.Lock()

    async def over(self, items: Iterable[T], work: Callable[[T], R]) -> AsyncGenerator[list[R]]:
        """Do some work for each; give what came of it, turn by turn."""
        left = iter(items)
        while True:
            async with self._mine:
                done = _a_turn(left, work)
                await asyncio.sleep(0)  # the next one's turn is in the next round
            if not done:
                return
            yield done


def _a_turn(items: Iterable[T], work: Callable[[T], R]) -> list[R]:
    until, done = perf_counter() + TURN_S, list[R]()
    for item in items:
        done.append(work(item))
        if perf_counter() >= until:
            break
    return done
