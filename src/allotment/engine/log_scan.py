"""Look for known patterns in the end of a task's output, in time linear in its length.

Output is hostile until proven otherwise: megabytes without a line break, terminal escapes,
binary. Only the last `TAIL` characters are looked at, a plain string is looked for before
any regular expression, and an expression sees one piece of one line at a time.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from allotment.model.diagnosis import Diagnosis

TAIL: Final = 64 << 10
"""Characters of output looked at."""

EVIDENCE: Final = 300
"""Characters of a line kept as evidence."""

LINES_TRIED: Final = 20
"""Lines tried a pattern, from the end: more that hold its needle but do not match are noise."""

PIECE: Final = 600
"""Characters of a line looked at on either side of a needle."""

_ESCAPE = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]")
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,150}(?=:\s|:?$)")
_WRAPPERS = ("ChildFailedError", "CalledProcessError", "SystemExit")
_TRACEBACK_LINES = 400


class LogPattern(msgspec.Struct, frozen=True):
    """A kind of line that tells why a task failed.

    Every line it means holds one of `needles`. `example` is a real line: documentation and
    test in one. The expression must be linear: no repetition within a repetition.
    """

    diagnosis: Diagnosis
    needles: tuple[str, ...]
    regex: re.Pattern[str]
    example: str


class Raised(NamedTuple):
    """The exception that ended a Python program: its last line, and what follows it."""

    line: str
    message: str


def prepare(log: str) -> str:
    """Cut the tail out, with plain line ends and without terminal colours."""
    text = log[-TAIL:].replace("\r\n", "\n").replace("\r", "\n")
    return _ESCAPE.sub("", text) if "\x1b" in text else text


def last_line(text: str, pattern: LogPattern) -> str | None:
    """Return the last matching line of a prepared text, as evidence; None without one."""
    found = max(_last_match(text, pattern.regex, needle) for needle in pattern.needles)
    return _evidence(text, found) if found >= 0 else None


def _last_match(text: str, regex: re.Pattern[str], needle: str) -> int:
    for start, at, end in _lines_with(text, needle):
        match = regex.search(text, max(start, at - PIECE), min(end, at + PIECE))
        if match:
            return match.start()
    return -1


def _lines_with(text: str, needle: str) -> Iterator[tuple[int, int, int]]:
    """Go through lines that hold the needle, last first: start, place of the needle, end."""
    limit = len(text)
    for _ in range(LINES_TRIED):
        at = text.rfind(needle, 0, limit)
        if at < 0:
            return
        start, end = _line_around(text, at)
        yield start, at, end
        limit = start


def _line_around(text: str, at: int) -> tuple[int, int]:
    end = text.find("\n", at)
    return text.rfind("\n", 0, at) + 1, len(text) if end < 0 else end


def _evidence(text: str, at: int) -> str:
    start, end = _line_around(text, at)
    if end - start > EVIDENCE:
        start = max(start, at - 60)
    return printable(text[start:end])


def printable(line: str) -> str:
    """Make a line safe to show on a terminal, and at most `EVIDENCE` characters long."""
    piece = _ESCAPE.sub("", line[: 4 * EVIDENCE])
    shown = " ".join("".join(c if c.isprintable() else " " for c in piece).split())
    return shown if len(shown) <= EVIDENCE else shown[: EVIDENCE - 1] + "…"


def last_exception(text: str) -> Raised | None:
    """Find what the last Python traceback ends in, looking through those of launchers."""
    at = len(text)
    outer: Raised | None = None
    for _ in range(5):
        at = text.rfind(_TRACEBACK, 0, at)
        if at < 0:
            break
        raised = _raised_by(text, at)
        if raised and not raised.line.split(":")[0].endswith(_WRAPPERS):
            return raised
        outer = outer or raised
    return outer


def _raised_by(text: str, at: int) -> Raised | None:
    """Skip the indented frames of a traceback; each line may begin as its first one does."""
    begin, position = _line_around(text, at)
    prefix = text[begin:at]
    for _ in range(_TRACEBACK_LINES):
        begin = position + 1
        if begin >= len(text):
            return None
        position = text.find("\n", begin)
        position = len(text) if position < 0 else position
        if text.startswith(prefix, begin, position):
            begin += len(prefix)
        match = _EXCEPTION.match(text, begin, min(position, begin + PIECE))
        if match:
            return Raised(printable(text[begin:position]), text[begin : begin + 2_000])
    return None
