"""Hands out ranges of TCP ports, each to one attempt at a time.

Next fit: a port that was just given back is not given out again soon, so that a socket
in TIME_WAIT of the last holder does not greet the next one.
"""

from collections.abc import Callable


def nobody_else(port: int) -> bool:  # noqa: ARG001 - the form of `is_free`
    """Answer for a host where nobody else opens ports."""
    return True


class PortPool:
    """A range of ports; (0, 0) hands out nothing, as 0."""

    def __init__(self) -> None:
        self._first, self._end = 0, 0
        self._next = 0
        self._taken: set[int] = set()
        self.free = 0
        """Ports of the range that are not taken: a full one is not looked through."""

    def configure(self, ports: tuple[int, int]) -> None:
        """Use this half-open range from now on; what is taken stays taken."""
        self._first, self._end = ports
        self._next = self._first
        self.free = self._end - self._first
        self.free -= sum(1 for port in self._taken if self._first <= port < self._end)

    def begin_at(self, offset: int) -> None:
        """Begin somewhere else in the range, so that two services of a host keep apart."""
        size = self._end - self._first
        self._next = self._first + (offset % size if size else 0)

    def find(self, count: int, is_free: Callable[[int], bool]) -> int:
        """Return the first of `count` free ports in a row, 0 when there are none.

        `is_free` says whether somebody else on the host has a port; what is chosen is
        recorded, so an answer is never asked for again.
        """
        if not 0 < count <= self.free:
            return 0
        start = self._next if self._next + count <= self._end else self._first
        for base in (start, self._first):
            run = 0
            for port in range(base, self._end):
                run = run + 1 if port not in self._taken and is_free(port) else 0
                if run == count:
                    return port - count + 1
        return 0

    def take(self, first: int, count: int) -> None:
        """Hold a range that `find` gave; 0 holds nothing."""
        if first:
            self.free -= self._inside(first, count)
            self._taken.update(range(first, first + count))
            self._next = first + count

    def give(self, first: int, count: int) -> None:
        """Let go of a range."""
        if first:
            self.free += self._inside(first, count)
            self._taken.difference_update(range(first, first + count))

    def _inside(self, first: int, count: int) -> int:
        """Count the ports of a range that are in ours; they may be of an older one."""
        return max(0, min(first + count, self._end) - max(first, self._first))
