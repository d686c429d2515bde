"""A program run beside the event loop, and ended with all that it started.

It runs in a thread: uvloop starts a program by a plain fork, which copies the page tables of a
whole service, and holds up everything until the program is there. subprocess does it by vfork,
for a tenth of the CPU time.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import NamedTuple

GONE_S = 1.0
"""How long the end of what was killed is waited for."""
SIDE_BY_SIDE = 64
"""Programs at a time; more wait for their turn."""
_threads = ThreadPoolExecutor(SIDE_BY_SIDE, "programs")


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
    program = _Program(argv, env)
    running = asyncio.get_running_loop().run_in_executor(_threads, program.run, patience_s)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        program.end()
        running.cancel()  # Unless it has begun.
        await asyncio.wait([running], timeout=GONE_S)
        if not running.cancelled() and running.done():
            running.exception()  # It is nobody's any more.
        raise


class _Program:
    def __init__(self, argv: tuple[str, ...], env: Mapping[str, str] | None) -> None:
        self._argv, self._env = argv, env
        self._starting = Lock()
        self._is_over = False
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, patience_s: float) -> Said:
        """Run it in the thread that calls. Raises OSError, TimeoutError."""
        with self._starting:
            if self._is_over:
                raise TimeoutError
            process = self._process = subprocess.Popen(
                self._argv, cwd="/", env=self._env, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
        try:
            out, err = process.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            self.end()
            for pipe in filter(None, (process.stdout, process.stderr)):
                pipe.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GONE_S)
            raise TimeoutError from None
        return Said(process.returncode, out, err)

    def end(self) -> None:
        """Kill it with all its group, or keep it from being started."""
        with self._starting:
            self._is_over = True
            process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
