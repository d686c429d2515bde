"""Keeps a task's output within its cap: the beginning and the end, and says what is missing.

The first half of the cap goes to `stdout.log`. What follows goes to pieces of a quarter,
`stdout.tail.N` with the output from byte N on, of which the newest two are kept. When bytes
between them are gone, `stdout.log` ends with a line that says how many. So `cat stdout.log
stdout.tail.*` shows all there is, and every byte kept stays where a reader who follows has
seen it. Files come into being with their first byte: many tasks say nothing.

Reading never stops: a task must not block, or die, because its log is full or the disk is.
"""

import os
from typing import Final, NamedTuple

CHUNK_BYTES: Final = 65536
_APPEND: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
DEFAULT_CAP_BYTES: Final = 64 << 20
MARKER: Final = "\n[allotment: {} bytes of output are missing here]\n"


class LogFile(NamedTuple):
    """A stretch of the stream: where it starts, and the file that holds it."""

    start: int
    path: str


class CappedLog:
    """One stream of one task. `total` counts what the task wrote, `dropped` what is lost."""

    def __init__(self, path: str, cap_bytes: int) -> None:
        self.path = path
        self.total = 0
        self.unwritten = 0
        self.error = ""
        self._head_bytes = cap_bytes - cap_bytes // 2
        self._piece_bytes = max(1, cap_bytes // 4)
        self._left = self._head_bytes
        self._fd = -1
        self._current = path
        self._tail: list[LogFile] = []
        self._overwritten = 0

    @property
    def dropped(self) -> int:
        return self.unwritten + self._overwritten

    def feed(self, source: int) -> bool:
        """Take what is there to read. False at the end of the stream."""
        try:
            data = os.read(source, CHUNK_BYTES)
        except BlockingIOError:
            return True
        self._take(data)
        return bool(data)

    def drain(self, source: int) -> bool:
        """Take everything that is there. False when some writer still has it open."""
        while True:
            try:
                data = os.read(source, CHUNK_BYTES)
            except BlockingIOError:
                return False
            if not data:
                return True
            self._take(data)

    def say(self, text: str) -> None:
        """Add a line of our own, as a shell would."""
        self._take(text.encode())

    def _take(self, data: bytes) -> None:
        self.total += len(data)
        view = memoryview(data)
        while view:
            if not self._left:
                self._turn_over(self.total - len(view))
            part = view[: self._left]
            self._write(part)
            self._left -= len(part)
            view = view[len(part) :]

    def _turn_over(self, start: int) -> None:
        """Go on in a new piece, forgetting the oldest of two."""
        self._close()
        if len(self._tail) == 2:
            oldest = self._tail.pop(0)
            self._overwritten += self._tail[0].start - oldest.start
            _forget(oldest.path)
        self._current = f"{self.path.removesuffix('.log')}.tail.{start}"
        self._tail.append(LogFile(start, self._current))
        self._left = self._piece_bytes

    def _write(self, part: memoryview) -> None:
        while part:
            try:
                if self._fd < 0:
                    self._fd = os.open(self._current, _APPEND, 0o600)
                part = part[os.write(self._fd, part) :]
            except OSError as error:
                self.error = self.error or f"cannot write {self._current}: {error.strerror}"
                self.unwritten += len(part)
                return

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def finish(self) -> None:
        """Close, and say in the file what is missing. Never raises; see `error`."""
        self._close()
        if self.dropped:
            self._current = self.path
            self._write(memoryview(MARKER.format(self.dropped).encode()))
            self._close()


def _forget(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
