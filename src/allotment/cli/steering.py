"""What steers a terminal, written out: text of jobs comes from their users.

An escape code can move the cursor over what was said, rename the window, or make a terminal
answer as if its user had typed. Colours are let through, and for output of jobs the carriage
return, by which progress bars live. Only what goes to a terminal is changed.
"""

import re

COLOURS = r"\x1b\[[0-9;:]{0,64}m"
BEGUN = re.compile(r"\x1b(\[[0-9;:]{0,64})?\Z")
"""The beginning of what may become a change of colour, at the end of a piece."""

CONTROLS = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
TURNING = r"\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""Ends of lines that are none, and what turns the direction of writing."""

IN_OUTPUT = re.compile(f"{COLOURS}|[{CONTROLS}{TURNING}]")
IN_WORDS = re.compile(f"{COLOURS}|[\r{CONTROLS}{TURNING}]")


def words_shown(text: str) -> str:
    """Return text of ours that is safe to show, whatever names are part of it."""
    return IN_WORDS.sub(_written_out, text)


def _written_out(found: "re.Match[str]") -> str:
    code = found[0]
    if len(code) > 1:
        return code
    return f"\\x{ord(code):02x}" if code < "\x7f" else f"\\u{ord(code):04x}"


class Shown:
    """Makes one stream of output safe to show, piece by piece."""

    def __init__(self) -> None:
        self._begun = ""

    def take(self, text: str) -> str:
        """Return what can be shown; the beginning of an escape code waits for its rest."""
        text, self._begun = self._begun + text, ""
        if begun := BEGUN.search(text):
            text, self._begun = text[: begun.start()], begun[0]
        return IN_OUTPUT.sub(_written_out, text)

    def rest(self) -> str:
        """Return what still waits at the end of the output."""
        text, self._begun = self._begun, ""
        return IN_OUTPUT.sub(_written_out, text)
