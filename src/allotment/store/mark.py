"""The high-water mark: how far the log was written, kept in a file of its own.

A log that lost its end is a whole log, only shorter; nothing inside can tell. So beside it
stands how far it came. The mark is written after a commit, never before: it may lag, by
`PAUSE_S` and one write, and never promises what is not on the disk. Two places are written
in turn, so that a write cut short leaves the one before.
"""

import contextlib
import os
import threading
from pathlib import Path
from zlib import crc32

import msgspec
import structlog

from allotment.rights.writing import sync
from allotment.store.chain import End

FILE = "allot.mark"
PLACE = 512
"""Bytes of each of the two places: what a disk writes at once."""

PAUSE_S = 0.05
"""Between two writes at least: under load commits come more often, and want the disk."""

log = structlog.get_logger("allot.store")


class Mark(msgspec.Struct, frozen=True):
    """One writing of the mark. `number` counts writings, so the newest place is known."""

    number: int
    end: End


def read_mark(path: Path) -> Mark | None:
    """Read the newest mark of a file; None when there is none, or none can be read."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    found = [_decoded(data[place : place + PLACE]) for place in (0, PLACE)]
    return max((mark for mark in found if mark), key=lambda mark: mark.number, default=None)


def _encoded(mark: Mark) -> bytes:
    text = msgspec.json.encode(mark)
    return b"%08x %b" % (crc32(text), text.ljust(PLACE - 10)) + b"\n"


def _decoded(place: bytes) -> Mark | None:
    try:
        checksum, text = int(place[:8], 16), place[9:].rstrip()
        return msgspec.json.decode(text, type=Mark) if crc32(text) == checksum else None
    except (ValueError, msgspec.MsgspecError):
        return None


class Marker:
    """Keeps the mark of a log that is being written, from a thread of its own."""

    def __init__(self, path: Path, end: End) -> None:
        """Write the first mark, durable on return. Raises OSError."""
        before = read_mark(path)
        self._number = before.number if before else 0
        self._wanted = self._written = end
        self._news = threading.Event()
        self._over = threading.Event()
        is_new = not path.exists()
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DSYNC | os.O_CLOEXEC, 0o600)
        try:
            self._write(end)
            if is_new:
                self._write(end)  # both places are there: none needs room on the disk later
                sync(path.parent)
        except BaseException:
            os.close(self._fd)
            raise
        self._thread = threading.Thread(target=self._run, name="mark", daemon=True)
        self._thread.start()

    def advance(self, end: End) -> None:
        """Move the mark to this event: all events up to it are on the disk."""
        self._wanted = end
        self._news.set()

    def close(self) -> None:
        """Write what is left, and end the thread."""
        if self._over.is_set():
            return
        self._over.set()
        self._news.set()
        self._thread.join()
        with contextlib.suppress(OSError):  # The mark lags; that was said when it began.
            self._follow()
        os.close(self._fd)

    def _run(self) -> None:
        trouble = ""
        while True:
            self._news.wait()
            if self._over.is_set():
                return
            self._news.clear()
            try:
                self._follow()
                trouble = ""
            except OSError as error:
                if not trouble:
                    log.warning("the mark of the event log cannot be written", why=str(error))
                trouble = str(error)
                self._news.set()
            self._over.wait(PAUSE_S)

    def _follow(self) -> None:
        wanted = self._wanted
        if wanted != self._written:
            self._write(wanted)

    def _write(self, end: End) -> None:
        self._number += 1
        data = _encoded(Mark(self._number, end))
        os.pwrite(self._fd, data, PLACE * (self._number % 2))
        self._written = end
