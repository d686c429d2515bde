"""Prints the output of tasks: as it is for one task, line by line with its name for several.

On a terminal what would steer it is written out, unless output is asked for raw.
"""

import sys
from typing import TextIO

from allotment.cli.output import RESET, paint, say_json_line
from allotment.cli.steering import Shown
from allotment.client import LogLine

COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red")

ESCAPE = "\x1b"

Key = tuple[str, str]
"""A task and one of its streams."""


class LogPrinter:
    """Where pieces of output go. stderr of a task goes to stderr.

    With `names` each line begins with its task's name, and a line that is not complete
    waits for its end; without, every piece is passed on at once, progress bars and all.
    """

    def __init__(
        self, names: tuple[str, ...] = (), *, as_json: bool = False, raw: bool = False
    ) -> None:
        self._names = names
        self._width = max((len(name) for name in names), default=0)
        self._open: dict[Key, str] = {}
        self._shown: dict[Key, Shown] = {}
        self._coloured: set[str] = set()
        self._as_json = as_json
        self._raw = raw

    def write(self, piece: LogLine) -> None:
        """Print a piece, or keep it until its line is complete."""
        key = (piece.task, piece.stream)
        if self._as_json:
            say_json_line(piece)
        elif self._is_raw(piece.stream):
            self._print(key, piece.text)
        else:
            text = self._shown.setdefault(key, Shown()).take(piece.text)
            self._coloured |= {piece.stream} if ESCAPE in text else set()
            self._print(key, text)

    def finish(self) -> None:
        """Print what is left of lines without an end, in the terminal's own colours again."""
        for key, shown in self._shown.items():
            self._print(key, shown.rest())
        for key, text in self._open.items():
            if text:
                self._put(key, self._line(key, text))
        self._open.clear()
        for name in sorted(self._coloured):
            self._put(("", name), RESET)

    def _is_raw(self, stream: str) -> bool:
        return self._raw or not _stream(stream).isatty()

    def _print(self, key: Key, text: str) -> None:
        if not self._names:
            self._put(key, text)
            return
        *lines, rest = (self._open.pop(key, "") + text).split("\n")
        if rest:
            self._open[key] = rest
        self._put(key, "".join(self._line(key, line) for line in lines))

    def _line(self, key: Key, text: str) -> str:
        """Write a line of one of several tasks; on a terminal it cannot pass for another's."""
        prefix = self._prefix(*key)
        if self._is_raw(key[1]):
            return f"{prefix}{text}\n"
        parts = text.rstrip("\r").split("\r")
        end = RESET if ESCAPE in text else ""
        return "\r".join(f"{prefix}{part}" for part in parts) + f"{end}\n"

    def _prefix(self, task: str, stream: str) -> str:
        at = self._names.index(task) if task in self._names else 0
        colour = COLOURS[at % len(COLOURS)]
        return paint(f"{task.ljust(self._width)}|", colour, _stream(stream)) + " "

    def _put(self, key: Key, text: str) -> None:
        if text:
            stream = _stream(key[1])
            stream.write(text)
            stream.flush()


def _stream(name: str) -> TextIO:
    return sys.stderr if name == "stderr" else sys.stdout
