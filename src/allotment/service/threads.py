"""Work that may never return, in threads: few for each user, and nobody waits for long.

A call on a path whose file server is silent cannot be broken off. So each gets a thread that
does not keep the service from ending, a user has only so many at a time, and who waits gives
up after a while. The thread counts until its work has really returned.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Hashable
from typing import TypeVar

from allotment.service.fair_queue import FairQueue

T = TypeVar("T")


class Threads:
    """Threads of one kind: at most `each` at a time for a user, `total` for all."""

    def __init__(self, kind: str, each: int = 4, total: int | None = None) -> None:
        self._kind = kind
        self._queue = FairQueue(lambda: each, total)

    async def run(self, who: Hashable, work: Callable[[], T], patience_s: float) -> T:
        """Do some work for a user in a thread; return its result or raise its error.

        Raises TimeoutError when the work has not returned after `patience_s` seconds, or could
        not begin in that time because earlier work of the same user does not return.
        """
        async with asyncio.timeout(patience_s):
            await self._queue.turn(who)
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._begin(who, work, done)
        async with asyncio.timeout(patience_s):
            return await done

    def _begin(self, who: Hashable, work: Callable[[], T], done: asyncio.Future[T]) -> None:
        loop = asyncio.get_running_loop()

        def over(settle: Callable[[], None]) -> None:
            self._queue.leave(who)
            if not done.done():
                settle()

        def body() -> None:
            try:
                result = work()
            except Exception as error:
                settle = _failing(done, error)
            else:
                settle = _giving(done, result)
            with contextlib.suppress(RuntimeError):  # the service has ended meanwhile
                loop.call_soon_threadsafe(over, settle)

        threading.Thread(target=body, name=self._kind, daemon=True).start()


def _failing(done: asyncio.Future[T], error: Exception) -> Callable[[], None]:
    return lambda: done.set_exception(error)


def _giving(done: asyncio.Future[T], result: T) -> Callable[[], None]:
    return lambda: done.set_result(result)
