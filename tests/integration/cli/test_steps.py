"""How far uploads are: a bar on a terminal, lines elsewhere."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

PROGRAM = """
import sys
from allotment.cli.steps import steps
from allotment.client.step import Step
with steps(quiet="quiet" in sys.argv, as_json="json" in sys.argv) as tell:
    if "hostile" in sys.argv:
        tell(Step("name\\x1b]0;what", more="more\\x1b]0;too"))
        sys.exit()
    for what in ("sending code", "sending data"):
        for n in range(5):
            tell(Step(what, n << 20, 4 << 20, "7 files"))
"""


def told(*words: str, columns: int = 100, **env: str) -> str:
    """Return what a terminal of so many columns gets."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    argv = [sys.executable, "-c", PROGRAM, *words]
    plain = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "CI")}
    with subprocess.Popen(argv, stderr=theirs, env={**plain, "TERM": "xterm", **env}):
        os.close(theirs)
        found = bytearray()
        try:
            while data := os.read(ours, 65536):
                found += data
        except OSError:  # The last one that had it open has ended.
            pass
    os.close(ours)
    return found.decode()


def test_a_terminal_has_one_bar_that_is_drawn_in_its_place() -> None:
    shown = told()
    assert "━" in shown
    assert "4 MiB of 4 MiB" in shown
    assert "\x1b[1A" in shown or "\r" in shown
    assert shown.count("\n") <= 2


def test_names_in_a_bar_do_not_steer_the_terminal() -> None:
    shown = told("hostile")
    assert "\x1b]0;" not in shown
    assert r"name\x1b]0;what" in shown
    assert r"more\x1b]0;too" in shown


def test_a_narrow_terminal_has_no_bar() -> None:
    assert "━" not in told(columns=60)
    assert "MiB of 4 MiB" in told(columns=60)


@pytest.mark.parametrize("words", [("json",), ()])
def test_elsewhere_and_for_programs_there_are_a_few_lines(words: tuple[str, ...]) -> None:
    shown = told("json") if words else told(TERM="dumb")
    assert shown.splitlines() == [
        "sending code: 0 B of 4 MiB, 7 files",
        "sending data: 0 B of 4 MiB, 7 files",
    ]
    assert told("quiet") == ""


def test_without_colours_it_has_none() -> None:
    assert "\x1b[3" in told().replace("\x1b[?25", "")
    assert "\x1b[3" not in told(NO_COLOR="1").replace("\x1b[?25", "")
