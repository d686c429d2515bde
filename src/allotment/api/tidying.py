"""Memory is given back to the system: now and then under work, and once when it is over."""

import asyncio
from collections.abc import Callable

from allotment.api.process import give_back, trim

EVERY_S = 10.0


async def tidy(asked: Callable[[], int]) -> None:
    """Return free memory to the system from time to time, for ever.

    `asked` returns how many requests there were. If none came since the last look, the service
    is idle, and all garbage is collected once.
    """
    last, is_tidy = asked(), False
    while True:
        await asyncio.sleep(EVERY_S)
        if asked() != last:
            last, is_tidy = asked(), False
            await asyncio.to_thread(trim)
        elif not is_tidy:
            is_tidy = True
            give_back()
