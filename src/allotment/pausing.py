"""Pausing at a step boundary: `allotment.on_pause(fn)`, `on_resume(fn)`, `on_save(fn)`.

For use inside jobs, so it needs nothing but Python itself. The runner writes a command into
the file that $ALLOT_PAUSE_FILE names; `allotment.progress`, at the end of a step, looks at it
in the memory that the file is mapped to. All ranks of a gang stop after the same step, and
only when all are there do they give their devices' memory back.

The file has one line of eight numbers for commands, and one for each rank of this task, by
$LOCAL_RANK. All are signed 64-bit integers in the machine's order.
"""

import contextlib
import mmap
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Final

RANKS: Final = 63
"""Of one task."""
LINE: Final = 8
SIZE: Final = 8 * LINE * (1 + RANKS)

# The line of commands.
NUMBER, COMMAND, AFTER = range(3)
"""The number of the newest command, what it is, and after which step it holds."""
STOP, FREE, GO, SAVE = 1, 2, 3, 4
"""Stop after a step; give memory back; go on; save, and end."""

# The line of a rank.
WORLD, STEP, AT_NS, FIRST_STEP, FIRST_NS, ANSWERED, ANSWER, ABLE = range(LINE)
"""The ranks of the gang, 0 for a line that nobody uses; the last step, when it ended, and the
same of the first since it went on; which command was answered, and how; what it is able to."""
FREES, SAVES = 1, 2
"""It can give memory back; it can save while it stands."""
THERE, LATE, FREED, KEEPS, RUNS = 1, 2, 3, 4, 5
"""It stands after the step; it is past that; it gave memory back; it could not; it goes on."""

SAVED: Final = 85
"""The exit code of a job that saved because it has to end."""
LOOK_S: Final = 0.002

Hook = Callable[[], Any]


class Pause:
    """One rank's side of the file. It never raises what the job did not raise itself."""

    def __init__(self, path: str, rank: int, world: int) -> None:
        """Map the file. Raises OSError or ValueError."""
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            page = mmap.mmap(fd, SIZE)
        finally:
            os.close(fd)
        self._words = memoryview(page).cast("q")
        self._at = LINE * (1 + rank % RANKS)
        self._seen = self._words[NUMBER]
        self._world, self._able = max(1, world), 0
        self._is_new = True
        """Whether what it is, and its first step, are still to be said: at its next step."""
        self._pause: list[Hook] = []
        self._resume: list[Hook] = []
        self._saves: list[Hook] = []

    @property
    def frees(self) -> bool:
        """Whether it can give memory back."""
        return bool(self._pause)

    def on_pause(self, hook: Hook) -> None:
        """Add what gives memory back."""
        self._pause.append(hook)
        self._able, self._is_new = self._able | FREES, True

    def on_resume(self, hook: Hook) -> None:
        """Add what takes memory again."""
        self._resume.append(hook)

    def on_save(self, hook: Hook) -> None:
        """Add what saves while it stands."""
        self._saves.append(hook)
        self._able, self._is_new = self._able | SAVES, True

    def step(self, step: int) -> None:
        """Note that a step is done, and do what is wanted after it."""
        words, at, now = self._words, self._at, time.monotonic_ns()
        if self._is_new:
            self._is_new = False
            words[at + FIRST_STEP], words[at + FIRST_NS] = step, now
            words[at + ABLE], words[at + WORLD] = self._able, self._world
        words[at + STEP], words[at + AT_NS] = step, now
        if words[NUMBER] != self._seen:
            self._obey(step)

    def _obey(self, step: int) -> None:
        words = self._words
        number, command, after = words[NUMBER], words[COMMAND], words[AFTER]
        if number != words[NUMBER]:
            return  # It is being replaced; the next look is at the new one.
        if command == STOP and after > step:
            return
        self._seen = number
        if command == STOP and 0 < after < step:
            self._answer(LATE)
        elif command == STOP:
            self._answer(THERE)
            self._stand(step)
        elif command == SAVE:
            self._save()

    def _answer(self, answer: int) -> None:
        self._words[self._at + ANSWER] = answer
        self._words[self._at + ANSWERED] = self._seen

    def _next(self) -> tuple[int, int, int]:
        """Wait for a command that is new, and return it."""
        words = self._words
        while True:
            while words[NUMBER] == self._seen:
                time.sleep(LOOK_S)
            number, command, after = words[NUMBER], words[COMMAND], words[AFTER]
            if number == words[NUMBER]:
                return number, command, after

    def _stand(self, step: int) -> None:
        """Stand still after a step, and do what is said meanwhile, until it may go on."""
        freed = False
        while True:
            number, command, after = self._next()
            if command == STOP and after > step and not freed:
                break  # Another was past it already: this one goes on to where all can stop.
            self._seen = number
            if command == FREE:
                freed = freed or self._free()
                self._answer(FREED if freed else KEEPS)
            elif command == STOP:
                self._answer(THERE)
            elif command == SAVE:
                self._save()
            elif command == GO:
                if freed:
                    _call(reversed(self._resume))
                self._answer(RUNS)
                break
        self._is_new = True

    def _free(self) -> bool:
        """Free memory; return False where that failed, and all is as it was."""
        if not self._pause:
            return False
        try:
            _call(self._pause)
        except Exception as error:  # noqa: BLE001 - it is frozen with what it has
            _say(f"it cannot give its device memory back: {error!r}")
            _call(reversed(self._resume))
            return False
        return True

    def _save(self) -> None:
        """Save, and end: the memory of the devices may belong to others."""
        try:
            _call(self._saves)
        except Exception as error:  # noqa: BLE001 - it ends all the same
            _say(f"it cannot save: {error!r}")
        raise SystemExit(SAVED)


def _call(hooks: Any) -> None:  # noqa: ANN401 - an iterable of hooks
    for hook in hooks:
        hook()


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(f"allotment: {text}", file=sys.stderr, flush=True)


def opened() -> Pause | None:
    """Return this rank's side; None where no runner pauses jobs like this."""
    env = os.environ
    path = env.get("ALLOT_PAUSE_FILE", "")
    if not path:
        return None
    try:
        return Pause(path, int(env.get("LOCAL_RANK", "0")), int(env.get("WORLD_SIZE", "1")))
    except (OSError, ValueError) as error:
        _say(f"it cannot be paused at its steps: {error}")
        return None
