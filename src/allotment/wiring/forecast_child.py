"""The child process that works out a start estimate: question on stdin, answer on stdout.

What it imports is part of how long an answer takes.
"""

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from allotment.backends.local.runner.libc import die_with_parent
from allotment.model.forecast import Question
from allotment.sim.forecast import RUNS, Ran, answer
from allotment.wiring.policies import policies

NICENESS = 10
Asked = TypeVar("Asked")


def main() -> None:
    """Answer the question on stdin; the answer goes to stdout."""
    answered(Question, lambda question: answer(question, policies, patience, side_by_side))


def answered(kind: type[Asked], answer_to: Callable[[Asked], object]) -> None:
    """Answer a question of some kind on stdin; the answer goes to stdout."""
    die_with_parent(signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    gc.disable()  # what is made lives as long as we do, or goes by itself
    found = answer_to(msgspec.msgpack.decode(sys.stdin.buffer.read(), type=kind))
    sys.stdout.buffer.write(msgspec.msgpack.encode(found))


def side_by_side(run: Callable[[int], Ran]) -> Sequence[Ran]:
    """Do the runs at once, each but the first in a fork of this process."""
    if (os.cpu_count() or 1) < 2:
        return [run(which) for which in range(RUNS)]
    pipes = [_forked(run, which) for which in range(1, RUNS)]
    found = [run(0)]
    for pipe in pipes:
        with os.fdopen(pipe, "rb") as file:
            found.append(msgspec.msgpack.decode(file.read(), type=Ran))
    return found


def _forked(run: Callable[[int], Ran], which: int) -> int:
    """Begin a run in a fork, which dies with us; return where its result will be read."""
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
    """Return a function that returns whether so many milliseconds have passed."""
    until = time.monotonic() + ms / 1000
    return lambda: time.monotonic() >= until


if __name__ == "__main__":
    main()
