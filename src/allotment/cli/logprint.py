"""Prints the output of tasks: as it is for one task, line by line with its name for several."""

import sys
from typing import TextIO

from allotment.cli.output import paint, say_json_line
from allotment.client import LogLine

COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red")


class LogPrinter:
    """Where pieces of output go. stderr of a task goes to stderr.

    With `names` each line begins with its task's name, and a line that is not complete
    waits for its end; without, every piece is passed on at once, progress bars and all.
    """

    def __init__(self, names: tuple[str, ...] = (), *, as_json: bool = False) -> None:
        self._names = names
        self._width = max((len(name) for name in names), default=0)
        self._open: dict[tuple[str, str], str] = {}
        self._as_json = as_json

    def write(self, piece: LogLine) -> None:
        """Print a piece, or keep it until its line is complete."""
        if self._as_json:
            say_json_line(piece)
        elif not self._names:
            self._put(_stream(piece.stream), piece.text)
        else:
            self._write_lines(piece)

    def finish(self) -> None:
        """Print what is left of lines without an end."""
        for (task, stream), text in self._open.items():
            if text:
                self._put(_stream(stream), f"{self._prefix(task, stream)}{text}\n")
        self._open.clear()

    def _write_lines(self, piece: LogLine) -> None:
        key = (piece.task, piece.stream)
        *lines, rest = (self._open.pop(key, "") + piece.text).split("\n")
        if rest:
            self._open[key] = rest
        prefix = self._prefix(*key)
        self._put(_stream(piece.stream), "".join(f"{prefix}{line}\n" for line in lines))

    def _prefix(self, task: str, stream: str) -> str:
        at = self._names.index(task) if task in self._names else 0
        colour = COLOURS[at % len(COLOURS)]
        return paint(f"{task.ljust(self._width)}|", colour, _stream(stream)) + " "

    def _put(self, stream: TextIO, text: str) -> None:
        if text:
            stream.write(text)
            stream.flush()


def _stream(name: str) -> TextIO:
    return sys.stderr if name == "stderr" else sys.stdout
