"""What a poll loop has to do later."""

import time
from collections.abc import Callable


class Timers:
    """A few deadlines; each runs its action once."""

    def __init__(self) -> None:
        self._due: list[tuple[float, Callable[[], None]]] = []

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self._due.append((time.monotonic() + delay_s, action))

    def wait_ms(self) -> int | None:
        """Return how long a poll may wait; None for ever."""
        if not self._due:
            return None
        first = min(when for when, _ in self._due)
        return max(0, int((first - time.monotonic()) * 1000) + 1)

    def run_due(self) -> None:
        """Run what is due. O(deadlines), of which there are at most a handful."""
        if not self._due:
            return
        now = time.monotonic()
        due = [action for when, action in self._due if when <= now]
        self._due = [entry for entry in self._due if entry[0] > now]
        for action in due:
            action()
