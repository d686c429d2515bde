"""Runs `allot` in this process, as a shell would see it."""

import contextlib
import io
import sys
import warnings
from typing import NamedTuple
from unittest.mock import patch

from allotment.cli import daemon
from allotment.cli.app import main
from tests.support import forked


class Ran(NamedTuple):
    """What a run gave."""

    code: int
    out: str
    err: str


class Text(io.StringIO):
    """A stream that is no terminal, unless it is told to be one."""

    def __init__(self, *, terminal: bool = False) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


class Asked(io.TextIOWrapper):
    """Input that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def allot(
    *words: object, stdin: bytes = b"", terminal: bool = False, asked: bool = False
) -> Ran:
    """Run it with these words; give exit code and both outputs. `asked`: input is typed."""
    out, err = Text(terminal=terminal), Text(terminal=terminal)
    before = sys.stdin
    sys.stdin = (Asked if asked else io.TextIOWrapper)(io.BytesIO(stdin))
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(action="ignore", category=ResourceWarning),
            patch.object(daemon, "begin", forked.begin),
        ):  # The service that `up` starts outlives what waits for it.
            try:
                main([str(word) for word in words])
            except SystemExit as ended:
                code = ended.code
    finally:
        sys.stdin = before
    assert isinstance(code, int)
    return Ran(code, out.getvalue(), err.getvalue())
