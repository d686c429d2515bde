"""A task that stops at a step boundary: the runner's side of the file of `allotment.pausing`.

The file is its user's, who may write anything into it, or cut it: so it is read and written
through the descriptor with which it was made, and never mapped. What a rank says there is
believed only as far as it harms nobody but its own job.
"""

import os
import struct
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Final, NamedTuple

from allotment.backends.local.runner.timers import Timers
from allotment.pausing import (
    ABLE,
    ANSWER,
    ANSWERED,
    AT_NS,
    FIRST_NS,
    FIRST_STEP,
    FREE,
    FREED,
    FREES,
    GO,
    KEEPS,
    LATE,
    LINE,
    RANKS,
    SAVE,
    SAVES,
    SIZE,
    STEP,
    STOP,
    THERE,
    WORLD,
)

FILE: Final = ".allot-pause"
_LOOK_S: Final = 0.003
_PAST_S: Final = 0.1
"""So long after a step a rank has answered, if it saw the order."""
_LONGEST_S: Final = 120.0
"""So long is a task kept standing that is not frozen nor told to go on: who asked is gone."""
_MOST_STEP: Final = 2**53
_STATES: Final = {THERE: "there", LATE: "late", FREED: "freed", KEEPS: "keeps"}


class Ranks(NamedTuple):
    """What the ranks of one task say of themselves."""

    number: int
    world: int
    able: int
    """What all of them can."""
    step: int
    """The last step of the one that is ahead."""
    step_ns: int
    """How long a step takes the slowest of them, 0 where that is not known."""


def make(folder: int, uid: int, gid: int) -> int:
    """Make the file in a folder that is there for the task alone; give its descriptor."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(FILE, flags, 0o600, dir_fd=folder)
    os.truncate(fd, SIZE)
    if uid != os.geteuid():
        os.fchown(fd, uid, gid)
    return fd


class Pauser:
    """The file that has what the ranks of one task do at their next steps; `fd` -1: none."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._number = 0
        self._turn = 0
        """Which order is under way: an older one is not waited for."""
        self._after = 0
        """After which step all are to stop; 0 for the next, and for other orders."""
        self._past_at = inf
        """When a rank that is past that step counts as one that did not see the order."""
        self.fd = -1
        self.state = ""
        """How they stand: asked, there, late, freed, keeps; '' where they run."""

    def ranks(self) -> Ranks:
        """Read what they say of themselves."""
        lines = [line for line in self._lines() if line[WORLD] > 0]
        return Ranks(
            len(lines),
            max((min(line[WORLD], _MOST_STEP) for line in lines), default=0),
            min((line[ABLE] for line in lines), default=0),
            max((min(max(line[STEP], 0), _MOST_STEP) for line in lines), default=0),
            max(map(_step_ns, lines), default=0),
        )

    def stand(self, after: int, then: Callable[[], None]) -> None:
        """Let all ranks stop after a step; at once where it is 0."""
        if self.state != "freed":
            self._order(STOP, after, then)
        else:
            then()

    def free(self, then: Callable[[], None]) -> None:
        """Let those that stand give memory back."""
        if self.state == "freed":
            then()
        elif self.state in ("there", "keeps"):
            self._order(FREE, 0, then)

    def go_on(self) -> None:
        """Let all go on, whatever they were told."""
        self._turn += 1
        if self.state:
            self.state = ""
            self._write(GO, 0)

    def can_save(self) -> bool:
        """Whether all can save while they stand."""
        return bool(self.ranks().able & SAVES)

    def save(self) -> None:
        """Let those that gave memory back save and end."""
        self._turn += 1
        self._write(SAVE, 0)

    def hold(self) -> None:
        """Keep them as they stand: they are frozen."""
        self._turn += 1

    def _order(self, command: int, after: int, then: Callable[[], None]) -> None:
        self.state = "asked"
        self._after, self._past_at = after, inf
        self._turn += 1
        self._write(command, after)
        turn = self._turn
        self._timers.after(_LONGEST_S, lambda: self._give_up(turn))
        self._await(turn, then)

    def _await(self, turn: int, then: Callable[[], None]) -> None:
        if turn != self._turn:
            return
        found = self._answers()
        if found == "asked":
            self._timers.after(_LOOK_S, lambda: self._await(turn, then))
            return
        self.state = found
        then()

    def _give_up(self, turn: int) -> None:
        if turn == self._turn:
            self.go_on()

    def _answers(self) -> str:
        """Return what all ranks answer to the present order; asked while one has not."""
        lines = [line for line in self._lines() if line[WORLD] > 0]
        if asked := [line for line in lines if line[ANSWERED] != self._number]:
            return _STATES[LATE] if self._is_past(asked) else "asked"
        answers = {line[ANSWER] for line in lines}
        for answer in (LATE, KEEPS, THERE, FREED):
            if answer in answers:
                return _STATES[answer]
        return "asked"

    def _is_past(self, asked: Sequence[tuple[int, ...]]) -> bool:
        """Whether a rank did not see the order before its step.

        It will not answer: its next step is a collective, where it waits for those that stand.
        """
        if not 0 < self._after <= max(line[STEP] for line in asked):
            return False
        now = time.monotonic()
        self._past_at = min(self._past_at, now + _PAST_S)
        return now >= self._past_at

    def _write(self, command: int, after: int) -> None:
        self._number += 1
        if self.fd < 0:
            return
        try:
            os.pwrite(self.fd, struct.pack("qq", command, after), 8)
            os.pwrite(self.fd, struct.pack("q", self._number), 0)
        except OSError:
            return  # Its disk is full, or its user cut the file: it does not answer.

    def _lines(self) -> list[tuple[int, ...]]:
        if self.fd < 0:
            return []
        try:
            data = os.pread(self.fd, SIZE, 0)
        except OSError:
            return []
        if len(data) < SIZE or data.count(0) == SIZE:
            return []  # Its user cut it; or nobody has written yet, as in most tasks.
        words = struct.unpack(f"{SIZE // 8}q", data)
        return [words[LINE * (1 + n) : LINE * (2 + n)] for n in range(RANKS)]


def is_wanted(ranks: Ranks) -> bool:
    """Whether it is worth while to wait for a step boundary: memory to free, or collectives."""
    return ranks.number > 0 and (can_free(ranks) or ranks.world > 1)


def can_free(ranks: Ranks) -> bool:
    """Whether all ranks of a task can give memory back."""
    return bool(ranks.able & FREES)


def _step_ns(line: tuple[int, ...]) -> int:
    steps, took = line[STEP] - line[FIRST_STEP], line[AT_NS] - line[FIRST_NS]
    sane = 0 < steps < _MOST_STEP and 0 < took < _MOST_STEP
    return took // steps if sane else 0
