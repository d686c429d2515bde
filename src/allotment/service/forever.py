"""What a service does again and again, whatever becomes of one time."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

log = structlog.get_logger("allot.service")


async def forever(step: Callable[[], Awaitable[None]], pause_s: float, what: str) -> None:
    """Repeat a step for ever, with a pause after each. A step that fails is logged.

    The same failure again and again is logged once.
    """
    told = ""
    while True:
        try:
            await step()
            told = ""
        except Exception as error:
            if repr(error) != told:
                told = repr(error)
                log.exception("a step failed; the next one is taken as usual", what=what)
        await asyncio.sleep(pause_s)
