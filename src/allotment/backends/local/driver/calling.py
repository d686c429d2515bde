"""Processes that call the driver for us, kept for the next call, and killed if they hang."""

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from allotment.backends.local.driver.steps import State, Wanted, is_reached
from allotment.service.isolated import isolated, plain_with

HELPER = "allotment.backends.local.driver.helper"
START_S = 30.0
"""Until the driver is loaded: the first of a machine without persistence mode sets it up."""
LOCK_MS = 5000
SLOWEST = 10**9
"""Bytes a second; what copies more slowly is taken for hanging."""
MARGIN_S = 10.0
ASK_S = 5.0


class DriverTrouble(Exception):
    """Why memory is not where it was wanted, in words. `is_lost`: the process is unusable."""

    def __init__(self, words: str, *, is_lost: bool = False) -> None:
        super().__init__(words)
        self.is_lost = is_lost


class Known(msgspec.Struct, frozen=True):
    """A process, known also after its number went to another."""

    pid: int
    start_time: int
    """In clock ticks since boot; 0 of none that lives."""


class Moved(msgspec.Struct, frozen=True):
    """How long the steps took, in milliseconds; none that were done before."""

    ms: Mapping[str, float]


class Answer(msgspec.Struct, frozen=True):
    """A line of a helper; a state of -1 where the process has none."""

    state: int
    error: str
    ms: Mapping[str, float] = {}
    version: int = 0


def deadline_s(size: int) -> float:
    """Return for how long a process with so many bytes may be moved."""
    return LOCK_MS / 1000 + size / SLOWEST + MARGIN_S


class Helpers:
    """As many helpers as calls are under way at once."""

    def __init__(self) -> None:
        self._idle: list[asyncio.subprocess.Process] = []

    async def version(self) -> int:
        """Return the CUDA version of the driver. Raises DriverTrouble if it cannot do it."""
        helper, version = await self._started()
        self._idle.append(helper)
        return version

    async def move(self, process: Known, wanted: Wanted, size: int, turn: Path) -> Moved:
        """Have a process's device memory away or back. Raises DriverTrouble.

        `turn` is the folder of what is known of the process: one call at a time.

        Asked again, also after a crash of ours, it goes on from wherever the process is.
        """
        try:
            answer = await self._ask(process, wanted, turn, deadline_s(size))
        except TimeoutError:
            answer = await self._asked_again(process, wanted, turn)
        if answer.error or not is_reached(State(answer.state), wanted):
            is_lost = answer.state == State.FAILED or (
                wanted is Wanted.BACK and answer.state != State.CHECKPOINTED
            )
            raise DriverTrouble(answer.error or "the driver does not say", is_lost=is_lost)
        return Moved(answer.ms)

    async def _asked_again(self, process: Known, wanted: Wanted, turn: Path) -> Answer:
        """Hear, after a call that hung, whether it was done after all."""
        try:
            return await self._ask(process, wanted, turn, ASK_S)
        except TimeoutError:
            return Answer(int(State.FAILED), "the driver does not answer")

    async def _ask(self, process: Known, wanted: Wanted, turn: Path, within_s: float) -> Answer:
        helper = self._idle.pop() if self._idle else (await self._started())[0]
        assert helper.stdin is not None
        asked = {
            "pid": process.pid,
            "started": process.start_time,
            "wanted": wanted.value,
            "lock_ms": LOCK_MS,
            "turn": str(turn.absolute()),
        }
        try:
            helper.stdin.write(json.dumps(asked).encode() + b"\n")
            answer = await _line_of(helper, within_s)
        except asyncio.CancelledError:
            # What was begun goes on to its end, and keeps its turn until then.
            helper.stdin.close()
            raise
        except BaseException:
            await _end(helper)
            raise
        self._idle.append(helper)
        return answer

    async def _started(self) -> tuple[asyncio.subprocess.Process, int]:
        helper = await asyncio.create_subprocess_exec(
            *isolated(HELPER, bare=True),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd="/",
            env=plain_with(os.environ),
        )
        try:
            first = await _line_of(helper, START_S)
        except BaseException as error:
            await _end(helper)
            if isinstance(error, TimeoutError):
                raise DriverTrouble("the driver cannot be loaded: it does not answer") from None
            raise
        if first.error:
            await _end(helper)
            raise DriverTrouble(first.error)
        return helper, first.version

    async def close(self) -> None:
        """End those that are idle; what they did stays done."""
        while self._idle:
            await _end(self._idle.pop())


async def _line_of(helper: asyncio.subprocess.Process, within_s: float) -> Answer:
    """Read an answer. Raises TimeoutError, and DriverTrouble if the helper is gone."""
    assert helper.stdout is not None
    async with asyncio.timeout(within_s):
        line = await helper.stdout.readline()
    try:
        return msgspec.json.decode(line, type=Answer)
    except msgspec.DecodeError:
        raise DriverTrouble("the process that calls the driver ended") from None


async def _end(helper: asyncio.subprocess.Process) -> None:
    if helper.returncode is None:
        helper.kill()
    await helper.wait()
