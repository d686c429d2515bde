"""A process that calls the driver for the service, a line of JSON for each order:

    {"pid": 7, "started": 4711, "wanted": "away", "lock_ms": 5000, "turn": "/…/tasks/7"}

`started` is when the process started, in clock ticks since boot. Another's process may get its
number once it is gone: that is looked at before each call, as the calls are made by root.
`turn` is a folder that is locked meanwhile: one helper at a time deals with a process, also
where the service was killed and its helper is not done yet.

A call of the driver may hang for ever, in a process that cannot be told to stop but by SIGKILL.
So calls are made here, and whoever asked kills us when they take too long. We stay for the next
question: to load the driver takes longer than most copies. Answers are lines, too:

    {"state": 2, "error": "", "ms": {"lock": 3.1, "checkpoint": 211.0}}

Ends when its input does. Needs only Python's own library.
"""

import fcntl
import json
import os
import sys
import time
from typing import Any, Final, cast

from allotment.backends.local.driver.libcuda import DriverError, LibCuda
from allotment.backends.local.driver.steps import (
    UNDER_WAY,
    State,
    Step,
    Wanted,
    is_reached,
    next_step,
)
from allotment.backends.local.runner import procfs

LOOK_S: Final = 0.02
MOST_STEPS: Final = 8
"""Away takes two and back takes two; more come where a call of another is waited for."""

Answer = dict[str, Any]


def main() -> None:
    """Answer lines until there are no more; the first answer says whether we can at all."""
    try:
        library = LibCuda()
        _say({"state": -1, "error": "", "version": library.version()})
    except DriverError as error:
        _say({"state": -1, "error": str(error), "version": 0})
        return
    for line in sys.stdin:
        asked = cast("dict[str, Any]", json.loads(line))
        turn = os.open(asked["turn"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(turn, fcntl.LOCK_EX)
            which = Subject(library, int(asked["pid"]), int(asked["started"]))
            _say(move(which, Wanted(asked["wanted"]), int(asked["lock_ms"])))
        finally:
            os.close(turn)


class Subject:
    """A process that is dealt with as long as it is the one that was meant."""

    def __init__(self, library: LibCuda, pid: int, started: int) -> None:
        self._library, self._pid, self._started = library, pid, started

    def state(self) -> State:
        """Return how far it is. Raises DriverError."""
        self._check()
        return self._library.state(self._pid)

    def do(self, step: Step, lock_ms: int) -> None:
        """Carry out one step. Raises DriverError."""
        self._check()
        self._library.do(step, self._pid, lock_ms)

    def _check(self) -> None:
        if procfs.start_time(self._pid) != self._started:
            raise DriverError(f"process {self._pid}", "it is gone")


def move(process: Subject, wanted: Wanted, lock_ms: int) -> Answer:
    """Have the device memory of a process where it is wanted, from wherever it is now."""
    took: dict[str, float] = {}
    state, trouble = -1, ""
    try:
        state = process.state()
        for _ in range(MOST_STEPS):
            step = next_step(state, wanted)
            if step is None:
                break
            began = time.monotonic()
            if step is Step.WAIT:
                state = _awaited(process)
            else:
                process.do(step, lock_ms)
                state = process.state()
            took[step] = round(1000 * (time.monotonic() - began), 1)
    except DriverError as error:
        trouble = str(error)
        state = _undone(process, wanted)
    if not trouble and not is_reached(State(state), wanted):
        trouble = f"the driver left it {State(state).name.lower()}"
    return {"state": int(state), "error": trouble, "ms": took}


def _awaited(process: Subject) -> State:
    """Wait for what another process began that is gone; our caller's deadline bounds it."""
    while (state := process.state()) in UNDER_WAY:
        time.sleep(LOOK_S)
    return state


def _undone(process: Subject, wanted: Wanted) -> int:
    """Let a process go on that is locked and cannot be copied; return its state, -1 if none."""
    try:
        state = process.state()
        if state is State.LOCKED and wanted is Wanted.AWAY:
            process.do(Step.UNLOCK, 0)
            state = process.state()
    except DriverError:
        return -1
    return state


def _say(answer: Answer) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
