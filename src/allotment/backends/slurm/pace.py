"""When to look at a task again: soon while it is new, less often the longer nothing is new."""

from allotment.model.ids import TaskKey

SHARE = 16
"""An end is seen late by a sixteenth of how long nothing was new."""
MOST_S = 5.0


class Pace:
    """Keeps when something was new of a task last, and when it is looked at next."""

    def __init__(self) -> None:
        self._new: dict[TaskKey, float] = {}
        self._next: dict[TaskKey, float] = {}

    def is_due(self, key: TaskKey, now: float) -> bool:
        """Whether to look at a task now."""
        return self._next.get(key, now) <= now

    def looked(self, key: TaskKey, now: float) -> None:
        """Note that a task was looked at."""
        pause_s = min(MOST_S, (now - self._new.setdefault(key, now)) / SHARE)
        self._next[key] = now + pause_s

    def news(self, key: TaskKey, now: float) -> None:
        """Look at a task often again: something is new of it, or soon will be."""
        self._new[key] = self._next[key] = now

    def part(self, key: TaskKey) -> None:
        """Forget a task that has ended."""
        self._new.pop(key, None)
        self._next.pop(key, None)
