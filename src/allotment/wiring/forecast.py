"""Start estimates for the service: each is worked out by the simulator in a child process.

So the service goes on scheduling and answering meanwhile. The child is a fresh interpreter
(a fork of a process with threads may hang), of low priority. It is ended with the question:
when it was answered, when nobody waits any longer, and by the kernel when the service dies.
"""

import asyncio
import gc
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence

import msgspec

from allotment.backends.local.runner.libc import die_with_parent
from allotment.model.errors import Code, Rejected
from allotment.model.forecast import Answer, Question
from allotment.sim.forecast import RUNS, Ran, answer
from allotment.wiring.policies import policies

OURSELVES = (sys.executable, "-P", "-m", "allotment.wiring.forecast")
AT_A_TIME = 2
"""Children at a time; further questions wait for their turn."""
MOST_S = 60.0
"""More than three runs take with all their patience; then something is broken."""
NICENESS = 10


class ChildForecast:
    """Asks a child process for each question."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_A_TIME)

    async def starts(self, question: Question) -> Answer:
        """Give what three runs came to. Raises Rejected when the child fails."""
        data = msgspec.msgpack.encode(question)
        async with self._turns:
            child = await asyncio.create_subprocess_exec(
                *OURSELVES, stdin=PIPE, stdout=PIPE, stderr=PIPE
            )
            try:
                async with asyncio.timeout(MOST_S):
                    said, complaint = await child.communicate(data)
            except TimeoutError:
                said, complaint = b"", b"it took too long"
            finally:
                await _end(child)
        if child.returncode != 0 or not said:
            last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"The simulator failed: {last or f'exit {child.returncode}'}.",
                "This is a mistake of ours; `allot why` still tells why the job waits.",
            )
        return msgspec.msgpack.decode(said, type=Answer)


async def _end(child: Process) -> None:
    """Leave nothing of it, even when we are being cancelled."""
    if child.returncode is None:
        child.kill()
        await asyncio.shield(child.wait())


# ── in the child ────────────────────────────────────────────────────────────────────────


def main() -> None:
    """Answer the question on stdin; the answer goes to stdout."""
    die_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    gc.disable()  # what is made lives as long as we do, or goes by itself
    question = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Question)
    found = answer(question, policies, patience, side_by_side)
    sys.stdout.buffer.write(msgspec.msgpack.encode(found))


def side_by_side(run: Callable[[int], Ran]) -> Sequence[Ran]:
    """Carry the runs out at once, each but the first in a fork of this process."""
    if (os.cpu_count() or 1) < 2:
        return [run(which) for which in range(RUNS)]
    pipes = [_forked(run, which) for which in range(1, RUNS)]
    found = [run(0)]
    for pipe in pipes:
        with os.fdopen(pipe, "rb") as file:
            found.append(msgspec.msgpack.decode(file.read(), type=Ran))
    return found


def _forked(run: Callable[[int], Ran], which: int) -> int:
    """Begin a run in a fork, which dies with us; give where its result will be read."""
    ours, theirs = os.pipe()
    parent = os.getpid()
    if os.fork():
        os.close(theirs)
        return ours
    code = 1
    try:
        die_with_parent(signal.SIGKILL)
        if os.getppid() == parent:
            with os.fdopen(theirs, "wb") as file:
                file.write(msgspec.msgpack.encode(run(which)))
            code = 0
    finally:
        os._exit(code)


def patience(ms: int) -> Callable[[], bool]:
    """Begin to wait; the result tells whether so much real time is over."""
    until = time.monotonic() + ms / 1000
    return lambda: time.monotonic() >= until


if __name__ == "__main__":
    main()
