"""How many devices have been free for how long, of those that are free now."""

from allotment.model.quantity import Instant


class Idle:
    """Follows the number of free devices.

    It keeps, for each number, since when never fewer were free: O(different numbers).
    """

    def __init__(self) -> None:
        self._since: list[tuple[int, Instant]] = []
        """Numbers that ascend, each with the moment since when so many were free throughout."""

    def note(self, free: int, now: Instant) -> bool:
        """Note how many are free from now on; return whether that is another number."""
        if free == (self._since[-1][0] if self._since else 0):
            return False
        since = now
        while self._since and self._since[-1][0] >= free:
            since = self._since.pop()[1]
        if free > 0:
            self._since.append((free, since))
        return True

    def since(self, count: int) -> Instant | None:
        """Return since when never fewer were free; None if so many are not free now."""
        return next((since for free, since in self._since if free >= count), None)
