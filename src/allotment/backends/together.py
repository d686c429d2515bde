"""Several calls side by side, all of them to their end."""

import asyncio
from collections.abc import Coroutine, Sequence
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
