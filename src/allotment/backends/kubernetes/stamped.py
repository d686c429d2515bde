"""Lines behind their times, as Kubernetes sends them → their text, as it comes. Pure.

A line may never end. So none is collected: what is there of one is passed on.
"""

LONGEST_TIME = 64
TORN = b"[allotment: lines may be missing here: the node kept no more of what was written]\n"
"""A kubelet begins a new file now and then, and shows the newest alone."""


class Stamped:
    """Takes the times off what comes, and leaves out the lines that were had before.

    `newest` is the time of the newest line that came whole, `same` how many of it there were.
    """

    def __init__(self, newest: bytes, same: int) -> None:
        self.newest, self.same = newest, same
        self._at, self._skip = newest, same
        self._head = b""
        """What came of a time."""
        self._time: bytes | None = None
        """Of the line under way."""
        self._is_new = False
        self._is_joined = not newest
        """Whether what comes begins where what was had ended."""
        self.has_words = False
        """Whether Kubernetes said something about the log among its lines."""

    def take(self, piece: bytes) -> tuple[bytes, bytes]:
        """Return the new text of lines that are over now, and of the one that is not."""
        *whole, rest = piece.split(b"\n")
        over: list[bytes] = []
        for line in whole:
            over.append(self._text(line + b"\n"))
            self.finish()
        return b"".join(over), self._text(rest)

    def finish(self) -> None:
        """Count the line under way as one that came whole."""
        if self._time is not None and self._is_new:
            self.same = self.same + 1 if self._time == self.newest else 1
            self.newest = self._time
        self._time, self._head = None, b""

    def _text(self, part: bytes) -> bytes:
        if self._time is None:
            self._head += part
            time, space, part = self._head.partition(b" ")
            if not space:
                if b"\n" not in time and len(time) <= LONGEST_TIME:
                    return b""
                time, part = b"", time
            is_torn = self._begin(time)
            return (TORN if is_torn else b"") + part if self._is_new else b""
        return part if self._is_new else b""

    def _begin(self, time: bytes) -> bool:
        """Begin a line. Whether some may be missing before it."""
        self._time, self._head = time, b""
        is_same = time == self._at and self._skip > 0
        self._skip -= is_same
        # Without a time it is no line of the task, but words of Kubernetes about its log.
        is_line = time[:1].isdigit()
        self.has_words = self.has_words or not is_line
        self._is_new = is_line and not is_same and time >= self._at
        is_torn = self._is_new and not self._is_joined
        self._is_joined = self._is_joined or is_torn or is_line
        return is_torn
