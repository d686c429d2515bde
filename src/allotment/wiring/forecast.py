"""Start estimates for the service, and what more nodes would help: each is worked out by the
simulator in a child process.

So the service goes on scheduling and answering meanwhile. The child is a fresh interpreter
(a fork of a process with threads may hang), of low priority. It is ended with the question:
when it was answered, when nobody waits any longer, and by the kernel when the service dies.
"""

import asyncio
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

import msgspec

from allotment.model.errors import Code, Rejected
from allotment.model.forecast import Answer, Question
from allotment.model.pools import MoreAnswer, MoreQuestion
from allotment.service.isolated import PLAIN, isolated

CHILD = isolated("allotment.wiring.forecast_child")
MORE_CHILD = isolated("allotment.wiring.more_nodes_child")
AT_A_TIME = 2
"""Children at a time; further questions wait for their turn."""
MOST_S = 60.0
"""More than three runs take with all their patience; then something is broken."""


class ChildForecast:
    """Asks a child process for each question."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_A_TIME)

    async def starts(self, question: Question) -> Answer:
        """Return the results of three runs. Raises Rejected when the child fails."""
        said = await self._asked(CHILD, msgspec.msgpack.encode(question))
        return msgspec.msgpack.decode(said, type=Answer)

    async def more(self, question: MoreQuestion) -> MoreAnswer:
        """Return which jobs more nodes would help. Raises Rejected when the child fails."""
        said = await self._asked(MORE_CHILD, msgspec.msgpack.encode(question))
        return msgspec.msgpack.decode(said, type=MoreAnswer)

    async def _asked(self, program: Sequence[str], data: bytes) -> bytes:
        """Return what a child answers. Raises Rejected."""
        async with self._turns:
            child = await asyncio.create_subprocess_exec(
                *program, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=PLAIN, cwd="/"
            )
            try:
                async with asyncio.timeout(MOST_S):
                    said, complaint = await child.communicate(data)
            except TimeoutError:
                said, complaint = b"", b"it took too long"
            except RuntimeError:  # The loop's own, where a child is gone before it is asked.
                said, complaint = b"", b"it ended before it was asked"
            finally:
                await _end(child)
        if child.returncode != 0 or not said:
            last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"The simulator failed: {last or f'exit {child.returncode}'}.",
                "This is a bug in Allotment; `allot why` still says why the job waits.",
            )
        return said


async def _end(child: Process) -> None:
    """Leave nothing of it, even when we are being cancelled."""
    if child.returncode is None:
        child.kill()
        await asyncio.shield(child.wait())
