"""Memory is given back to the system: now and then under work, and once when it is over."""

import asyncio
from collections.abc import Callable

from allotment.api.process import give_back, trim

EVERY_S = 10.0


async def tidy(asked: Callable[[], int]) -> None:
    """Go on for ever. `asked` counts requests; without one since the last look all is quiet."""
    last, is_tidy = asked(), False
    while True:
        await asyncio.sleep(EVERY_S)
        if asked() != last:
            last, is_tidy = asked(), False
            await asyncio.to_thread(trim)
        elif not is_tidy:
            is_tidy = True
            give_back()
