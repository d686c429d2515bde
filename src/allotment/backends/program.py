"""A program run beside the event loop, and ended with all that it started."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from typing import NamedTuple

GONE_S = 1.0
"""How long the end of what was killed is waited for."""


class Said(NamedTuple):
    """How a program ended, and what it wrote."""

    code: int
    out: bytes
    err: bytes


async def said_by(*argv: str, patience_s: float, env: Mapping[str, str] | None = None) -> Said:
    """Run a program to its end. Raises OSError; of that TimeoutError, where it takes too long.

    Then, and where we are cancelled, its whole process group is killed: what a script around
    the program started would hold its output open, and be waited for.
    """
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv, cwd="/", env=env, start_new_session=True, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )
    )  # fmt: skip
    try:
        async with asyncio.timeout(patience_s):
            # Cut off while it starts, asyncio kills the program alone, and waits for the rest.
            process = await asyncio.shield(starting)
            out, err = await process.communicate()
    finally:
        with contextlib.suppress(OSError):
            await _end(await starting)
    return Said(process.returncode or 0, out, err)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GONE_S):
                await process.wait()
