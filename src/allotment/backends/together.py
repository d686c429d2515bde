"""Calls that are carried out to their end: several side by side, or one that is cancelled."""

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def gather_all(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return what all calls give, once the last is over; raise what the first failure is.

    None is left running or cancelled half done where another fails.
    """
    found = await asyncio.gather(*calls, return_exceptions=True)
    failures = [each for each in found if isinstance(each, BaseException)]
    if failures:
        raise failures[0]
    return [each for each in found if not isinstance(each, BaseException)]


async def whole(work: Awaitable[T]) -> T:
    """Await something that is not to be left in the middle, also where we are cancelled."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
